"""Own observations from a file: .npz or .parquet. What a file says of its size is checked before anything is read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np

from awavo.errors import InputError

__all__ = ["MAX_BYTES", "read_observations"]

MAX_BYTES = 2**29
"""Bytes of the arrays of a file, unpacked."""


def read_observations(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Observations [times, sites], and the truth if there: .npz with `observed` (and `truth`), or a parquet table."""
    if not path.is_file():
        raise InputError(f"--data {path}: there is no such file.")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".parquet":
        return _read_parquet(path), None
    raise InputError(f"--data {path} is neither .npz nor .parquet.")


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            if "observed" not in names:
                raise InputError(f"--data {path} has no array 'observed', only {', '.join(names) or 'nothing'}.")
            for name in {"observed", "truth"} & set(names):
                _check_array(path, archive, name)
        with np.load(path) as file:
            return file["observed"], file["truth"] if "truth" in names else None
    except InputError:
        raise
    except Exception as error:  # numpy and zipfile fail in many ways on a damaged file: zlib, struct, tokenizer
        raise InputError(f"--data {path} cannot be read as .npz ({error}).") from error


def _check_array(path: Path, archive: zipfile.ZipFile, name: str) -> None:
    """Refuse what holds no real numbers, and a header that promises more than the archive holds or than is read."""
    stored = archive.getinfo(f"{name}.npy").file_size
    if stored > MAX_BYTES:
        raise InputError(
            f"--data {path}: '{name}' unpacks to {stored:,} bytes, at most {MAX_BYTES:,} are read: split the file."
        )
    with archive.open(f"{name}.npy") as file:
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read[np.lib.format.read_magic(file)](file)
    if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize > stored:
        raise InputError(f"--data {path} cannot be read as .npz ('{name}' is of {dtype}, shape {list(shape)}).")


def _read_parquet(path: Path) -> np.ndarray:
    import polars

    try:
        table = polars.scan_parquet(path)
        columns = len(table.collect_schema())
        rows = table.select(polars.len()).collect().item()
        if rows * columns * 8 > MAX_BYTES:
            raise InputError(
                f"--data {path} holds {rows} x {columns} numbers, at most {MAX_BYTES // 8:,} are read: split the file."
            )
        return table.collect().cast(polars.Float64).to_numpy()
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(f"--data {path} cannot be read as parquet ({str(error).splitlines()[0]}).") from error
