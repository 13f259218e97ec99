"""Files written in one piece, folders held by one process, and what a stopped process left behind.

Whoever reads sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from awavo.errors import RunFolderError
from awavo.types import FieldsView

__all__ = ["locked", "new_folder", "read_arrays", "remove_leftovers", "require_writable", "seal_of", "write_bytes"]

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


def seal_of(content: FieldsView) -> str:
    """The checksum of a JSON object's other fields, their order included."""
    text = json.dumps({name: value for name, value in content.items() if name != "seal"}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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


def read_arrays(path: Path, most_bytes: int, wanted: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of real numbers in an .npz file, all or those wanted; anything else in it is a ValueError.

    What the file says of its size is checked before anything is unpacked: a small archive can hold terabytes of zeros,
    and a header can promise more than follows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            names = [name for name in names if wanted is None or name in wanted]
            total = sum(archive.getinfo(f"{name}.npy").file_size for name in names)
            if total > most_bytes:
                raise ValueError(f"it unpacks to {total:,} bytes, at most {most_bytes:,} are read")
            for name in names:
                _check_header(archive, name)
        with np.load(path) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError):
        raise
    except Exception as error:  # numpy and zipfile fail in many ways on a damaged file: zlib, struct, tokenizer
        raise ValueError(str(error) or type(error).__name__) from error


def _check_header(archive: zipfile.ZipFile, name: str) -> None:
    with archive.open(f"{name}.npy") as file:
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read[np.lib.format.read_magic(file)](file)
    if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize > archive.getinfo(f"{name}.npy").file_size:
        raise ValueError(f"'{name}' is of {dtype}, shape {list(shape)}")
