"""The run folder on disk: read it whole, write its files so that a crash never leaves half of one."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from awavo.errors import RunFolderError
from awavo.files import write_bytes

__all__ = ["FORMAT", "RunData", "load_run", "read_json", "to_plain", "write_bytes", "write_json", "write_table"]

FORMAT = 1
"""Version of config.json this package writes and reads."""

_EPISODE_COLUMNS = ("seed", "env_steps", "return", "length")


@dataclass(frozen=True)
class RunData:
    """Everything a run folder says, without its parameters."""

    path: Path
    meta: dict[str, Any]
    metrics: pl.DataFrame
    episodes: pl.DataFrame
    evaluation: dict[str, Any] | None

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.meta["config"]

    @property
    def spec(self) -> dict[str, Any]:
        """The task as the algorithm saw it."""
        return self.meta["spec"]

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.config["task"])

    @property
    def algo(self) -> str:
        """Name of the algorithm."""
        return str(self.config["algo"])

    @property
    def label(self) -> str:
        """Algorithm and preset, short enough for a legend."""
        preset = self.config.get("preset")
        return f"{self.algo} ({preset})" if preset and preset != "default" else self.algo

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Names of the costs, in order."""
        return tuple(str(name) for name in self.spec["cost_names"])

    @property
    def cost_limits(self) -> tuple[float, ...]:
        """Limit of each cost's undiscounted episode total."""
        return tuple(float(limit) for limit in self.spec["cost_limits"])

    @property
    def seeds(self) -> list[int]:
        """Seed numbers that the tables hold, in order."""
        return sorted(set(self.metrics["seed"].to_list()) | set(self.episodes["seed"].to_list()))

    @property
    def env_steps(self) -> int:
        """Environment steps per seed reached so far."""
        steps = [table["env_steps"].max() for table in (self.metrics, self.episodes) if table.height]
        return max((int(step) for step in steps if isinstance(step, int)), default=0)


def load_run(path: str | os.PathLike[str]) -> RunData:
    """Read a run folder; `RunFolderError` says which file is wrong and what to do."""
    folder = Path(path)
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise RunFolderError(f"'{folder}' {what}: expected a run folder. Give the --out folder of `awavo train`.")
    meta = read_json(folder / "config.json")
    _check_meta(folder, meta)
    names = meta["spec"]["cost_names"]
    metrics = _read_table(folder / "metrics.parquet", ("seed", "env_steps"))
    episodes = _read_table(folder / "episodes.parquet", (*_EPISODE_COLUMNS, *(f"cost_{name}" for name in names)))
    evaluation = read_json(folder / "evaluation.json") if (folder / "evaluation.json").exists() else None
    if evaluation is not None and not all(isinstance(entry, dict) for entry in evaluation.values()):
        raise RunFolderError(f"'{folder}/evaluation.json' is damaged: expected one object per mode. Evaluate again.")
    return RunData(folder, meta, metrics, episodes, evaluation)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"'{path}' is damaged ({error}): expected JSON. Restore it or start a new run.") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"'{path}' is damaged: expected a JSON object. Restore it or start a new run.")
    return content


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a JSON file in one piece; NaN and infinities become null."""
    text = json.dumps(to_plain(content), indent=2, allow_nan=False, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode())


def write_table(
    path: str | os.PathLike[str], table: pl.DataFrame | Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> None:
    """Write a parquet file in one piece, from a frame, columns (arrays or lists) or rows."""
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table, infer_schema_length=None)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_bytes(path, buffer.getvalue())


def to_plain(value: Any) -> Any:
    """Turn numpy values, paths and non-finite numbers into what JSON can hold."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return str(value)


def _check_meta(folder: Path, meta: Mapping[str, Any]) -> None:
    """Refuse a configuration of another format, or one without the parts everything reads."""
    if meta.get("format") != FORMAT:
        raise RunFolderError(
            f"'{folder}' has format {meta.get('format')!r}, expected {FORMAT}: use the awavo version that wrote it."
        )
    wanted = {"config": ("task", "algo"), "spec": ("cost_names", "cost_limits")}
    for part, keys in wanted.items():
        for key in keys:
            if not isinstance(meta.get(part), dict) or key not in meta[part]:
                raise RunFolderError(
                    f"'{folder}/config.json' is damaged: no {part}.{key}. Restore it or start a new run."
                )
    names, limits = meta["spec"]["cost_names"], meta["spec"]["cost_limits"]
    if not isinstance(names, list) or not isinstance(limits, list) or len(names) != len(limits):
        raise RunFolderError(f"'{folder}/config.json' is damaged: expected one cost limit per cost name. Restore it.")


def _read_table(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read a parquet file and check that the columns are there; a table without rows needs none."""
    if not path.is_file():
        raise RunFolderError(f"'{path}' is missing: the run has no results yet. Run the same `awavo train` again.")
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunFolderError(f"'{path}' is damaged ({first}): run the same `awavo train` again.") from error
    if table.is_empty():
        whole = ("seed", "env_steps", "length")
        return pl.DataFrame(schema={name: pl.Int64 if name in whole else pl.Float64 for name in columns})
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise RunFolderError(f"'{path}' has no column '{missing[0]}': expected {', '.join(columns)}. Train again.")
    return table
