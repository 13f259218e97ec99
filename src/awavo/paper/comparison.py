"""Which method is best within its limits, and how soon: the statistics of the comparison.

Seeds and methods are within limits by the one rule of results/limits.py. A seed is *good* at a checkpoint if it is
within limits and its return is at least the task's threshold; the steps of a method are those after which half of its
seeds have been good (the lower median of the first such checkpoint; never counts as infinite). Scores pooled over tasks
are 0 for a random policy or a seed outside its limits and 1 at the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from awavo.paper.method_results import MethodResult, Point
from awavo.results.limits import STRICT, LimitRule
from awavo.results.statistics import (
    mean_estimate,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from awavo.types import Estimate, FieldsView

__all__ = [
    "FEWEST", "LEVELS", "Pooled", "Standing", "TaskComparison", "compare_task", "difference", "good_steps",
    "pool_scores", "settled_steps", "steps_by_level",
]  # fmt: skip

Floats = NDArray[np.float64]
_SEED, _RESAMPLES = 20231, 2000
FEWEST = 4
"""Runs of each method below which no interval of a difference is given: of 2 or 3 it would miss 0 far too often."""
LEVELS = np.linspace(0.0, 2.0, 81)  # of the profile of pooled scores


@dataclass(frozen=True)
class Standing:
    """One method on one task."""

    entry: MethodResult
    feasible_seeds: int
    is_within: bool
    excess: float
    mean: Estimate
    iqm: Estimate
    costs: list[Estimate]
    good_at: Floats
    good: Estimate
    settled: float
    good_wall_s: float

    @property
    def is_followed(self) -> bool:
        """Whether it was looked at often enough on the way to say when it became good."""
        return len(self.entry.checkpoints) > 2


@dataclass(frozen=True)
class TaskComparison:
    """All methods on one task: those within limits by mean return, then the others by how much they exceed them."""

    task: str
    threshold: float
    why: str
    rule: LimitRule
    standings: list[Standing]

    @property
    def leader(self) -> Standing | None:
        """The method within limits with the highest mean return; None if no method is within limits."""
        first = self.standings[0]
        return first if first.is_within else None

    def tied(self) -> list[str]:
        """Methods within limits whose difference to the leader's mean return may be zero."""
        leader = self.leader
        if leader is None:
            return []
        others = [s for s in self.standings[1:] if s.is_within]
        gaps = [(s, difference(leader.entry.final.returns, s.entry.final.returns)) for s in others]
        return [s.entry.algo for s, gap in gaps if not gap.low > 0]

    def of(self, algo: str) -> Standing | None:
        """The standing of a method, if it was run."""
        return next((s for s in self.standings if s.entry.algo == algo), None)

    def equal_steps(self, algo: str = "awavo") -> list[tuple[str, Point]]:
        """What every method had reached, at its last checkpoint, by the steps that `algo` was given."""
        own = self.of(algo)
        if own is None:
            return []
        reached = [
            (s.entry.algo, [p for p in _points(s.entry) if p.env_steps <= own.entry.env_steps]) for s in self.standings
        ]
        return [(name, points[-1]) for name, points in reached if points]

    def sooner(self, algo: str, other: str) -> Estimate | None:
        """Probability that a seed of `algo` is good after fewer steps than a seed of `other`; ties count half."""
        first, second = self.of(algo), self.of(other)
        if first is None or second is None:
            return None
        return probability_of_improvement(-first.good_at, -second.good_at)


def compare_task(entries: Sequence[MethodResult], facts: FieldsView, rule: LimitRule = STRICT) -> TaskComparison:
    """Rank the entries of one task. `facts`: `threshold` and `why`."""
    standings = [_standing(entry, float(facts["threshold"]), rule) for entry in entries]
    order = sorted(standings, key=lambda s: (not s.is_within, 0.0 if s.is_within else s.excess, -s.mean.value))
    return TaskComparison(entries[0].task, float(facts["threshold"]), str(facts.get("why", "")), rule, order)


