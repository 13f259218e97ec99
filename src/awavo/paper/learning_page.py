"""The comparison as plain data, for the web page: charts and table rows by task and method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from awavo.paper.claims import Verdict
from awavo.paper.comparison import LEVELS, Pooled, Standing, TaskComparison, steps_by_level
from awavo.paper.learning_text import answer_sentences, bounded_steps
from awavo.paper.method_results import MethodResult
from awavo.paper.names import ALGO_COLORS, ALGO_NAMES, TASK_NAMES
from awavo.results.charts import round_numbers
from awavo.results.limits import LimitRule
from awavo.results.outcome import format_estimate, format_number
from awavo.results.statistics import mean_estimate
from awavo.types import Fields

__all__ = ["page_data"]


def page_data(comparisons: Sequence[TaskComparison], pooled: Sequence[Pooled], verdicts: Sequence[Verdict]) -> Fields:
    """Everything the page shows of the learning comparison."""
    return {
        "algos": [
            {"id": name, "name": ALGO_NAMES.get(name, name), "color": ALGO_COLORS.get(name, 7)}
            for name in dict.fromkeys(s.entry.algo for c in comparisons for s in c.standings)
        ],
        "rule": comparisons[0].rule.text,
        "tasks": [_task(comparison) for comparison in comparisons],
        "pooled": _pooled(pooled),
        "claims": [
            {
                "text": f"{v.claim.text} on {TASK_NAMES[v.task]}",
                "verdict": v.verdict,
                "reason": v.reason,
                "task": v.task,
            }
            for v in verdicts
        ],
    }


def _task(comparison: TaskComparison) -> Fields:
    entry, tied = comparison.standings[0].entry, comparison.tied()
    return {
        "id": comparison.task,
        "name": TASK_NAMES.get(comparison.task, comparison.task),
        "limits": [[name, f"{limit:g}"] for name, limit in zip(entry.cost_names, entry.limits, strict=True)],
        "threshold": format_number(comparison.threshold),
        "answer": answer_sentences(comparison),
        "state": _state(comparison),
        "rows": [_row(standing, comparison, tied) for standing in comparison.standings],
        "charts": _charts(comparison),
    }


def _state(comparison: TaskComparison) -> str:
    """How AWaVO stands: first or tied, behind, outside its limits, or not run."""
    own, leader = comparison.of("awavo"), comparison.leader
    if own is None:
        return "none"
    if own is leader or "awavo" in comparison.tied():
        return "ok"
    return "part" if own.is_within else "bad"


def _row(standing: Standing, comparison: TaskComparison, tied: list[str]) -> Fields:
    entry = standing.entry
    place = "first" if standing is comparison.leader else "tied" if entry.algo in tied else ""
    return {
        "algo": entry.algo,
        "name": ALGO_NAMES.get(entry.algo, entry.algo),
        "place": place,
        "steps": f"{entry.env_steps:,}",
        "within": standing.is_within,
        "seeds": f"{standing.feasible_seeds} of {len(entry.seeds)}",
        "mean": _cell(format_estimate(standing.mean)),
        "iqm": _cell(format_estimate(standing.iqm)),
        "costs": [
            {**_cell(format_estimate(cost)), "ok": cost.value <= limit + comparison.rule.slack}
            for cost, limit in zip(standing.costs, entry.limits, strict=True)
        ],
        "good": _cell(bounded_steps(standing)),
        "wall": f"{entry.wall_s:,.0f}",
        "source": f"{entry.source['command']}   # commit {entry.source['commit']}, {entry.source['device']}",
    }


def _cell(text: str) -> dict[str, str]:
    value, _, interval = text.partition(" ")
    return {"value": value, "interval": interval}


def _charts(comparison: TaskComparison) -> list[Fields]:
    """Training curves, evaluations on the way, steps against level of return, and the seeds' ends."""
    entry = comparison.standings[0].entry
    names = ["Return", *(f"Cost: {name}" for name in entry.cost_names)]
    charts = []
    for index, name in enumerate(names):
        limit = None if index == 0 else entry.limits[index - 1]
        series = [_line(s.entry, _training(s.entry, index)) for s in comparison.standings]
        charts.append(
            _chart(comparison, f"train-{index}", f"{name} while training", "environment steps", series, limit)
        )
    for index, name in enumerate(names):
        limit = None if index == 0 else entry.limits[index - 1]
        some = [s for s in comparison.standings if len(s.entry.checkpoints) > 1]
        series = [_line(s.entry, _evaluations(s.entry, index)) for s in some]
        title = f"{name} of greedy decisions"
        charts.append(_chart(comparison, f"greedy-{index}", title, "environment steps", series, limit))
    best = max(float(s.entry.final.returns.max()) for s in comparison.standings)
    levels = np.linspace(best - 0.98 * abs(best), best, 60)
    series = [_line(s.entry, _levels(s.entry, levels, comparison.rule)) for s in comparison.standings]
    title = "Steps until half of the seeds have been within limits at a return"
    charts.append({**_chart(comparison, "levels", title, "return", series, None), "log_x": False, "log_y": True})
    for index, name in enumerate(entry.cost_names):
        charts.append(_scatter(comparison, index, name))
    return [chart for chart in charts if chart["series"]]


