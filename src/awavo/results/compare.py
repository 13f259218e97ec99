"""Runs side by side: those within their limits by return, then the others by how much they exceed them.

A high return with a violated cost is not a win.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import InputError, plural
from awavo.results.curves import Curve, learning_curve, steps_to_reach
from awavo.results.limits import STRICT, LimitRule
from awavo.results.outcome import Outcome, outcome_of
from awavo.results.statistics import probability_of_improvement
from awavo.results.store import RunData
from awavo.types import Estimate

__all__ = ["Comparison", "Group", "Row", "compare_group", "compare_runs", "problem_of"]


@dataclass(frozen=True)
class Row:
    """One run of a group, ranked."""

    rank: int
    label: str
    run: RunData
    outcome: Outcome
    steps_to_threshold: int | None
    first_is_better: Estimate | None


@dataclass(frozen=True)
class Group:
    """Runs of one problem (task, options and limits), best first."""

    task: str
    limits: dict[str, float]
    threshold: float
    rows: list[Row]


@dataclass(frozen=True)
class Comparison:
    """All groups, and what a reader must know before believing them."""

    groups: list[Group]
    notes: list[str]


def compare_runs(
    runs: Sequence[RunData], mode: str = "greedy", *, threshold: float | None = None, rule: LimitRule = STRICT
) -> Comparison:
    """Group the runs by problem and rank within each group.

    `threshold` is the return for the steps to reach it; by default 90% of the way from the lowest start to the best
    final return of the group. All runs are judged by the same `rule`, whatever their evaluations recorded.
    """
    if not runs:
        raise InputError("compare got no runs: give at least one run folder.")
    if threshold is not None and not math.isfinite(threshold):
        raise InputError(f"threshold={threshold} must be a finite return, or none for 90% of the way to the best one.")
    paths = [run.path.resolve() for run in runs]
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise InputError(f"'{twice[0]}' was given more than once: name each run folder once.")
    problems: dict[tuple[Any, ...], list[RunData]] = {}
    for run in runs:
        problems.setdefault(problem_of(run), []).append(run)
    # Named once for all problems: notes and tables put runs of several problems side by side.
    names = dict(zip(paths, _labels(runs), strict=True))
    groups = [
        compare_group(part, mode, threshold=threshold, rule=rule, labels=[names[run.path.resolve()] for run in part])
        for part in problems.values()
    ]
    return Comparison(groups, _notes(groups))


def compare_group(
    runs: Sequence[RunData],
    mode: str = "greedy",
    *,
    threshold: float | None = None,
    rule: LimitRule = STRICT,
    labels: Sequence[str] | None = None,
) -> Group:
    """Rank runs of one problem; runs of another task, options or limits are refused.

    `labels` name the runs where they stand beside runs of other problems.
    """
    for run in runs[1:]:
        if problem_of(run) != problem_of(runs[0]):
            raise InputError(
                f"{_problem_text(run)} and {_problem_text(runs[0])} are different problems: their returns and costs "
                "cannot be ranked together. Compare runs of the same task and limits."
            )
    outcomes = [outcome_of(run, mode, rule) for run in runs]
    curves = [learning_curve(run) for run in runs]
    goal = _default_threshold(curves, outcomes) if threshold is None else threshold
    order = sorted(range(len(runs)), key=lambda i: _rank_key(outcomes[i]))
    labels = _labels(runs) if labels is None else labels
    best = outcomes[order[0]]
    rows = []
    for rank, i in enumerate(order, start=1):
        better = probability_of_improvement(best.returns, outcomes[i].returns) if rank > 1 else None
        reached = steps_to_reach(curves[i], goal)
        rows.append(Row(rank, labels[i], runs[i], outcomes[i], reached, better))
    limits = dict(zip(runs[0].cost_names, runs[0].cost_limits, strict=True))
    return Group(runs[0].task, limits, float(goal), rows)


def problem_of(run: RunData) -> tuple[Any, ...]:
    """What two runs must share to be ranked together: task, options, cost names and limits."""
    return run.task, _frozen(run.config.get("task_options") or {}), run.cost_names, run.cost_limits


def _rank_key(outcome: Outcome) -> tuple[bool, float, float]:
    """Runs within their limits by return; below them the others by their mean excess over the limits, then return."""
    value = float(outcome.iqm().value)
    excess = 0.0 if outcome.is_within else float(outcome.rule.excess(outcome.costs, outcome.limits).mean())
    return not outcome.is_within, excess, -value if np.isfinite(value) else np.inf


def _default_threshold(curves: Sequence[Curve], outcomes: Sequence[Outcome]) -> float:
    starts = [curve.centre[np.isfinite(curve.centre)] for curve in curves]
    best = max(float(outcome.iqm().value) for outcome in outcomes)
    low = min((float(start[0]) for start in starts if start.size), default=best)
    return low + 0.9 * (best - low)


def _labels(runs: Sequence[RunData]) -> list[str]:
    """Algorithm and preset; with as much of the folder's name as tells two runs apart that would read the same."""
    labels = [run.label for run in runs]
    shared = {label: [run.path for run in runs if run.label == label] for label in labels if labels.count(label) > 1}
    ends = {label: dict(zip(paths, _ends(paths), strict=True)) for label, paths in shared.items()}
    return [
        f"{label} · {ends[label][run.path]}" if label in shared else label
        for label, run in zip(labels, runs, strict=True)
    ]