def difference(first: Floats, second: Floats) -> Estimate:
    """Estimate mean(first) - mean(second) of independent runs: the 95% intervals of both means, added in squares."""
    value = float(first.mean() - second.mean())
    num = min(len(first), len(second))
    if num < FEWEST:
        return Estimate(value, -math.inf, math.inf, num, f"no interval: fewer than {FEWEST} runs")
    a, b = mean_estimate(first), mean_estimate(second)
    low = math.hypot(a.value - a.low, b.high - b.value)
    high = math.hypot(a.high - a.value, b.value - b.low)
    return Estimate(value, value - low, value + high, num, "difference of means, 95%")


def good_steps(entry: MethodResult, threshold: float, rule: LimitRule = STRICT) -> Floats:
    """For each seed the first checkpoint at which it is within limits and at the threshold; infinity if none is."""
    first = np.full(len(entry.seeds), math.inf)
    for point in reversed(_points(entry)):
        first = np.where(_good(entry, point, threshold, rule), point.env_steps, first)
    return first


def settled_steps(entry: MethodResult, threshold: float, rule: LimitRule = STRICT) -> float:
    """First checkpoint from which on at least half of the seeds are good at every checkpoint; infinity if none is."""
    settled = math.inf
    for point in reversed(_points(entry)):
        if _good(entry, point, threshold, rule).mean() < 0.5:
            break
        settled = float(point.env_steps)
    return settled


def steps_by_level(entry: MethodResult, levels: Floats, rule: LimitRule = STRICT) -> list[float]:
    """Median steps to be within limits and at each level of return: what another threshold would have said."""
    return [_median(good_steps(entry, float(level), rule)) for level in levels]


def _standing(entry: MethodResult, threshold: float, rule: LimitRule) -> Standing:
    count = int(rule.seeds_within(entry.final.costs, entry.limits).sum())
    good_at = good_steps(entry, threshold, rule)
    good = _median_estimate(good_at)
    walls = {point.env_steps: point.wall_s for point in _points(entry)}
    excess = float(rule.excess(entry.final.costs, entry.limits).mean())
    mean, middle = mean_estimate(entry.final.returns), stratified_bootstrap(entry.final.returns, "iqm")
    costs = [mean_estimate(column) for column in entry.final.costs.T]
    within, settled = rule.holds(count, len(entry.seeds)), settled_steps(entry, threshold, rule)
    wall = _wall_at(good.value, walls)
    return Standing(entry, count, within, excess, mean, middle, costs, good_at, good, settled, wall)


def _wall_at(steps: float, walls: Mapping[int, float]) -> float:
    later = [at for at in walls if at >= steps]
    return walls[min(later)] if math.isfinite(steps) and later else math.nan


def _points(entry: MethodResult) -> list[Point]:
    """The checkpoints, and the end where the last one is before it."""
    last = entry.checkpoints[-1].env_steps if entry.checkpoints else -1
    return entry.checkpoints if last >= entry.env_steps else [*entry.checkpoints, entry.final]


def _good(entry: MethodResult, point: Point, threshold: float, rule: LimitRule) -> NDArray[np.bool_]:
    return rule.seeds_within(point.costs, entry.limits) & (point.returns >= threshold)


def _median(values: Floats) -> float:
    """The lower median: finite if at least half of the values are."""
    return float(np.sort(values)[(len(values) - 1) // 2])


def _median_estimate(values: Floats) -> Estimate:
    """The median with its 95% percentile interval; infinite ends mean never."""
    value, num = _median(values), len(values)
    if num == 1:
        return Estimate(value, math.nan, math.nan, 1, "no interval: one run")
    rows = np.random.default_rng(_SEED).integers(0, num, (_RESAMPLES, num))
    draws = np.sort(np.sort(values[rows], axis=1)[:, (num - 1) // 2])
    low, high = draws[round(0.025 * _RESAMPLES)], draws[round(0.975 * _RESAMPLES) - 1]
    return Estimate(value, float(low), float(high), num, "median, 95% percentile bootstrap")


@dataclass(frozen=True)
class Pooled:
    """One method over the tasks that every method was run on: scores `[S, tasks]`, their IQM and profile."""

    algo: str
    tasks: list[str]
    scores: NDArray[np.float64]
    iqm: Estimate
    profile: Estimate


def pool_scores(comparisons: Sequence[TaskComparison], facts: Mapping[str, FieldsView]) -> list[Pooled]:
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
