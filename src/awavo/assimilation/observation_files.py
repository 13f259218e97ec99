"""Own observations from a file: .npz, .parquet or .csv. What a file says of its size is checked before it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from awavo.errors import InputError
from awavo.files import read_arrays

__all__ = ["MAX_BYTES", "Observations", "read_observations"]

MAX_BYTES = 2**29
"""Bytes of the arrays of a file, unpacked."""


TIME = ("time", "times", "t")
"""Names of a column of times in a table."""


class Observations(NamedTuple):
    """Observations [rows, seen], and where the file has them their times, their noise, and the truth."""

    observed: np.ndarray
    truth: np.ndarray | None = None
    times: np.ndarray | None = None
    noise: np.ndarray | None = None


def read_observations(path: Path) -> Observations:
    """Read .npz with `observed` (and `truth`, `times`, `noise`), or a table: .parquet or .csv, a row per time.

    A column `time` of a table holds the times; an empty place is one that was not observed.
    """
    if not path.is_file():
        raise InputError(f"--data {path}: there is no such file.")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix in (".parquet", ".csv"):
        return _read_table(path)
    raise InputError(f"--data {path} is neither .npz, .parquet nor .csv.")


def _read_npz(path: Path) -> Observations:
    try:
        arrays = read_arrays(path, MAX_BYTES, {"observed", "truth", "times", "noise"})
    except (OSError, ValueError) as error:
        raise InputError(f"--data {path} cannot be read as .npz ({error}).") from error
    if "observed" not in arrays:
        raise InputError(f"--data {path} has no array 'observed': save it with np.savez(path, observed=...).")
    return Observations(arrays["observed"], *(arrays.get(name) for name in ("truth", "times", "noise")))


def _read_table(path: Path) -> Observations:
    import polars

    kind = path.suffix[1:]
    try:
        table = polars.scan_parquet(path) if kind == "parquet" else _scan_csv(path)
        columns = len(table.collect_schema())
        rows = table.select(polars.len()).collect().item()
        if rows * columns * 8 > MAX_BYTES:
            raise InputError(
                f"--data {path} holds {rows} x {columns} numbers, at most {MAX_BYTES // 8:,} are read: split the file."
            )
        frame = table.collect().cast(polars.Float64)
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"--data {path} cannot be read as {kind} ({first[:200]}).") from error
    when = [name for name in frame.columns if name.strip().lower() in TIME][:1]
    times = frame[when[0]].to_numpy() if when else None
    return Observations(frame.drop(when).to_numpy(), times=times)


def _scan_csv(path: Path) -> Any:
    import polars

    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"--data {path} holds {path.stat().st_size:,} bytes, at most {MAX_BYTES:,} are read: split it."
        )
    return polars.scan_csv(path, infer_schema_length=None, null_values=["", "nan", "NaN", "NA"])