def _ends(paths: Sequence[Path]) -> list[str]:
    """The fewest last parts of the folders' names that tell all of them apart; `.` and `..` are no names."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    ends: list[str] = []
    for count in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(part[-count:]).replace("//", "/") for part in parts]
        if len(set(ends)) == len(ends):
            break
    return ends


def _notes(groups: Sequence[Group]) -> list[str]:
    """Differences between the runs that change what the ranking means."""
    notes = []
    tasks = [group.task for group in groups]
    for task in sorted({task for task in tasks if tasks.count(task) > 1}):
        notes.append(f"Runs of {task} differ in options or limits: they are listed apart and not ranked together.")
    rows = [row for group in groups for row in group.rows]
    for row in rows:
        outcome = row.outcome
        notes += [f"{row.label}: {note}." for note in row.run.notes]
        steps, reached = row.run.config.get("steps", 0), max(row.run.env_steps, outcome.env_steps)
        if reached < steps:
            notes.append(f"{row.label}: its training is not finished, {reached:,} of {steps:,} steps.")
        if not outcome.evaluated:
            notes.append(f"{row.label}: not evaluated, figures are of the {outcome.source} (exploring policy).")
        elif outcome.env_steps < row.run.env_steps:
            notes.append(f"{row.label}: evaluated at {outcome.env_steps} of {row.run.env_steps} steps.")
        if len(outcome.seeds) < 10:
            few = plural(len(outcome.seeds), "seed")
            notes.append(f"{row.label}: {few}; intervals need about 10 to cover as stated.")
    for group in groups:
        if group.limits:
            notes.append(f"{group.task}: {group.rows[0].outcome.rule.text}.")
        steps = [row.outcome.env_steps for row in group.rows]
        if min(steps) < 0.99 * max(steps):
            notes.append(f"{group.task}: the runs used different numbers of environment steps.")
        counts = sorted({row.outcome.episodes_per_seed for row in group.rows if row.outcome.evaluated})
        if len(counts) > 1:
            told = ", ".join(f"{count:g}" for count in counts)
            notes.append(f"{group.task}: the runs were evaluated on different numbers of episodes a seed ({told}).")
        notes += _copies(group.rows)
    return list(dict.fromkeys(notes))


def _copies(rows: Sequence[Row]) -> list[str]:
    """Runs that are one training: a folder that was copied is no second experiment."""
    same: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row.label):
        if row.run.meta.get("seal"):
            same.setdefault(row.run.meta["seal"], []).append(row.label)
    return [
        f"{' and '.join(labels)} are copies of one training: together they are no more evidence than one of them."
        for labels in same.values()
        if len(labels) > 1
    ]


def _problem_text(run: RunData) -> str:
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in zip(run.cost_names, run.cost_limits, strict=True))
    return f"'{run.path}' ({run.task}; {limits or 'no costs'})"


def _frozen(value: object) -> object:
    """Hashable form of plain JSON."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _frozen(item)) for key, item in value.items()))
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value
