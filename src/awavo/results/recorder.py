"""Metrics and episodes of a run, collected between chunks and written as parquet.

The tables are arrays in memory; polars is needed only where they are written or read, so that training without a folder
runs on a machine that has jax alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from awavo.errors import RunFolderError

__all__ = ["Recorder"]

Columns = dict[str, NDArray[Any]]


class Recorder:
    """Two growing tables: one row per (seed, iteration), one per finished episode."""

    def __init__(self, cost_names: Sequence[str]):
        self._cost_columns = [f"cost_{name}" for name in cost_names]
        whole, number = np.zeros(0, np.int64), np.zeros(0)
        costs = {name: number for name in self._cost_columns}
        self._metrics: list[Columns] = [{"seed": whole, "env_steps": whole}]
        self._episodes: list[Columns] = [
            {"seed": whole, "env_steps": whole, "return": number, "length": whole, **costs}
        ]

    def add_metrics(self, seed: int, env_steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows of one seed; NaN is written as null."""
        block: Columns = {"seed": np.full(len(env_steps), seed, np.int64), "env_steps": np.asarray(env_steps, np.int64)}
        self._metrics.append(block | {name: np.asarray(values, np.float64) for name, values in columns.items()})

    def add_episodes(
        self, seed: int, env_steps: np.ndarray, returns: np.ndarray, lengths: np.ndarray, costs: np.ndarray
    ) -> None:
        """Append the finished episodes of one seed; `costs` is `[N, C]`."""
        block: Columns = {
            "seed": np.full(len(env_steps), seed, np.int64),
            "env_steps": np.asarray(env_steps, np.int64),
            "return": np.asarray(returns, np.float64),
            "length": np.asarray(lengths, np.int64),
        }
        self._episodes.append(
            block | {name: np.asarray(costs[:, i], np.float64) for i, name in enumerate(self._cost_columns)}
        )

    @property
    def metrics(self) -> Columns:
        """The columns of the metrics, by steps and then seeds; NaN where a value is missing."""
        return _merged(self._metrics)

    @property
    def episodes(self) -> Columns:
        """The columns of the finished episodes, by steps and then seeds."""
        return _merged(self._episodes)

    def write(self, folder: Path, run: str = "") -> None:
        """Write both tables whole; a crash leaves the ones before. They name the run by its seal."""
        import polars as pl

        from awavo.results.store import write_table

        write_table(folder / "metrics.parquet", pl.DataFrame(self.metrics).fill_nan(None), run=run)
        write_table(folder / "episodes.parquet", pl.DataFrame(self.episodes), run=run)

    def load(self, folder: Path, env_steps: int, run: str = "") -> None:
        """Take up the tables of an interrupted run, up to its checkpoint's step; `run` is its seal, if it has one."""
        import polars as pl

        from awavo.results.store import read_table

        for name, blocks in (("metrics", self._metrics), ("episodes", self._episodes)):
            path = folder / f"{name}.parquet"
            try:
                table = read_table(path, summed=bool(run), run=run)[0].filter(pl.col("env_steps") <= env_steps)
                blocks[:] = [{column: table[column].to_numpy() for column in table.columns}]
            except pl.exceptions.PolarsError as error:
                raise RunFolderError(
                    f"'{path}' is not a table of this run: restore it, or give another --out."
                ) from error

    def recent(self, window: int = 20) -> dict[str, float]:
        """Means of the last finished episodes of all seeds, for the progress line."""
        tail = _merged(self._episodes[-64:], keep=False)
        seeds = tail["seed"]
        rows = np.concatenate([np.flatnonzero(seeds == seed)[-window:] for seed in np.unique(seeds)] or [[]])
        return {
            name: float(tail[name][rows.astype(int)].mean())
            for name in ("return", *self._cost_columns)
            if len(rows)
        }  # fmt: skip


def _merged(blocks: list[Columns], keep: bool = True) -> Columns:
    """All blocks as one, sorted by steps and then seeds; with `keep` they stay merged."""
    if len(blocks) == 1:
        return blocks[0]
    names = list(dict.fromkeys(name for block in blocks for name in block))
    count = [len(block["seed"]) for block in blocks]
    whole: Columns = {
        name: np.concatenate([b.get(name, np.full(n, np.nan)) for b, n in zip(blocks, count, strict=True)])
        for name in names
    }
    order = np.lexsort((whole["seed"], whole["env_steps"]))
    whole = {name: column[order] for name, column in whole.items()}
    if keep:
        blocks[:] = [whole]
    return whole
