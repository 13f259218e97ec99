"""Figure 7 from its result files: the influence of the external force along the course, and whether it adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.job import ResultRow
from awavo.paper.outputs import FigureFinding, FigureTask, Picture, merge_blocks
from awavo.paper.plotting import COLORS
from awavo.results.outcome import format_estimate
from awavo.results.statistics import mean_estimate

__all__ = ["collect"]

PAPER = {"FT1": 0.20, "FT2": 0.18, "FT3": 0.40}
FORCE, RS02 = 0, 2
Rows = Mapping[tuple[str, str], ResultRow]


def collect(task: FigureTask) -> FigureFinding:
    """Influence p(tau | L0) at the reference states of the three tasks, and the gap FT3 - (FT1 + FT2) at RS 02."""
    blocks = merge_blocks(task.rows, ("scene", "flight"), ("seed_numbers", "at_marks", "influence", "force_n"))
    rows: Rows = {(row["scene"], row["flight"]): row for row in blocks}
    scenes = list(dict.fromkeys(scene for scene, _ in rows))
    text = [_sentence(scene, rows) for scene in scenes if all((scene, flight) in rows for flight in PAPER)]
    pictures = [Picture("influence", (9.6, 3.4), lambda figure: _draw(figure, rows))]
    return FigureFinding("\n\n".join(text), _data(rows), _table(rows), pictures)


def _at_mark(row: ResultRow, mark: int, factor: int = FORCE) -> np.ndarray:
    """Per-seed influence at a reference state."""
    index = row["marks"].index(mark)
    return np.array([np.nan if seed[index][factor] is None else seed[index][factor] for seed in row["at_marks"]])


def _sentence(scene: str, rows: Rows) -> str:
    parts = {flight: _at_mark(rows[scene, flight], RS02) for flight in PAPER}
    gap = mean_estimate(parts["FT3"] - parts["FT1"] - parts["FT2"])
    listed = ", ".join(
        f"{flight} {format_estimate(mean_estimate(v))} ({PAPER[flight]:.2f})" for flight, v in parts.items()
    )
    adds = gap.low <= 0 <= gap.high
    verdict = "additive within the interval: confirmed" if adds else "not additive: not confirmed"
    match = [f for f, v in parts.items() if mean_estimate(v).low <= PAPER[f] <= mean_estimate(v).high]
    values = f"its values lie in our intervals for {', '.join(match)}" if match else "none of its values lies in ours"
    where = "The task as it is" if scene == "task" else scene[0].upper() + scene[1:]
    return (
        f"**{where}.** Influence of the external force at RS 02, in brackets the paper's: {listed}. FT3 less FT1 + "
        f"FT2: {format_estimate(gap)} (paper: 0.02), {verdict}; {values}. Flights, wind and obstacles of the paper are "
        "not published, so the values themselves cannot be expected to agree."
    )


def _table(rows: Rows) -> str:
    marks = next(iter(rows.values()))["marks"]
    lines = ["| scene | task | factor | " + " | ".join(f"RS {mark:02d}" for mark in marks) + " |"]
    lines.append("|" + "---|" * (len(marks) + 3))
    for (scene, flight), row in rows.items():
        for factor, name in enumerate(("force L0", "obstacles L1")):
            cells = []
            for mark in marks:
                values = _at_mark(row, mark, factor)
                values = values[np.isfinite(values)]
                cells.append(format_estimate(mean_estimate(values)) if len(values) > 1 else "–")
            lines.append(f"| {scene} | {flight} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _data(rows: Rows) -> list[ResultRow]:
    found = []
    for (scene, flight), row in rows.items():
        for number, seed in enumerate(row["seed_numbers"]):
            for mark in row["marks"]:
                for factor, name in enumerate(("force", "obstacles")):
                    value = float(_at_mark(row, mark, factor)[number])
                    found.append(
                        {"scene": scene, "task": flight, "seed": seed, "reference_state": mark, "factor": name,
                         "influence": None if np.isnan(value) else value}
                    )  # fmt: skip
    return found


def _draw(figure: Figure, rows: Rows) -> None:
    force, course, marks = figure.subplots(1, 3)
    scene = next(iter(rows))[0]
    for number, flight in enumerate(PAPER):
        row = rows.get((scene, flight))
        if row is None:
            continue
        seconds = np.array(row["seconds"])
        pushes, influence = np.array(row["force_n"]), np.array(row["influence"])[..., FORCE]
        _band(force, seconds, pushes, COLORS[number], flight)
        _band(course, seconds, influence, COLORS[number], flight)
        means = [mean_estimate(_finite(_at_mark(row, mark))) if len(_finite(_at_mark(row, mark))) > 1 else None
                 for mark in row["marks"]]  # fmt: skip
        there = [(mark, e) for mark, e in zip(row["marks"], means, strict=True) if e is not None]
        marks.errorbar(
            [mark + 0.12 * (number - 1) for mark, _ in there], [e.value for _, e in there],
            np.array([[e.value - e.low, e.high - e.value] for _, e in there]).T, fmt="o", color=COLORS[number],
            capsize=3, markersize=4,
        )  # fmt: skip
        marks.plot([RS02 + 0.12 * (number - 1)], [PAPER[flight]], "x", color=COLORS[number], markersize=8)
    force.set(title="external force", xlabel="s", ylabel="N")
    course.set(title="its influence p(τ|L0)", xlabel="s")
    marks.set(title="at the reference states (× paper)", xlabel="RS")
    figure.legend(*course.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _band(axis: Any, x: np.ndarray, values: Sequence[Any] | np.ndarray, color: str, label: str) -> None:
    """The mean over seeds, and all of them between the smallest and the largest."""
    table = np.asarray(values)
    axis.fill_between(x, table.min(0), table.max(0), color=color, alpha=0.15, linewidth=0)
    axis.plot(x, table.mean(0), color=color, label=label, linewidth=1.6)
