"""Figures 8 and 9 from their result files: error and time on Lorenz-96 against the number of states."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.job import ResultRow
from awavo.paper.outputs import FigureFinding, FigureTask, Picture, merge_blocks
from awavo.paper.plotting import COLORS
from awavo.results.outcome import format_estimate
from awavo.results.statistics import mean_estimate
from awavo.results.trajectory_scores import Z90

__all__ = ["collect"]

PAPER_SECONDS, PAPER_STATES = 400.0, 1000
SCORES = ("rmse", "coverage90", "lost", "solve_s", "median_absolute_error")


def collect(task: FigureTask) -> FigureFinding:
    """Error over the states never observed and seconds, by size."""
    rows = sorted(merge_blocks(task.rows, ("states",), (*SCORES, "seed_numbers")), key=lambda row: row["states"])
    slope, low, high = _trend(rows, "rmse")
    flat = low <= 0 <= high
    text = [
        f"**Error against size.** From {rows[0]['states']:,} to {rows[-1]['states']:,} states the RMSE over states "
        f"never observed changes with exponent {slope:.3f} [{low:.3f}, {high:.3f}] of the size. The paper says that it "
        f"stays the same: **{'confirmed' if flat else 'not confirmed'}**"
        + ("." if flat else f" (it {'grows' if slope > 0 else 'falls'})."),
        _time_sentence(rows),
    ]
    data = [
        {
            "states": row["states"],
            "seed": seed,
            **{name: row[name][i] for name in SCORES},
            "compile_s": row["compile_s"],
        }
        for row in rows
        for i, seed in enumerate(row["seed_numbers"])
    ]
    pictures = [
        Picture("trajectories", (9.6, 2.8), lambda figure: _draw_examples(figure, rows)),
        Picture("scaling", (7.0, 3.0), lambda figure: _draw_scaling(figure, rows)),
    ]
    return FigureFinding("\n\n".join(text), data, _table(rows), pictures)


def _trend(rows: Sequence[ResultRow], name: str) -> tuple[float, float, float]:
    """Exponent of a score against the size, with a 95% bootstrap interval over seeds within each size."""
    sizes = np.log([row["states"] for row in rows])
    if len(rows) < 2:
        return math.nan, -math.inf, math.inf
    rng = np.random.default_rng(0)
    values = [np.array(row[name]) for row in rows]

    def fit(samples: list[np.ndarray]) -> float:
        return float(np.polyfit(sizes, np.log([sample.mean() for sample in samples]), 1)[0])

    draws = [fit([v[rng.integers(0, len(v), len(v))] for v in values]) for _ in range(1000)]
    low, high = np.quantile(draws, (0.025, 0.975))
    return fit(values), float(low), float(high)


def _time_sentence(rows: Sequence[ResultRow]) -> str:
    row = next((row for row in rows if row["states"] == PAPER_STATES), None)
    if row is None:
        return f"**Time.** {PAPER_STATES:,} states were not run: the paper's 400 s cannot be judged."
    mean = mean_estimate(row["solve_s"])
    worst = max(row["solve_s"]) + (row["compile_s"] or 0.0)
    verdict = "confirmed" if worst < PAPER_SECONDS else "not confirmed"
    return (
        f"**Time.** {PAPER_STATES:,} states take {format_estimate(mean)} s, at most {worst:.0f} s with compilation; "
        f"the paper says less than {PAPER_SECONDS:.0f} s: **{verdict}**. "
        "Its noise, times and machine are not published."
    )


def _table(rows: Sequence[ResultRow]) -> str:
    lines = ["| states | seeds | RMSE, never observed | inside 90% intervals | components lost | s | to compile, s |"]
    lines.append("|" + "---|" * 7)
    for row in rows:
        cells = [f"{row['states']:,}", str(len(row["seed_numbers"]))]
        cells += [format_estimate(mean_estimate(row[name])) for name in ("rmse", "coverage90", "lost", "solve_s")]
        lines.append("| " + " | ".join([*cells, f"{row['compile_s']:.0f}"]) + " |")
    return "\n".join(lines)


def _draw_examples(figure: Figure, rows: Sequence[ResultRow]) -> None:
    chosen = [rows[0], rows[len(rows) // 2], rows[-1]] if len(rows) > 2 else list(rows)
    axes = figure.subplots(1, len(chosen), squeeze=False, sharey=True)[0]
    for axis, row in zip(axes, chosen, strict=True):
        example = {name: np.array(value) for name, value in row["example"].items()}
        times = np.arange(len(example["mean"]))
        half = Z90 * example["std"]
        axis.fill_between(
            times, example["mean"] - half, example["mean"] + half, color=COLORS[0], alpha=0.25, linewidth=0
        )
        axis.plot(times, example["mean"], color=COLORS[0], label="inferred, 90%")
        axis.plot(times, example["truth"], "--", color="#16202c", linewidth=1.0, label="truth")
        axis.set(title=f"{row['states']:,} states, site {example['site']}, never observed", xlabel="observation time")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


def _draw_scaling(figure: Figure, rows: Sequence[ResultRow]) -> None:
    axes = figure.subplots(1, 2)
    sizes = [row["states"] for row in rows]
    for axis, name, title in zip(
        axes, ("rmse", "solve_s"), ("RMSE, never observed", "s, without compiling"), strict=True
    ):
        means = [mean_estimate(row[name]) for row in rows]
        for row in rows:
            axis.plot([row["states"]] * len(row[name]), row[name], ".", color=COLORS[0], alpha=0.35)
        gaps = np.array([[e.value - e.low, e.high - e.value] for e in means]).T
        axis.errorbar(sizes, [e.value for e in means], np.nan_to_num(gaps), fmt="o-", color=COLORS[0], capsize=3)
        axis.set(xscale="log", xlabel="states", title=title)
    axes[0].set_ylim(bottom=0)
    axes[1].set_yscale("log")
    if max(sizes) >= PAPER_STATES:
        axes[1].plot([PAPER_STATES], [PAPER_SECONDS], "v", color=COLORS[1], label="paper: less than")
        axes[1].legend()
