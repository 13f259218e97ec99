"""Own observations from a file: .npz or .parquet. What a file says of its size is checked before anything is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from awavo.errors import InputError
from awavo.files import read_arrays

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
        arrays = read_arrays(path, MAX_BYTES, {"observed", "truth"})
    except (OSError, ValueError) as error:
        raise InputError(f"--data {path} cannot be read as .npz ({error}).") from error
    if "observed" not in arrays:
        raise InputError(f"--data {path} has no array 'observed': save it with np.savez(path, observed=...).")
    return arrays["observed"], arrays.get("truth")


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
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"--data {path} cannot be read as parquet ({first[:200]}).") from error
