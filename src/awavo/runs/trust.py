"""What code this user let run folders name, remembered by its contents, so that it is asked for once.

A configuration that names code (`mine:Point`, a cost function, an operator) is kept as its hash with the hashes of the
files that the code came from: the named modules, and what they had imported from beside them. The list is a private
file in the user's state folder (`XDG_STATE_HOME`), never in a run folder. A changed file, a changed configuration or a
module found elsewhere is asked for again. Nothing is imported to find out.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from awavo.errors import AwavoError
from awavo.files import write_bytes
from awavo.registry import add_current_folder
from awavo.types import Fields, FieldsView

__all__ = ["is_trusted", "missing_module", "remember", "trust_file"]

MAIN = "__main__"  # code of the running program itself: it is running already
BRIDGE = "bridge"  # another interpreter, whose files cannot be known from here
MOST_ENTRIES = 1_000


def trust_file() -> Path:
    """`awavo/trusted.json` in the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "awavo" / "trusted.json"


def remember(config: FieldsView, named: Iterable[str]) -> None:
    """Keep that the user let this configuration run the code it names, which has been imported by now.

    Where nothing can be kept (no home, a folder that others can write to) the next command asks again.
    """
    modules = _modules(named)
    if not modules or BRIDGE in modules:
        return
    files = _loaded_files(modules)
    path = trust_file()
    if files is None or not _private_folder(path.parent):
        return
    entries = _read(path)
    entry = {"files": files}
    key = _key(config)
    if entries.get(key) == entry:
        return
    kept = list({**{k: v for k, v in entries.items() if k != key}, key: entry}.items())[-MOST_ENTRIES:]
    try:
        write_bytes(path, (json.dumps(dict(kept), indent=1) + "\n").encode())
        path.chmod(0o600)
    except (AwavoError, OSError):
        return


def is_trusted(config: FieldsView, named: Iterable[str]) -> bool:
    """Whether this configuration and every file of its code are as they were when the user let them run."""
    path, modules = trust_file(), _modules(named)
    if BRIDGE in modules or not _private_folder(path.parent):
        return False
    entry = _read(path).get(_key(config))
    if not isinstance(entry, dict) or not isinstance(entry.get("files"), dict):
        return False
    files: dict[str, str] = entry["files"]
    add_current_folder()
    found = {module: _find_file(module) for module in modules if module != MAIN}
    return all(str(place) in files for place in found.values()) and all(
        _digest(Path(name)) == digest for name, digest in files.items()
    )


def missing_module(config: FieldsView, named: Iterable[str]) -> tuple[str, str] | None:
    """The first named module that is nowhere to be found from here, and the folder it was in, "" if nobody knows."""
    add_current_folder()
    for module in _modules(named):
        if module in (MAIN, BRIDGE) or module in sys.modules or _find_file(module) is not None:
            continue
        entry = _read(trust_file()).get(_key(config))
        files = entry.get("files") if isinstance(entry, dict) else None
        last = module.rpartition(".")[2]
        places = [Path(name) for name in files if Path(name).stem == last] if isinstance(files, dict) else []
        # The folder that an import starts from, above the packages that the name goes through.
        return module, str(places[0].parents[module.count(".")]) if places else ""
    return None


def _modules(named: Iterable[str]) -> list[str]:
    return sorted({value.partition(":")[0] for value in named})


def _key(config: FieldsView) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=list).encode()).hexdigest()


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _find_file(module: str) -> Path | None:
    """The file of a module, found as an import would find it but without running any of its packages."""
    places: Iterable[str] | None = None
    spec = None
    for part in (".".join(module.split(".")[: i + 1]) for i in range(module.count(".") + 1)):
        spec = PathFinder.find_spec(part, None if places is None else list(places))
        if spec is None:
            return None
        places = spec.submodule_search_locations or ()
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def _loaded_files(modules: Iterable[str]) -> dict[str, str] | None:
    """Hashes of the files of these modules and of what was imported from beside them; None if one has no file."""
    files: dict[str, str] = {}
    for name in modules:
        if name == MAIN:
            continue
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin is None:
            return None
        wanted = {Path(origin).resolve()}
        # The folder of the module, or that of the outermost package it is in; installed packages answer for themselves.
        folder = Path(origin).resolve().parents[name.count(".") + (Path(origin).name == "__init__.py")]
        if "site-packages" not in folder.parts:
            wanted |= {path for path in _sources() if path.is_relative_to(folder) and "site-packages" not in path.parts}
        for path in wanted:
            digest = _digest(path)
            if digest is None:
                return None
            files[str(path)] = digest
    return files


def _sources() -> set[Path]:
    """Files of all modules that are loaded, but for the program itself and this package."""
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] not in (MAIN, "awavo")]
    found = (getattr(module, "__file__", None) for module in loaded)
    return {Path(file).resolve() for file in found if isinstance(file, str) and file.endswith(".py")}


def _private_folder(folder: Path) -> bool:
    """Make the folder; whether it is this user's, and no one else can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _read(path: Path) -> Fields:
    try:
        if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022:
            return {}
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
