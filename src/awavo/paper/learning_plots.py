"""Figure 4: learning curves; and beside it, how soon methods are good, and their scores pooled over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from awavo.paper.comparison import LEVELS, Pooled, Standing, TaskComparison, steps_by_level
from awavo.paper.names import ALGO_COLORS, ALGO_NAMES, TASK_NAMES
from awavo.paper.plotting import COLORS, DASHES, LIMIT_COLOR

__all__ = ["draw_curves", "draw_scores"]


def draw_curves(figure: Figure, comparisons: Sequence[TaskComparison]) -> None:
    """One column for each task: return and costs of training episodes, mean over seeds with its 95% interval."""
    rows = 1 + max(len(c.standings[0].entry.limits) for c in comparisons)
    axes = figure.subplots(rows, len(comparisons), squeeze=False)
    for column, comparison in enumerate(comparisons):
        entry = comparison.standings[0].entry
        labels = ["return", *(f"cost: {name}" for name in entry.cost_names)]
        for row, axis in enumerate(axes[:, column]):
            if row >= len(labels):
                axis.set_axis_off()
                continue
            for standing in comparison.standings:
                _curve(axis, standing, row)
            if row == 0:
                axis.set_title(TASK_NAMES.get(comparison.task, comparison.task))
            else:
                axis.axhline(entry.limits[row - 1], color=LIMIT_COLOR, linestyle=(0, (5, 3)), linewidth=1.2)
            axis.set(xscale="log", xlabel="environment steps", ylabel=labels[row])
            _label_steps(axis)
    handles = {line.get_label(): line for axis in axes.ravel() for line in axis.get_lines() if _named(line)}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=min(8, len(handles)))


def draw_scores(figure: Figure, comparisons: Sequence[TaskComparison], pooled: Sequence[Pooled]) -> None:
    """Median steps until a seed is within limits at a level of return; IQM and profile of pooled scores."""
    axes = figure.subplots(1, len(comparisons) + (2 if pooled else 0), squeeze=False)[0]
    for axis, comparison in zip(axes, comparisons, strict=False):
        best = max(float(s.entry.final.returns.max()) for s in comparison.standings)
        lowest = min(
            float(p.returns.min()) for s in comparison.standings for p in [*s.entry.checkpoints, s.entry.final]
        )
        levels = np.linspace(lowest, best, 60)
        for standing in comparison.standings:
            steps = np.array(steps_by_level(standing.entry, levels, comparison.rule))
            steps[~np.isfinite(steps)] = np.nan
            axis.plot(steps, levels, **_look(standing.entry.algo))
        axis.axhline(comparison.threshold, color="#55616f", linestyle=":", linewidth=1.0)
        name = TASK_NAMES.get(comparison.task, comparison.task)
        axis.set(xscale="log", xlabel="steps of half of the seeds", ylabel="return within limits", title=name)
        _label_steps(axis)
    if pooled:
        _iqm_bars(axes[-2], pooled)
        for item in pooled:
            axes[-1].fill_between(
                LEVELS, item.profile.low, item.profile.high, color=_color(item.algo), alpha=0.15, lw=0
            )
            axes[-1].plot(LEVELS, item.profile.value, **_look(item.algo))
        axes[-1].set(xlabel="score", ylabel="share of runs above it", title="Profile")
    handles = {line.get_label(): line for axis in axes for line in axis.get_lines() if _named(line)}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=min(8, len(handles)))


def _iqm_bars(axis: Axes, pooled: Sequence[Pooled]) -> None:
    for place, item in enumerate(reversed(pooled)):
        iqm = item.iqm
        if math.isfinite(iqm.low):
            axis.plot([iqm.low, iqm.high], [place, place], color=_color(item.algo), linewidth=6, alpha=0.35)
        axis.plot([iqm.value], [place], "o", color=_color(item.algo))
    axis.set_yticks(range(len(pooled)), [ALGO_NAMES.get(p.algo, p.algo) for p in reversed(pooled)])
    axis.set(xlabel="score", title="IQM")


def _curve(axis: Axes, standing: Standing, row: int) -> None:
    curve = standing.entry.curve
    if not curve:
        return
    steps = [band.env_steps for band in curve]
    low, high = ([getattr(band, side)[row] for band in curve] for side in ("low", "high"))
    axis.fill_between(steps, low, high, color=_color(standing.entry.algo), alpha=0.18, linewidth=0)
    values = [band.value[row] for band in curve]
    axis.plot(steps, values, **_look(standing.entry.algo))
    if len(curve) == 1:  # a line of one point cannot be seen
        axis.vlines(steps, low, high, color=_color(standing.entry.algo), linewidth=1.2)
        axis.plot(steps, values, "o", color=_color(standing.entry.algo), markersize=4)


def _label_steps(axis: Axes) -> None:
    """1k, 10k, 1M; between them only where less than a decade is shown."""
    low, high = axis.get_xlim()
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    if high > 10 * low:
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.xaxis.set_minor_formatter(EngFormatter(sep=""))


def _look(algo: str) -> dict:
    index = ALGO_COLORS.get(algo, 7)
    return {
        "color": _color(algo),
        "linestyle": DASHES[index % 4],
        "label": ALGO_NAMES.get(algo, algo),
        "linewidth": 1.6,
    }


def _color(algo: str) -> str:
    return COLORS[ALGO_COLORS.get(algo, 7)]


def _named(line) -> bool:
    return not str(line.get_label()).startswith("_")
