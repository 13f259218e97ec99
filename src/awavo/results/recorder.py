"""Metrics and episodes of a run, collected between chunks and written as parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from awavo.errors import RunFolderError
from awavo.results.store import write_table

__all__ = ["Recorder"]


class Recorder:
    """Two growing tables: one row per (seed, iteration), one per finished episode."""

    def __init__(self, cost_names: Sequence[str]):
        self._cost_names = tuple(cost_names)
        counts = {"seed": pl.Int64, "env_steps": pl.Int64}
        costs = {f"cost_{name}": pl.Float64 for name in self._cost_names}
        self._metrics = [pl.DataFrame(schema=counts)]
        self._episodes = [pl.DataFrame(schema={**counts, "return": pl.Float64, "length": pl.Int64, **costs})]

    def add_metrics(self, seed: int, env_steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows of one seed; NaN becomes null."""
        frame = {"seed": np.full(len(env_steps), seed, np.int64), "env_steps": np.asarray(env_steps, np.int64)}
        frame |= {name: np.asarray(values, np.float64) for name, values in columns.items()}
        self._metrics.append(pl.DataFrame(frame).fill_nan(None))

    def add_episodes(
        self, seed: int, env_steps: np.ndarray, returns: np.ndarray, lengths: np.ndarray, costs: np.ndarray
    ) -> None:
        """Append the finished episodes of one seed; `costs` is `[N, C]`."""
        frame = {
            "seed": np.full(len(env_steps), seed, np.int64),
            "env_steps": np.asarray(env_steps, np.int64),
            "return": np.asarray(returns, np.float64),
            "length": np.asarray(lengths, np.int64),
        }
        frame |= {f"cost_{name}": np.asarray(costs[:, i], np.float64) for i, name in enumerate(self._cost_names)}
        self._episodes.append(pl.DataFrame(frame))

    def write(self, folder: Path) -> None:
        """Write both tables whole; a crash leaves the ones before."""
        write_table(folder / "metrics.parquet", self._merged(self._metrics))
        write_table(folder / "episodes.parquet", self._merged(self._episodes))

    def load(self, folder: Path, env_steps: int) -> None:
        """Take up the tables of an interrupted run, up to the step its checkpoint holds."""
        for name, frames in (("metrics", self._metrics), ("episodes", self._episodes)):
            path = folder / f"{name}.parquet"
            try:
                table = pl.read_parquet(path)
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
                raise RunFolderError(
                    f"'{path}' is missing or damaged while a checkpoint exists: restore it, or give another --out."
                ) from error
            frames[:] = [table.filter(pl.col("env_steps") <= env_steps)]

    def recent(self, window: int = 20) -> dict[str, float]:
        """Means of the last finished episodes of all seeds, for the progress line."""
        tail = pl.concat(self._episodes[-64:]).tail(window * 10).group_by("seed").tail(window)
        columns = ["return", *(f"cost_{name}" for name in self._cost_names)]
        return {c: float(value) for c in columns if isinstance(value := tail[c].mean(), float)}

    @staticmethod
    def _merged(frames: list[pl.DataFrame]) -> pl.DataFrame:
        if len(frames) > 1:
            frames[:] = [pl.concat(frames, how="diagonal_relaxed").sort("env_steps", "seed", maintain_order=True)]
        return frames[0]
