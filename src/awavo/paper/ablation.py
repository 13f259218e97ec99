"""The ablation table from its result files: AWaVO with one part changed at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.budgets import tasks_table
from awavo.paper.comparison import Standing, compare_task, difference
from awavo.paper.learning_text import bounded_steps
from awavo.paper.method_results import load_method_results
from awavo.paper.outputs import FigureFinding, FigureTask, Picture
from awavo.paper.plotting import COLORS
from awavo.results.outcome import format_estimate
from awavo.results.statistics import probability_of_improvement
from awavo.types import Fields

__all__ = ["WHOLE", "collect"]

WHOLE = "as it is"
_NOT_SHOWN = "That every part is needed is not shown here."


def collect(task: FigureTask) -> FigureFinding:
    """Every variant against the method as it is, task by task."""
    entries, notes = load_method_results(task.results, task.jobs)
    facts = tasks_table()
    order = list(dict.fromkeys((job.settings["task"], job.settings["variant"]) for job in task.jobs))
    names = dict.fromkeys([*(name for name, _ in order), *(entry.task for entry in entries)])
    texts, tables, data, pictures = [], [], [], []
    for name in names:
        own = [entry for entry in entries if entry.task == name]
        if not own:
            continue
        standings = compare_task(own, facts[name], task.rule).standings
        ranks = {variant: rank for rank, (of, variant) in enumerate(order) if of == name}
        standings.sort(key=lambda s, ranks=ranks: ranks.get(s.entry.variant, len(order)))
        whole = next((s for s in standings if s.entry.variant == WHOLE), None)
        texts.append(_text(standings, whole))
        tables.append(f"**{name}**\n\n{_table(standings, whole)}")
        data += _rows(standings)
        pictures.append(Picture(name, (8.4, 3.2), lambda figure, standings=standings: _draw(figure, standings)))
    texts.append("The paper has no ablation; it says that each part is needed.")
    return FigureFinding(" ".join(texts), data, "\n\n".join(tables), pictures, notes)


def _rows(standings: Sequence[Standing]) -> list[Fields]:
    return [
        {"task": s.entry.task, "variant": s.entry.variant, "seed": seed, "return": float(s.entry.final.returns[i]),
         **{f"cost_{n}": float(s.entry.final.costs[i, k]) for k, n in enumerate(s.entry.cost_names)},
         "good_at": float(s.good_at[i]) if math.isfinite(s.good_at[i]) else None}
        for s in standings for i, seed in enumerate(s.entry.seeds)
    ]  # fmt: skip


def _text(standings: Sequence[Standing], whole: Standing | None) -> str:
    if whole is None:
        return "AWaVO as it is was not run: nothing to compare with."
    worse, better, slower, outside, same = [], [], [], [], []
    for standing in standings:
        if standing is whole:
            continue
        gap = difference(standing.entry.final.returns, whole.entry.final.returns)
        seeds = f"{standing.feasible_seeds} of {len(standing.entry.seeds)} seeds within limits"
        line = f"{standing.entry.variant} (return {format_estimate(gap)}, {seeds})"
        if gap.high < 0:
            worse.append(line)
        elif gap.low > 0:
            better.append(line)
        elif whole.is_within and not standing.is_within:
            outside.append(line)
        elif probability_of_improvement(-whole.good_at, -standing.good_at).low > 0.5:
            slower.append(f"{line[:-1]}, {bounded_steps(standing)} steps until good against {bounded_steps(whole)})")
        else:
            same.append(line)
    first = whole.entry
    parts = [
        f"AWaVO on {first.task} after {first.env_steps:,} steps: return {format_estimate(whole.mean)}, "
        f"{whole.feasible_seeds} of {len(first.seeds)} seeds within limits."
    ]
    if len(standings) == 1:
        return f"{parts[0]} No variant has results yet."
    if not whole.is_within:
        parts.append("It does not keep its limits itself at this budget, so returns alone are compared.")
    parts.append(f"Worse without doubt: {'; '.join(worse)}." if worse else "No change is worse without doubt.")
    parts += [f"A higher return without doubt: {'; '.join(better)}."] if better else []
    parts += [f"As good in the end, but later without doubt: {'; '.join(slower)}."] if slower else []
    if outside:
        parts.append(f"No other return that can be told, but not every seed within limits: {'; '.join(outside)}.")
    parts += [f"No difference that these seeds can show: {'; '.join(same)}."] if same else []
    parts += [] if worse or slower else [_NOT_SHOWN]
    return " ".join(parts)


def _table(standings: Sequence[Standing], whole: Standing | None) -> str:
    head = ["variant", "seeds within", "return", "difference to as it is", "costs", "steps to within limits and good"]
    head.append("s of training")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for s in standings:
        costs = ", ".join(map(format_estimate, s.costs))
        gap = ""
        if whole is not None and s is not whole:
            gap = format_estimate(difference(s.entry.final.returns, whole.entry.final.returns))
        cells = [s.entry.variant, f"{s.feasible_seeds} of {len(s.entry.seeds)}", format_estimate(s.mean), gap, costs]
        lines.append("| " + " | ".join([*cells, bounded_steps(s), f"{s.entry.wall_s:,.0f}"]) + " |")
    return "\n".join(lines)


def _draw(figure: Figure, standings: Sequence[Standing]) -> None:
    names = standings[0].entry.cost_names
    axes = figure.subplots(1, 1 + len(names), sharey=True)
    for place, s in enumerate(reversed(standings)):
        columns: list[tuple[np.ndarray, Any]] = [(s.entry.final.returns, s.mean)]
        columns += [(s.entry.final.costs[:, k], cost) for k, cost in enumerate(s.costs)]
        for axis, (seeds, mean) in zip(axes, columns, strict=True):
            axis.plot(seeds, np.full(len(seeds), place), ".", color=COLORS[0], alpha=0.35)
            axis.errorbar(
                [mean.value], [place], xerr=np.nan_to_num([[mean.value - mean.low], [mean.high - mean.value]]), fmt="o",
                color=COLORS[0], capsize=3,
            )  # fmt: skip
    axes[0].set_yticks(range(len(standings)), [s.entry.variant for s in reversed(standings)])
    axes[0].set_title("return")
    for axis, name, limit in zip(axes[1:], names, standings[0].entry.limits, strict=True):
        axis.axvline(limit, color="#b3261e", linestyle=(0, (5, 3)), linewidth=1.2)
        axis.set_title(f"cost: {name}")
