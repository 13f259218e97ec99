"""Scores that can be pooled over tasks: 0 for a random policy or a seed outside its limits, 1 at the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from awavo.paper.comparison import TaskComparison
from awavo.results.statistics import performance_profile, stratified_bootstrap
from awavo.types import Estimate

__all__ = ["LEVELS", "Pooled", "pool_scores"]

LEVELS = np.linspace(0.0, 2.0, 81)


@dataclass(frozen=True)
class Pooled:
    """One method over the tasks that every method was run on: scores `[S, tasks]`, their IQM and profile."""

    algo: str
    tasks: list[str]
    scores: NDArray[np.float64]
    iqm: Estimate
    profile: Estimate


def pool_scores(comparisons: Sequence[TaskComparison], facts: Mapping[str, Mapping[str, Any]]) -> list[Pooled]:
    """Pool the methods run on every task, over as many seeds as all of them have; the best IQM first."""
    if not comparisons:
        return []
    names = [s.entry.algo for s in comparisons[0].standings]
    common = [name for name in names if all(c.of(name) is not None for c in comparisons)]
    if not common:
        return []
    count = min(len(s.entry.seeds) for c in comparisons for s in c.standings if s.entry.algo in common)
    pooled = []
    for name in common:
        columns = [_scores(c, name, float(facts[c.task]["random"]))[:count] for c in comparisons]
        table = np.stack(columns, axis=1)
        tasks = [c.task for c in comparisons]
        pooled.append(
            Pooled(name, tasks, table, stratified_bootstrap(table, "iqm"), performance_profile(table, LEVELS))
        )
    return sorted(pooled, key=lambda p: -p.iqm.value)


def _scores(comparison: TaskComparison, algo: str, random: float) -> NDArray[np.float64]:
    standing = comparison.of(algo)
    assert standing is not None
    entry = standing.entry
    scaled = np.maximum((entry.final.returns - random) / (comparison.threshold - random), 0.0)
    return np.where(comparison.rule.seeds_within(entry.final.costs, entry.limits), scaled, 0.0)
