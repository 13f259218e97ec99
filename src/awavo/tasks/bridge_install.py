"""An interpreter of its own for a package that cannot be installed beside jax, made ready for the bridge.

Safety-Gymnasium 1.0.0 pins pygame 2.1.0 and mujoco 2.3.3, for which there are wheels up to Python 3.10. A folder whose
installation fails is removed, a finished one is marked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from awavo.errors import InputError, did_you_mean

__all__ = ["PACKAGES", "Package", "bridge_folder", "find_interpreter", "install", "installed_python"]

MARK = "awavo-bridge-ready"
SECONDS = 1800.0  # that an installation may take


class Package(NamedTuple):
    """What to install, what to import afterwards, and on which versions of Python it works."""

    requirement: str
    module: str
    pythons: tuple[str, ...]
    example: str


PACKAGES = {
    "safety-gymnasium": Package(
        "safety-gymnasium==1.0.0", "safety_gymnasium", ("3.10", "3.9", "3.8"), "SafetyPointGoal1-v0"
    ),
}


def bridge_folder(package: str) -> Path:
    """Where a package's interpreter lies unless another folder is chosen: in the user's data folder."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "awavo" / "bridges" / package


def installed_python(package: str = "safety-gymnasium") -> Path | None:
    """The interpreter that `install` made in the usual folder, if it did."""
    folder = bridge_folder(package)
    return folder / "bin" / "python" if (folder / MARK).is_file() else None


def find_interpreter(package: str, wanted: str | None = None) -> str:
    """An interpreter on which the package works: the wanted one, or one on the PATH or of pyenv."""
    versions = PACKAGES[package].pythons
    if wanted is not None:
        version = _version(wanted)
        if version is None:
            raise InputError(f"--python {wanted} cannot be started: give an interpreter.")
        if version not in versions:
            raise InputError(
                f"--python {wanted} is Python {version}: {package} has wheels for {', '.join(versions)} alone."
            )
        return wanted
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        named = shutil.which(f"python{version}")
        for candidate in [named, *sorted(map(str, root.glob(f"{version}.*/bin/python")), reverse=True)]:
            if candidate and _version(candidate) == version:
                return candidate
    raise InputError(
        f"{package} needs Python {', '.join(versions)}, and none was found on the PATH or under {root}: install one, "
        "or name it with --python."
    )


def _version(python: str) -> str | None:
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        result = subprocess.run([python, "-c", told], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def install(package: str, folder: Path | None = None, python: str | None = None) -> Path:
    """Make the interpreter ready, and return it; one that is ready stays as it is."""
    if package not in PACKAGES:
        raise InputError(f"no package is named '{package}'.{did_you_mean(package, PACKAGES)}")
    folder = (folder or bridge_folder(package)).expanduser().absolute()
    ready = folder / "bin" / "python"
    if (folder / MARK).is_file():
        return ready
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there and is not empty: choose another with --folder.")
    base = find_interpreter(package, python)
    about = PACKAGES[package]
    try:
        _run([base, "-m", "venv", str(folder)], f"{base} makes no virtual environment")
        wheels = [str(ready), "-m", "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:"]
        _run([*wheels, about.requirement], f"{about.requirement} cannot be installed with {base}")
        _run([str(ready), "-c", f"import {about.module}"], f"{about.module} was installed, but cannot be imported")
        (folder / MARK).write_text(f"{about.requirement}\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ready


def _run(command: list[str], failure: str) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"{failure}: not done after {SECONDS:g} s.") from None
    except OSError as error:
        raise InputError(f"{failure} ({error.strerror}).") from error
    if result.returncode:
        said = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        reasons = [line for line in said if line.startswith("ERROR")] or said or ["no reason given"]
        raise InputError(f"{failure}: {reasons[-1].removeprefix('ERROR: ')}")
