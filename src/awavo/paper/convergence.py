"""The rate of Theorem 2 from its result files: slopes of log error against log T, against the range in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from awavo.formal.rates import RESOLUTION, RateFit, fit_rate
from awavo.paper.job import ResultRow
from awavo.paper.outputs import FigureFinding, FigureTask, Picture
from awavo.paper.plotting import COLORS
from awavo.types import Fields

__all__ = ["collect"]

# "in the range of Theta(1/sqrt(T)) < C_rate <= Theta(1/T^1.2)": exponents between these.
SLOWEST, FASTEST = -0.5, -1.2
ERRORS = {"gap": "gap to the optimum", "violation": "largest violation"}


def collect(task: FigureTask) -> FigureFinding:
    """Slopes with bootstrap intervals over problems and seeds."""
    rows = _merge(task.rows)
    fits = {(row["rate"], kind): fit_rate(row["horizons"], np.array(row[kind])) for row in rows for kind in ERRORS}
    text = [_sentence(rate, kind, fit) for (rate, kind), fit in fits.items()]
    text.append(
        "Measured on random problems with 8 states, 3 actions and 2 binding constraints, whose optimum is known by "
        "linear programming. Learning curves of deep networks end at a noise floor of their own and say nothing about "
        "the exponent, so they are not used here. Two decades of T resolve an exponent to about "
        f"{RESOLUTION:g}; the range is widened by that."
    )
    data = [
        {"rate": row["rate"], "error": kind, "horizon": horizon, "problem": p, "seed": seed,
         "value": float(row[kind][p][s][t])}
        for row in rows for kind in ERRORS for p in range(len(row[kind]))
        for s, seed in enumerate(row["seed_numbers"]) for t, horizon in enumerate(row["horizons"])
    ]  # fmt: skip
    pictures = [Picture("rates", (7.0, 3.3), lambda figure: _draw(figure, rows, fits))]
    return FigureFinding("\n\n".join(text), data, _table(rows, fits), pictures)


def _merge(rows: Sequence[ResultRow]) -> list[Fields]:
    """Blocks of seeds of the same step size, put together."""
    merged: dict[float, Fields] = {}
    for row in rows:
        known = merged.get(row["rate"])
        if known is None:
            merged[row["rate"]] = dict(row)
            continue
        known["seed_numbers"] = [*known["seed_numbers"], *row["seed_numbers"]]
        for kind in ERRORS:
            known[kind] = [[*a, *b] for a, b in zip(known[kind], row[kind], strict=True)]
    return list(merged.values())


def _verdict(fit: RateFit) -> str:
    """Where the interval of the slope lies against the paper's range, widened by what two decades can resolve."""
    slow, fast = SLOWEST + RESOLUTION, FASTEST - RESOLUTION
    if fit.slope_high <= slow and fit.slope_low >= fast:
        return "confirmed"
    return "not confirmed" if fit.slope_low > slow or fit.slope_high < fast else "undecided"


def _sentence(rate: float, kind: str, fit: RateFit) -> str:
    span = f"{fit.slope:.3f} [{fit.slope_low:.3f}, {fit.slope_high:.3f}]"
    return (
        f"Step size {rate:g}/sqrt(T): the {ERRORS[kind]} falls with exponent {span}; the paper's range is from "
        f"{SLOWEST:g} to {FASTEST:g}: **{_verdict(fit)}**."
    )


def _table(rows: Sequence[ResultRow], fits: Mapping[tuple[float, str], RateFit]) -> str:
    lines = ["| step size | T | error | exponent | floor | at the largest T | against the paper |", "|" + "---|" * 7]
    spans = {row["rate"]: f"{row['horizons'][0]:,} to {row['horizons'][-1]:,}" for row in rows}
    for (rate, kind), fit in fits.items():
        slope = f"{fit.slope:.3f} [{fit.slope_low:.3f}, {fit.slope_high:.3f}]"
        floor = f"{fit.floor:.4f} [{fit.floor_low:.4f}, {fit.floor_high:.4f}]"
        cells = [f"{rate:g}/sqrt(T)", spans[rate], ERRORS[kind], slope, floor, f"{fit.means[-1]:.4f}", _verdict(fit)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _draw(figure: Figure, rows: Sequence[ResultRow], fits: Mapping[tuple[float, str], RateFit]) -> None:
    axes = figure.subplots(1, 2)
    for axis, (kind, title) in zip(axes, ERRORS.items(), strict=True):
        for number, row in enumerate(rows):
            horizons, means = np.array(row["horizons"], float), fits[row["rate"], kind].means
            spread = np.quantile(np.array(row[kind]).reshape(-1, len(horizons)), (0.25, 0.75), axis=0)
            color = COLORS[number]
            axis.fill_between(horizons, *np.maximum(spread, 1e-4), color=color, alpha=0.15, linewidth=0)
            axis.plot(horizons, np.maximum(means, 1e-4), "o-", color=color, ms=3, label=f"step {row['rate']:g}/√T")
            start = float(means[0])
            for exponent, dash in ((SLOWEST, "--"), (FASTEST, ":")):
                axis.plot(horizons, start * (horizons / horizons[0]) ** exponent, dash, color=color, lw=0.8)
        axis.set(xscale="log", yscale="log", xlabel="T", title=title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
