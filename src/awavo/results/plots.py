"""Figures for papers: PNG and SVG that carry the command, commit, seeds and machine they come from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from awavo.errors import InputError, RunFolderError
from awavo.results.compare import Group, compare_group
from awavo.results.curves import Curve, learning_curve
from awavo.results.outcome import device_text
from awavo.results.store import RunData

__all__ = ["COLORS", "DASHES", "LIMIT_COLOR", "STYLE", "learning_figure", "provenance", "save_figure"]

COLORS = ("#0b62c4", "#c2500c", "#0b7a5c", "#8a3fae", "#8a6300", "#0a7790", "#b0256b", "#4b5766")
DASHES = ("-", "--", ":", "-.")
LIMIT_COLOR = "#b3261e"
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "awavo",
}


def learning_figure(runs: Sequence[RunData], *, per_seed: bool = True, caption: bool = True) -> Figure:
    """Draw return and each cost of runs of one problem: IQM over seeds, 95% band, limits, thin lines for the seeds."""
    if not runs:
        raise InputError("learning_figure got no runs: give at least one.")
    group = compare_group(runs)
    panels = [("return", "Return"), *((f"cost_{name}", f"Cost: {name}") for name in group.limits)]
    with rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(panels), 3.3 if caption else 2.8), layout="constrained", dpi=200)
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (column, title) in zip(axes, panels, strict=True):
            _panel(axis, group, column, title, per_seed)
        if len(group.rows) > 1:
            figure.legend(
                *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(4, len(group.rows))
            )
        if caption:
            lines = textwrap.wrap(_literal(" | ".join(map(provenance, runs))), 58 * len(panels))
            figure.supxlabel("\n".join(lines), fontsize=6.0, color="#55616f", x=0.01, ha="left")
    return figure


def save_figure(figure: Figure, out: str | os.PathLike[str], runs: Sequence[RunData]) -> list[Path]:
    """Write `out`.png and `out`.svg with the runs' provenance in their metadata."""
    base, text = Path(out), " | ".join(map(provenance, runs))
    if base.suffix in (".png", ".svg"):
        base = base.with_suffix("")
    paths = [base.with_name(f"{base.name}.png"), base.with_name(f"{base.name}.svg")]
    try:
        with rc_context(STYLE):
            figure.savefig(paths[0], metadata={"Description": text, "Software": "AWaVO"})
            figure.savefig(paths[1], metadata={"Description": text, "Creator": "AWaVO", "Date": None})
    except OSError as error:
        raise RunFolderError(f"Cannot write '{base}': {error.strerror or error}. Give another path.") from error
    return paths


def provenance(run: RunData) -> str:
    """Command, commit, seeds and machine in one line."""
    commit = str(run.meta.get("commit") or "unknown")[:12]
    command = run.meta.get("command") or "unknown command"
    seeds = run.seeds
    numbers = f"seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}" if seeds else "no seeds"
    text = f"{command}; commit {commit}; {numbers}; {device_text(run)}"
    return "".join(character if character.isprintable() else " " for character in text)


def _panel(axis: Axes, group: Group, column: str, title: str, per_seed: bool) -> None:
    limit = None
    for index, row in enumerate(group.rows):
        curve = learning_curve(row.run, column)
        limit = curve.limit
        _draw(axis, curve, COLORS[index % len(COLORS)], DASHES[index % 4], _literal(row.label), per_seed)
    if limit is not None:
        axis.axhline(limit, color=LIMIT_COLOR, linestyle=(0, (5, 3)), linewidth=1.2)
        corner = axis.get_yaxis_transform()
        style = {"color": LIMIT_COLOR, "ha": "left", "va": "bottom", "fontsize": 8}
        axis.text(0.02, limit, f"limit {limit:g}", transform=corner, **style)
    axis.set_title(_literal(title), loc="left", fontsize=9.5, fontweight="bold")
    axis.set_xlabel("environment steps")
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw(axis: Axes, curve: Curve, color: str, dash: str, label: str, per_seed: bool) -> None:
    if per_seed:
        axis.plot(curve.env_steps, curve.per_seed.T, color=color, linewidth=0.5, alpha=0.35)
    axis.fill_between(curve.env_steps, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
    axis.plot(curve.env_steps, curve.centre, color=color, linestyle=dash, linewidth=1.8, label=label)


def _literal(text: str) -> str:
    """Keep matplotlib from reading dollar signs as mathematics."""
    return text.replace("$", r"\$")
