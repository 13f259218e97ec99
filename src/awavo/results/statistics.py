"""What a set of evaluation episodes says: return and costs with intervals, and how many seeds keep their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from awavo.errors import InputError
from awavo.results.bootstrap import (
    CONFIDENCE,
    RESAMPLES,
    as_matrix,
    iqm,
    mean_estimate,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from awavo.results.limits import STRICT, LimitRule

__all__ = [
    "evaluation_summary", "iqm", "mean_estimate", "performance_profile", "probability_of_improvement",
    "stratified_bootstrap",
]  # fmt: skip


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
) -> dict[str, Any]:
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


def _figure(values: NDArray[np.float64]) -> dict[str, Any]:
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
        raise InputError(f"{len(names)} cost names and {len(limits)} limits: expected one limit for each cost.")
    if costs.shape != (*returns.shape, len(names)):
        raise InputError(f"costs have shape {costs.shape}: expected {(*returns.shape, len(names))}, one per cost name.")
