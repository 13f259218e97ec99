"""Learning curves on a common grid of environment steps: smoothed per seed first, then pooled over seeds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from awavo.errors import InputError
from awavo.results.statistics import iqm
from awavo.results.store import RunData

__all__ = ["Curve", "diagnostic_names", "learning_curve", "steps_to_reach", "training_curve"]

Floats = NDArray[np.float64]

_RESAMPLES = 400


class Curve(NamedTuple):
    """One quantity against environment steps: centre and band over seeds `[G]`, and every seed `[S, G]`.

    The centre is NaN where a seed has no data, so that it is always over the same seeds.
    """

    name: str
    env_steps: Floats
    centre: Floats
    low: Floats
    high: Floats
    per_seed: Floats
    seeds: list[int]
    limit: float | None


def learning_curve(
    run: RunData, column: str = "return", *, points: int = 160, window: float = 0.05, statistic: str = "iqm"
) -> Curve:
    """Pool `return`, `length` or `cost_<name>` of the training episodes.

    A seed's value at x is the mean of its episodes that ended in the last `window` (a share of the run) before x, or of
    the last one finished if none did. The band is the 95% percentile bootstrap over seeds at each point.
    """
    limits = {f"cost_{name}": limit for name, limit in zip(run.cost_names, run.cost_limits, strict=True)}
    return _curve(run, run.episodes, column, points, window, statistic, limits.get(column))


def training_curve(
    run: RunData, column: str, *, points: int = 160, window: float = 0.02, statistic: str = "iqm"
) -> Curve:
    """Pool a column of the metrics, such as `train/critic_loss`, in the same way."""
    limits = {f"train/cost_estimate_{name}": limit for name, limit in zip(run.cost_names, run.cost_limits, strict=True)}
    rows = run.metrics.height // max(len(run.seeds), 1)
    return _curve(run, run.metrics, column, max(2, min(points, rows)), window, statistic, limits.get(column))


def diagnostic_names(run: RunData) -> list[str]:
    """Names of the `train/` and `time/` columns, in the order they were logged."""
    return [name for name in run.metrics.columns if name.startswith(("train/", "time/"))]


def steps_to_reach(curve: Curve, threshold: float) -> int | None:
    """First grid point at which the pooled curve is at or above the threshold; None if it never is."""
    reached = np.flatnonzero(curve.centre >= threshold)
    return int(curve.env_steps[reached[0]]) if reached.size else None


def _curve(
    run: RunData, table: pl.DataFrame, column: str, points: int, window: float, statistic: str, limit: float | None
) -> Curve:
    if column not in table.columns:
        known = ", ".join(name for name in table.columns if name not in ("seed", "env_steps"))
        raise InputError(f"'{run.path}' has no column '{column}': expected one of {known}.")
    total = max(run.env_steps, 1)
    grid = np.linspace(total / points, total, points)
    seeds = run.seeds
    rows = [_smooth(_of_seed(table, seed, column), _end(run, seed), grid, window * total) for seed in seeds]
    per_seed = np.array(rows).reshape(len(seeds), points)
    centre, low, high = _pool(per_seed, statistic)
    return Curve(column, grid, centre, low, high, per_seed, seeds, limit)


def _of_seed(table: pl.DataFrame, seed: int, column: str) -> tuple[Floats, Floats]:
    """Steps and finite values of one seed, in order."""
    part = table.filter(pl.col("seed") == seed).select("env_steps", pl.col(column).cast(pl.Float64)).sort("env_steps")
    steps, values = part["env_steps"].to_numpy().astype(float), part[column].fill_null(math.nan).to_numpy()
    keep = np.isfinite(values)
    return steps[keep], values[keep]


def _end(run: RunData, seed: int) -> float:
    """Environment steps this seed has reached."""
    ends = [table.filter(pl.col("seed") == seed)["env_steps"].max() for table in (run.metrics, run.episodes)]
    return max((float(end) for end in ends if isinstance(end, int)), default=0.0)


def _smooth(points: tuple[Floats, Floats], end: float, grid: Floats, width: float) -> Floats:
    """Trailing mean at each grid point; NaN before the first value and beyond the seed's end."""
    steps, values = points
    last = np.searchsorted(steps, grid, side="right")
    first = np.minimum(np.searchsorted(steps, grid - width, side="right"), last - 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    start = np.maximum(first, 0)
    mean = (sums[last] - sums[start]) / np.maximum(last - start, 1)
    step = grid[0] if len(grid) else 0.0
    return np.where((last > 0) & (grid < end + step), mean, np.nan)


def _pool(per_seed: Floats, statistic: str) -> tuple[Floats, Floats, Floats]:
    """Centre and pointwise band over the seeds."""
    num, points = per_seed.shape
    nothing = np.full(points, np.nan)
    if num == 0:
        return nothing, nothing, nothing
    if statistic not in ("iqm", "mean"):
        raise InputError(f"statistic is '{statistic}': expected 'iqm' or 'mean'.")
    reduce_fn = iqm if statistic == "iqm" else np.mean
    centre = np.asarray(reduce_fn(per_seed, axis=0))
    if num == 1:
        return centre, nothing, nothing
    rows = np.random.default_rng(0).integers(0, num, (_RESAMPLES, num))
    draws = np.asarray(reduce_fn(per_seed[rows], axis=1))
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return centre, np.fmin(low, centre), np.fmax(high, centre)
