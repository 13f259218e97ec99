"""Files written in one piece: whoever reads sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
from pathlib import Path

from awavo.errors import RunFolderError

__all__ = ["check_folder", "write_bytes"]


def write_bytes(
    path: str | os.PathLike[str],
    payload: bytes,
    *,
    make_folder: bool = False,
    remedy: str = "Free the space or give another --out.",
) -> None:
    """Write beside the target, flush to disk, rename over it, flush the folder; `remedy` ends the error's text."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        # A rename lives in the folder: without this a power cut may undo it.
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunFolderError(f"Cannot write '{target}': {error.strerror or error}. {remedy}") from error


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder in which nothing could be written, before the work whose result it is for; make nothing."""
    folder = Path(path)
    try:
        nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    except OSError as error:
        raise RunFolderError(f"Cannot write in '{folder}': {error.strerror or error}. Give another --out.") from error
    if not nearest.is_dir():
        raise RunFolderError(f"Cannot write in '{folder}': '{nearest}' is a file. Give another --out.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise RunFolderError(f"Cannot write in '{folder}': '{nearest}' is read-only. Give another --out.")