def _chart(
    comparison: TaskComparison, name: str, title: str, x_label: str, series: list[Fields], limit: float | None
) -> Fields:
    task = TASK_NAMES.get(comparison.task, comparison.task)
    return {
        "id": f"{comparison.task}-{name}",
        "kind": "line",
        "log_x": True,
        "title": title,
        "x_label": x_label,
        "limit": limit,
        "series": [line for line in series if line["x"]],
        "summary": f"{task}: {title} against {x_label}, one line for each method. Figures are in the table.",
    }


def _line(entry: MethodResult, points: list[tuple[float, float, float, float]]) -> Fields:
    columns = [list(column) for column in zip(*points, strict=True)] or [[], [], [], []]
    return {**_series(entry), **dict(zip(("x", "y", "low", "high"), map(_round, columns), strict=True)), "lines": []}


def _series(entry: MethodResult) -> Fields:
    color = ALGO_COLORS.get(entry.algo, 7)
    look = {"color": color, "dash": color % 4, "shape": color % 3}
    return {"name": ALGO_NAMES.get(entry.algo, entry.algo), "algo": entry.algo, **look}


def _training(entry: MethodResult, index: int) -> list[tuple[float, float, float, float]]:
    return [(b.env_steps, float(b.value[index]), float(b.low[index]), float(b.high[index])) for b in entry.curve]


def _evaluations(entry: MethodResult, index: int) -> list[tuple[float, float, float, float]]:
    rows = []
    for point in entry.checkpoints:
        estimate = mean_estimate(point.returns if index == 0 else point.costs[:, index - 1])
        rows.append((point.env_steps, estimate.value, estimate.low, estimate.high))
    return rows


def _levels(entry: MethodResult, levels: np.ndarray, rule: LimitRule) -> list[tuple[float, float, float, float]]:
    steps = steps_by_level(entry, levels, rule)
    return [(level, s, math.nan, math.nan) for level, s in zip(levels.tolist(), steps, strict=True) if math.isfinite(s)]


def _scatter(comparison: TaskComparison, index: int, name: str) -> Fields:
    series = []
    for standing in comparison.standings:
        entry = standing.entry
        values = zip(entry.final.costs[:, index], entry.final.returns, strict=True)
        points = [[*_round([float(x), float(y)]), seed] for (x, y), seed in zip(values, entry.seeds, strict=True)]
        series.append({**_series(entry), "hollow": False, "points": points})
    return {
        "id": f"{comparison.task}-seeds-{index}",
        "kind": "scatter",
        "title": f"Every seed at its end: return against cost {name}",
        "x_label": f"cost {name}",
        "limit": comparison.standings[0].entry.limits[index],
        "series": series,
        "summary": f"Return of every seed against its cost {name}. Figures are in the table.",
    }


def _pooled(pooled: Sequence[Pooled]) -> Fields | None:
    if not pooled:
        return None
    series = []
    for item in pooled:
        color = ALGO_COLORS.get(item.algo, 7)
        bands = {side: _round(list(getattr(item.profile, side))) for side in ("low", "high")}
        series.append(
            {"name": ALGO_NAMES.get(item.algo, item.algo), "algo": item.algo, "color": color, "dash": color % 4,
             "shape": color % 3, "x": _round(LEVELS.tolist()), "y": _round(list(item.profile.value)), **bands,
             "lines": []}
        )  # fmt: skip
    chart = {
        "id": "profile", "kind": "line", "log_x": False, "title": "Performance profile: share of runs above a score",
        "x_label": "score", "limit": None, "series": series, "summary": "Share of runs above each score, by method.",
    }  # fmt: skip
    rows = [
        {"algo": p.algo, "name": ALGO_NAMES.get(p.algo, p.algo), "iqm": _cell(format_estimate(p.iqm))} for p in pooled
    ]
    tasks = ", ".join(TASK_NAMES[name] for name in pooled[0].tasks)
    return {"chart": chart, "rows": rows, "tasks": tasks}


def _round(values: Iterable[float]) -> list[float | None]:
    return round_numbers(np.asarray(list(values), float))
