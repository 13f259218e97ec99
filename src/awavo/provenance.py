"""Where a number came from: versions, device, commit, command."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal

from awavo.types import Fields

__all__ = ["Part", "command_line", "device_info", "source_commit", "stamp", "versions"]

Part = Literal["command", "commit", "versions", "device", "created"]
PACKAGES = ("awavo", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "polars")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def device_info() -> dict[str, str | int | None]:
    """The accelerator jax uses and the machine around it."""
    import jax

    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "count": jax.device_count(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return names[0] if names else platform.processor()


def source_commit() -> str | None:
    """The commit of the checkout this package runs from, `+` if it has changes; None for an installed package.

    The variable AWAVO_COMMIT, where it is set, says it for a copy without its history.
    """
    if told := os.environ.get("AWAVO_COMMIT"):
        return told
    git = ["git", "-C", str(Path(__file__).resolve().parents[2])]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10)
        changes = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    if commit.returncode:
        return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")


def command_line() -> str:
    """The command as typed, without the interpreter's path."""
    name = Path(sys.argv[0]).name
    return " ".join(["awavo" if name in ("__main__.py", "main.py") else name, *sys.argv[1:]])


def stamp(*parts: Part) -> Fields:
    """Where a result comes from, to be merged into its JSON: the parts named, in that order.

    Without names: command, commit, versions and device. `created` is the time in UTC. Only what is asked for is looked
    up: a stamp without the device imports no jax.
    """
    look_up = {
        "command": command_line,
        "commit": source_commit,
        "versions": versions,
        "device": device_info,
        "created": lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return {part: look_up[part]() for part in parts or ("command", "commit", "versions", "device")}
