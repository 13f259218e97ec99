"""The field's own tasks from their result files: ours beside its methods, and beside what others have published.

Published figures are of their authors' own runs, seeds and steps, read from their pages: they stand beside ours named
as published, with their steps, and take part in no statistics.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from awavo.paper.budgets import tasks_table
from awavo.paper.comparison import Standing, TaskComparison, compare_task
from awavo.paper.learning import missing_text, point_rows
from awavo.paper.learning_page import page_data
from awavo.paper.learning_plots import draw_curves
from awavo.paper.method_results import MethodResult, Point, load_method_results
from awavo.paper.names import ALGO_NAMES, TASK_NAMES
from awavo.paper.outputs import FigureFinding, FigureTask, Picture
from awavo.results.limits import LimitRule
from awavo.results.outcome import format_estimate, format_number
from awavo.results.statistics import mean_estimate
from awavo.types import FieldsView

__all__ = ["collect"]

OURS = "awavo"
# The column beside the end: what a method has when few steps are all there are.
EARLY_STEPS = 300_000


def collect(task: FigureTask) -> FigureFinding:
    """Return and cost of every method on every task, early and at the end, beside the published figures."""
    entries, notes = load_method_results(task.results, task.jobs)
    facts = tasks_table("safety")
    groups = [[entry for entry in entries if entry.task == name] for name in facts]
    comparisons = [compare_task(group, facts[group[0].task], task.rule) for group in groups if group]
    text = [_answer(comparison, facts[comparison.task]) for comparison in comparisons]
    text.append(
        f"{task.rule.text.capitalize()}. Intervals are 95% over seeds, all seeds count. Published figures are other "
        "people's, with their own seeds and steps."
    )
    rows = 1 + max((len(c.standings[0].entry.limits) for c in comparisons), default=0)
    # A row of tasks that still fits a page.
    pictures = [
        Picture(
            "curves" if number == 0 else f"curves_{number + 1}",
            (3.4 * len(part), 2.3 * rows + 0.8),
            lambda figure, part=part: draw_curves(figure, part),
        )
        for number, part in enumerate(comparisons[start : start + 4] for start in range(0, len(comparisons), 4))
    ]
    data = [row for entry in entries for row in point_rows(entry)]
    table = "\n".join(_table(comparisons, facts, task.rule))
    page = page_data(comparisons, [], []) if comparisons else {}
    return FigureFinding("\n\n".join(text), data, table, pictures, [*notes, *missing_text(task, entries)], page)


def _answer(comparison: TaskComparison, facts: FieldsView) -> str:
    """How ours stands against what was asked for and the best that others published within their limit."""
    name, own = TASK_NAMES.get(comparison.task, comparison.task), comparison.of(OURS)
    best = max(facts["published"], key=lambda row: row["return"], default=None)
    theirs = "" if best is None else f" Published: {_published(best)}."
    if own is None:
        return f"**{name}.** AWaVO was not run.{theirs}"
    seeds = len(own.entry.seeds)
    reached = own.mean.value >= comparison.threshold and own.feasible_seeds >= 0.9 * seeds
    asked = f"{format_number(comparison.threshold)} with nine of ten seeds within was asked for: " + (
        "reached" if reached else "missed"
    )
    others = [s for s in comparison.standings if s is not own and s.is_within]
    ahead = [s for s in others if s.mean.value > own.mean.value]
    rivals = f" Ahead of it within limits: {', '.join(_line(s) for s in ahead)}." if ahead else ""
    return (
        f"**{name}.** AWaVO {format_estimate(own.mean)} after {own.entry.env_steps:,} steps, {own.feasible_seeds} of "
        f"{seeds} seeds within; {asked}.{rivals}{theirs}"
    )


def _line(standing: Standing) -> str:
    name = ALGO_NAMES.get(standing.entry.algo, standing.entry.algo)
    return f"{name} {format_estimate(standing.mean)}"


def _published(row: FieldsView) -> str:
    return f"{row['method']} {row['return']:g} at cost {row['cost']:g} after {row['steps']:,.0f} steps"


def _table(comparisons: Sequence[TaskComparison], facts: FieldsView, rule: LimitRule) -> list[str]:
    head = ["task (limit)", "method", "steps a seed", "return", "cost", "seeds within"]
    head += [f"return after {EARLY_STEPS:,}", "cost there", "within there", "s of training (all seeds)"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for comparison in comparisons:
        title = TASK_NAMES.get(comparison.task, comparison.task)
        for number, s in enumerate(comparison.standings):
            limits = ", ".join(f"{limit:g}" for limit in s.entry.limits)
            cells = [f"{title} ({limits})" if number == 0 else "", ALGO_NAMES.get(s.entry.algo, s.entry.algo)]
            cells += [f"{s.entry.env_steps:,}", format_estimate(s.mean), ", ".join(map(format_estimate, s.costs))]
            cells += [f"{s.feasible_seeds} of {len(s.entry.seeds)}", *_early(s.entry, rule), f"{s.entry.wall_s:,.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
        for row in facts[comparison.task]["published"]:
            cells = [
                "",
                f"published: {row['method']}",
                f"{row['steps']:,.0f}",
                f"{row['return']:g}",
                f"{row['cost']:g}",
            ]
            lines.append("| " + " | ".join([*cells, "", "", "", "", ""]) + " |")
    return lines


def _early(entry: MethodResult, rule: LimitRule) -> list[str]:
    """Return, cost and seeds within at the last checkpoint up to the early steps, if there is one near them."""
    before: list[Point] = [p for p in entry.checkpoints if p.env_steps <= 1.01 * EARLY_STEPS]
    if not before or before[-1].env_steps < 0.9 * EARLY_STEPS:
        return ["", "", ""]
    point = before[-1]
    costs = ", ".join(format_estimate(mean_estimate(cost)) for cost in point.costs.T)
    within = int(np.sum(rule.seeds_within(point.costs, entry.limits)))
    return [format_estimate(mean_estimate(point.returns)), costs, f"{within} of {len(entry.seeds)}"]
