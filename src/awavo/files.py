"""Files written in one piece, folders held by one process, and what a stopped process left behind.

Whoever reads sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from awavo.errors import RunFolderError

__all__ = ["locked", "new_folder", "remove_leftovers", "require_writable", "write_bytes"]

REMEDY = "Free the space or give another --out."


def write_bytes(
    path: str | os.PathLike[str],
    payload: bytes,
    *,
    make_folder: bool = False,
    remedy: str = REMEDY,
) -> None:
    """Write beside the target, flush to disk, rename over it, flush the folder; `remedy` ends the error's text."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with _open_locked(temporary) as file:
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
        with suppress(OSError):  # a read-only disk refuses this too
            temporary.unlink()
        raise RunFolderError(f"Cannot write '{target}': {error.strerror or error}. {remedy}") from error


def _open_locked(temporary: Path):
    """A temporary file that its writer holds: the lock of one whose writer was killed is free."""
    while True:
        file = open(temporary, "wb")  # noqa: SIM115
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        # Somebody may have taken it for a leftover between the two calls.
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; those of running ones stay."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def require_writable(folder: Path, remedy: str = "Make it writable or give another --out.") -> None:
    """Refuse a folder nothing can be written to, before the work is done whose result would be lost."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as error:  # a name that is too long, or a loop of links
        raise RunFolderError(f"Cannot write into '{folder}': {error.strerror or error}. {remedy}") from error
    if not there.is_dir():
        raise RunFolderError(f"Cannot write into '{folder}': '{there}' is not a folder. {remedy}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunFolderError(f"Cannot write into '{folder}': '{there}' is read-only. {remedy}")


def new_folder(folder: Path) -> Path:
    """Make a folder where it is missing, or say why nothing can be written there."""
    require_writable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"Cannot make '{folder}': {error.strerror}. Give another --out.") from error
    return folder


@contextmanager
def locked(out: Path | None) -> Iterator[None]:
    """Hold a run folder for this process alone, and clear away what a killed one left in it.

    The lock is on the folder itself, which nobody deletes by accident, and the system releases it with the process.
    """
    if out is None:
        yield
        return
    new_folder(out)
    try:
        handle = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise RunFolderError(f"Cannot use '{out}' as a run folder: {error.strerror}. Give another --out.") from error
    try:
        try:
            handle = _hold(handle, out)
        except OSError as error:
            raise RunFolderError(
                f"'{out}' is in use by another process: wait for it, or give another --out."
            ) from error
        for folder in (out, out / "checkpoints"):
            remove_leftovers(folder)
        yield
    finally:
        os.close(handle)


def _hold(handle: int, out: Path) -> int:
    """Lock the folder; where the file system locks files only (NFS), a file in it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise
    file = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    os.close(handle)
    return file
