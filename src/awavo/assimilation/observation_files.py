"""Own observations from a file: .npz, .parquet or .csv. What a file says of its size is checked before it is read."""

from __future__ import annotations

from collections.abc import Sequence
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
LONGEST_HEADER = 2**24
"""Bytes of the first line of a table that are looked at."""


class Observations(NamedTuple):
    """Observations [rows, seen], and where the file has them their times, their noise, and the truth."""

    observed: np.ndarray
    truth: np.ndarray | None = None
    times: np.ndarray | None = None
    noise: np.ndarray | None = None


def read_observations(path: Path, names: Sequence[str] = ()) -> Observations:
    """Read .npz with `observed` (and `truth`, `times`, `noise`), or a table: .parquet or .csv, a row per time.

    A column `time` of a table holds the times; an empty place is one that was not observed. The other columns must have
    these `names`, where there are any, and come back in their order.
    """
    if not path.is_file():
        raise InputError(f"--data {path}: there is no such file.")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix in (".parquet", ".csv"):
        return _read_table(path, names)
    raise InputError(f"--data {path} is neither .npz, .parquet nor .csv.")


def _read_npz(path: Path) -> Observations:
    try:
        arrays = read_arrays(path, MAX_BYTES, {"observed", "truth", "times", "noise"})
    except (OSError, ValueError) as error:
        raise InputError(f"--data {path} cannot be read as .npz ({error}).") from error
    if "observed" not in arrays:
        raise InputError(f"--data {path} has no array 'observed': save it with np.savez(path, observed=...).")
    return Observations(arrays["observed"], *(arrays.get(name) for name in ("truth", "times", "noise")))


def _read_table(path: Path, names: Sequence[str]) -> Observations:
    import polars

    kind = path.suffix[1:]
    try:
        table = polars.scan_parquet(path) if kind == "parquet" else _scan_csv(path)
        schema = table.collect_schema()
        columns = len(schema)
        rows = table.select(polars.len()).collect().item()
        if rows * columns * 8 > MAX_BYTES:
            raise InputError(
                f"--data {path} holds {rows} x {columns} numbers, at most {MAX_BYTES // 8:,} are read: split the file."
            )
        read = table.collect()
        for name, kind_of in schema.items():
            _check_column(path, name, kind_of, read[name])
        frame = read.cast(polars.Float64)
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"--data {path} cannot be read as {kind} ({first[:200]}).") from error
    frame = frame.rename({name: name.strip() for name in frame.columns})
    when = [name for name in frame.columns if name.lower() in TIME and name not in names]
    if len(when) > 1:
        raise InputError(f"--data {path} has two columns of times ({' and '.join(when[:2])}): keep one.")
    times = frame[when[0]].to_numpy() if when else None
    frame = frame.drop(when)
    if names and set(frame.columns) != set(names):
        raise InputError(
            f"--data {path} has the columns {_few(frame.columns)}, expected {_few(names)} (in any order): name them as "
            "the system's, one that was never observed too, empty."
        )
    return Observations(frame.select(names or frame.columns).to_numpy(), times=times)


def _few(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:8]) + (", ..." if len(names) > 8 else "")


def _check_column(path: Path, name: str, kind: Any, column: Any) -> None:
    import polars

    odd = None
    if kind.is_temporal():
        odd = column.drop_nulls().head(1).to_list()
    elif kind == polars.String:
        read = column.cast(polars.Float64, strict=False)
        odd = column.filter(read.is_null() & column.is_not_null()).head(1).to_list()
    if odd:
        raise InputError(
            f"--data {path}: column '{name[:40]}' holds '{str(odd[0])[:40]}', expected numbers (of a time: seconds or "
            "days since some moment)."
        )


def _scan_csv(path: Path) -> Any:
    import polars

    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"--data {path} holds {path.stat().st_size:,} bytes, at most {MAX_BYTES:,} are read: split it."
        )
    with path.open("rb") as file:
        first = file.readline(LONGEST_HEADER).decode("utf-8-sig", errors="replace").strip()
    fields = [field.strip(" \"'") for field in first.split(",")]
    if all(_is_number(field) for field in fields if field) and any(fields):
        raise InputError(
            f"--data {path} has no header row (it begins with '{first[:40]}'): put a name over each column."
        )
    return polars.scan_csv(path, infer_schema_length=None, null_values=["", "nan", "NaN", "NA"])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
