"""Figure 4 from its result files: curves, the table, the answer for each task, the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence

from awavo.errors import InputError
from awavo.paper.budgets import tasks_table
from awavo.paper.claims import check_claims
from awavo.paper.comparison import TaskComparison, compare_task, pool_scores
from awavo.paper.learning_page import page_data
from awavo.paper.learning_plots import draw_curves, draw_scores
from awavo.paper.learning_text import answer, claims_text, pooled_text, table
from awavo.paper.method_results import MethodResult, load_method_results
from awavo.paper.names import ALGO_NAMES, TASK_NAMES
from awavo.paper.outputs import FigureFinding, FigureTask, Picture
from awavo.results.limits import STRICT, LimitRule
from awavo.types import Fields

__all__ = ["collect", "compare_all", "missing_text", "point_rows"]

METHODS = ("awavo", "crpo", "pcpo", "trpo-ipo", "paets")


def compare_all(entries: Sequence[MethodResult], rule: LimitRule = STRICT) -> list[TaskComparison]:
    """Compare the methods on every task that has results."""
    facts = tasks_table()
    groups = [[entry for entry in entries if entry.task == task] for task in facts]
    return [compare_task(group, facts[group[0].task], rule) for group in groups if group]


def collect(task: FigureTask) -> FigureFinding:
    """Everything that the learning results say."""
    results = [{**result, "rows": [r for r in result["rows"] if r.get("algo") in METHODS]} for result in task.results]
    entries, notes = load_method_results(results, task.jobs)
    comparisons = compare_all(entries, task.rule)
    if not comparisons:
        paths = ", ".join(f"'{result['path']}'" for result in task.results[:3])
        raise InputError(
            f"no method was evaluated on a task of Figure 4 in {paths}: give an --out of `awavo reproduce`."
        )
    pooled = pool_scores(comparisons, tasks_table())
    verdicts = check_claims(comparisons)
    missing = missing_text(task, entries)
    text = [answer(comparison) for comparison in comparisons]
    text += [pooled_text(pooled), "**Against the paper.** " + claims_text(verdicts), _rules(comparisons)]
    columns = len(comparisons)
    rows = 1 + max(len(c.standings[0].entry.limits) for c in comparisons)
    width = 3.1 * (columns + (2 if pooled else 0))
    pictures = [
        Picture("curves", (3.4 * columns, 2.3 * rows + 0.8), lambda figure: draw_curves(figure, comparisons)),
        Picture("scores", (width, 3.2), lambda figure: draw_scores(figure, comparisons, pooled)),
    ]
    data, page = [row for entry in entries for row in point_rows(entry)], page_data(comparisons, pooled, verdicts)
    return FigureFinding("\n\n".join(text), data, table(comparisons), pictures, [*notes, *missing], page)


def _rules(comparisons: Sequence[TaskComparison]) -> str:
    return f"{comparisons[0].rule.text.capitalize()}. Intervals are 95% over seeds. All seeds count."


def missing_text(task: FigureTask, entries: Sequence[MethodResult]) -> list[str]:
    """Which methods of the budget have no results."""
    there = {(entry.task, entry.algo) for entry in entries}
    wanted = dict.fromkeys((job.settings["task"], job.settings["algo"]) for job in task.jobs)
    lacking: dict[str, list[str]] = {}
    for name, algo in wanted:
        if (name, algo) not in there:
            lacking.setdefault(str(name), []).append(str(ALGO_NAMES.get(algo, algo)))
    begun = {name for name, _ in there}
    listed = [
        TASK_NAMES.get(name, name) + (f" ({', '.join(algos)})" if name in begun else "")
        for name, algos in lacking.items()
    ]
    return [f"No results yet: {', '.join(listed)}."] if listed else []


def point_rows(entry: MethodResult) -> list[Fields]:
    """Long rows: one value of one seed (checkpoints, end) or of the mean over seeds (training) at one moment."""
    head = {"task": entry.task, "algo": entry.algo, "variant": entry.variant, "commit": entry.source["commit"]}
    limits = [None, *entry.limits]
    names = ["return", *(f"cost_{name}" for name in entry.cost_names)]
    rows = []
    for kind, points in (("checkpoint", entry.checkpoints), ("final", [entry.final])):
        for point in points:
            for index, seed in enumerate(entry.seeds):
                values = [point.returns[index], *point.costs[index]]
                rows += [
                    {**head, "kind": kind, "seed": seed, "env_steps": point.env_steps, "quantity": name,
                     "value": float(value), "low": None, "high": None, "limit": limit}
                    for name, value, limit in zip(names, values, limits, strict=True)
                ]  # fmt: skip
    for band in entry.curve:
        rows += [
            {**head, "kind": "training", "seed": None, "env_steps": band.env_steps, "quantity": name,
             "value": float(band.value[i]), "low": float(band.low[i]), "high": float(band.high[i]), "limit": limits[i]}
            for i, name in enumerate(names)
        ]  # fmt: skip
    return rows
