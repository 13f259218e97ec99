"""What evaluation episodes say, with honest intervals from few seeds: means, IQM, improvement, performance profiles.

Levels were chosen by measured coverage with 10 seeds and a nominal 95% (docs/reports.md has the table): the plain
percentile bootstrap covers a normal mean only 90% of the time and BCa does no better, so means use percentile levels
widened for n, `Phi(+-t(n-1) sqrt(n / (n - 1)))`, which give 94%; the IQM keeps plain percentile levels, which give 94%.
Everything is deterministic: the resamples come from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from awavo.errors import InputError, plural
from awavo.results.limits import STRICT, LimitRule
from awavo.types import Estimate, Fields

__all__ = [
    "CONFIDENCE", "RESAMPLES", "as_matrix", "evaluation_summary", "iqm", "mean_estimate", "performance_profile",
    "probability_of_improvement", "stratified_bootstrap",
]  # fmt: skip

CONFIDENCE = 0.95
RESAMPLES = 2000

_SEED = 20231
_CHUNK = 2_000_000

Floats = NDArray[np.float64]


def evaluation_summary(
    returns: ArrayLike,
    costs: ArrayLike,
    lengths: ArrayLike,
    *,
    cost_names: Sequence[str],
    cost_limits: Sequence[float],
    rule: LimitRule = STRICT,
    env_steps: int = 0,
    command: str = "",
) -> Fields:
    """Summarise evaluation episodes `[S, N]` (costs `[S, N, C]`) as one entry of evaluation.json.

    Each figure is the mean over seeds of the per-seed means. Its interval resamples seeds, whose means already carry
    the spread of their episodes; with one seed it resamples that seed's episodes. `violation_rate` is the share of
    single episodes above the limit itself, without any slack.
    """
    returns, lengths, costs = as_matrix(returns, "returns"), as_matrix(lengths, "lengths"), np.asarray(costs, float)
    _check_shapes(returns, costs, lengths, cost_names, cost_limits)
    seeds, episodes = returns.shape
    unit = "seeds" if seeds > 1 else "episodes of the one seed"
    named = list(zip(cost_names, cost_limits, np.moveaxis(costs, -1, 0), strict=True))
    return {
        "return": _figure(returns),
        "costs": {name: {**_figure(cost), "limit": float(limit)} for name, limit, cost in named},
        "length": _figure(lengths),
        "feasible_seeds": int(rule.seeds_within(costs.mean(axis=1), cost_limits).sum()),
        "seeds": seeds,
        "episodes_per_seed": episodes,
        "slack": rule.slack,
        "violation_rate": {name: _figure(np.asarray(cost > limit, float)) for name, limit, cost in named},
        "env_steps": int(env_steps),
        "command": command,
        "method": f"mean of per-seed means, {CONFIDENCE:.0%} expanded percentile bootstrap over {unit}, "
        f"{RESAMPLES} resamples",
    }


def _figure(values: NDArray[np.float64]) -> Fields:
    """Value, interval and per-seed means of episodes `[S, N]`."""
    per_seed = values.mean(axis=1)
    estimate = mean_estimate(per_seed if len(per_seed) > 1 else values[0])
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "per_seed": per_seed.tolist()}


def _check_shapes(
    returns: NDArray[Any], costs: NDArray[Any], lengths: NDArray[Any], names: Sequence[str], limits: Sequence[float]
) -> None:
    """Refuse arrays that do not belong together."""
    if lengths.shape != returns.shape:
        raise InputError(f"lengths have shape {lengths.shape}: expected {returns.shape} like the returns.")
    if len(names) != len(limits):
        raise InputError(
            f"{plural(len(names), 'cost name')} and {plural(len(limits), 'limit')}: expected one limit for each cost."
        )
    if costs.shape != (*returns.shape, len(names)):
        raise InputError(f"costs have shape {costs.shape}: expected {(*returns.shape, len(names))}, one per cost name.")


def iqm(scores: ArrayLike, axis: int | None = None) -> Any:
    """Interquartile mean: the mean of what is left after cutting a quarter of the values from either end."""
    values = np.asarray(scores, float)
    values = values.reshape(-1) if axis is None else np.moveaxis(values, axis, -1)
    num = values.shape[-1]
    if num == 0:
        raise InputError("iqm got no values: expected at least one.")
    cut = num // 4
    middle = np.sort(values, axis=-1)[..., cut : num - cut].mean(axis=-1)
    result = np.where(np.isnan(values).any(axis=-1), np.nan, middle)
    return float(result) if result.ndim == 0 else result


def stratified_bootstrap(
    scores: ArrayLike, statistic: str = "iqm", *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """Estimate the IQM or the mean of scores `[S]` or `[S, strata]` with an interval over the S runs.

    Runs are drawn with replacement within each stratum (a task, say), independently of the other strata; the statistic
    pools all strata. One run has no interval: low and high are NaN.
    """
    if statistic not in ("iqm", "mean"):
        raise InputError(f"statistic is '{statistic}': expected 'iqm' or 'mean'.")
    values = as_matrix(scores, "scores")
    num, strata = values.shape

    def reduce_fn(rows: Floats) -> Floats:
        return np.asarray(iqm(rows, axis=-1)) if statistic == "iqm" else rows.mean(axis=-1)

    value = float(reduce_fn(values.reshape(1, -1))[0])
    if num == 1 or not np.isfinite(values).all():
        return Estimate(
            value, math.nan, math.nan, num, "no interval: one run" if num == 1 else "no interval: not finite"
        )
    draws = _draw(
        lambda rows: reduce_fn(values[rows, np.arange(strata)].reshape(len(rows), -1)), num, strata, resamples
    )
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, _levels(tail, num) if statistic == "mean" else (tail, 1.0 - tail))
    kind = "expanded percentile" if statistic == "mean" else "percentile"
    method = f"{statistic}, {confidence:.0%} {kind} bootstrap, {resamples} resamples"
    return Estimate(value, min(float(low), value), max(float(high), value), num, method)


def mean_estimate(scores: ArrayLike, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Estimate:
    """Estimate the mean of `[S]` or `[S, strata]` with its bootstrap interval over the S runs."""
    return stratified_bootstrap(scores, "mean", confidence=confidence, resamples=resamples)


def probability_of_improvement(
    scores: ArrayLike, others: ArrayLike, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """Estimate P(a run of `scores` beats a run of `others`), ties counting one half, from `[S]` and `[R]`."""
    first, second = as_matrix(scores, "scores")[:, 0], as_matrix(others, "others")[:, 0]
    if np.isnan(first).any() or np.isnan(second).any():
        # What is no number is neither above nor below another: every pair with one would count as lost.
        return Estimate(
            math.nan, math.nan, math.nan, min(first.size, second.size), "no comparison: a score is no number"
        )
    wins = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    value, num = float(wins.mean()), min(first.size, second.size)
    if num == 1:
        return Estimate(value, math.nan, math.nan, 1, "no interval: one run")
    generator = np.random.default_rng(_SEED)
    rows = generator.integers(0, first.size, (resamples, first.size, 1))
    columns = generator.integers(0, second.size, (resamples, 1, second.size))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(wins[rows, columns].mean(axis=(1, 2)), (tail, 1.0 - tail))
    method = f"share of pairs won, {confidence:.0%} percentile bootstrap, {resamples} resamples"
    return Estimate(value, min(float(low), value), max(float(high), value), num, method)


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """Estimate the share of runs scoring above each threshold; value, low and high are arrays `[K]`."""
    values, levels = as_matrix(scores, "scores"), np.asarray(thresholds, float).reshape(-1)
    num, strata = values.shape
    above = (values[:, :, None] > levels).astype(float)
    value = above.mean(axis=(0, 1))
    draws = _draw(
        lambda rows: above[rows, np.arange(strata)].mean(axis=(1, 2)), num, strata, resamples, width=levels.size
    )
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, (tail, 1.0 - tail), axis=0)
    method = f"share of runs, {confidence:.0%} pointwise percentile bootstrap, {resamples} resamples"
    return Estimate(value, np.minimum(low, value), np.maximum(high, value), num, method)


def as_matrix(scores: ArrayLike, name: str) -> Floats:
    """Scores as `[S, strata]`; a vector becomes one stratum."""
    values = np.asarray(scores, float)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"{name} have shape {values.shape}: expected [S] or [S, N] with at least one value.")
    return values


def _draw(
    draw_fn: Callable[[NDArray[np.int64]], Floats], num: int, strata: int, resamples: int, width: int = 1
) -> Floats:
    """Apply `draw_fn` to row indices `[B, num, strata]`, in chunks that bound the memory."""
    generator = np.random.default_rng(_SEED)
    chunk = max(1, _CHUNK // (num * strata * width))
    sizes = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    return np.concatenate([draw_fn(generator.integers(0, num, (size, num, strata))) for size in sizes])


def _levels(tail: float, num: int) -> tuple[float, float]:
    """Percentile levels widened so that the bootstrap of a mean of `num` values covers as Student's t does."""
    z, nu = NormalDist().inv_cdf(1.0 - tail), num - 1
    t = z + (z**3 + z) / (4 * nu) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * nu**3)
    level = NormalDist().cdf(-t * math.sqrt(num / nu))
    return level, 1.0 - level
