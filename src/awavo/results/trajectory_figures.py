"""Figures of an inferred trajectory: space and time, hidden components with bands, error and time against size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from awavo.results.trajectory_scores import Z90

__all__ = ["components_figure", "scaling_figure", "space_time_figure"]

SITES_SHOWN = 200


def _new(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", figsize=size)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=rows > 1)


def space_time_figure(posterior: Mapping[str, np.ndarray]) -> Any:
    """Truth, inference and error where the truth is known; else inference and deviation. Ticks mark hidden sites."""
    times, shown = posterior["times"], slice(0, SITES_SHOWN)
    mean, hidden = posterior["mean"][:, shown], posterior["hidden"][shown]
    panels = [("inference", mean, "viridis", None)]
    if "truth" in posterior:
        truth = posterior["truth"][:, shown]
        panels = [("truth", truth, "viridis", None), *panels, ("error", mean - truth, "RdBu_r", 3.0)]
    else:
        panels.append(("deviation", posterior["std"][:, shown], "magma", None))
    figure, axes = _new(1, len(panels), (3.6 * len(panels), 4.2))
    limits = (float(np.min(panels[0][1])), float(np.max(panels[0][1])))
    for axis, (title, values, colours, symmetric) in zip(axes[0], panels, strict=True):
        low, high = (-symmetric, symmetric) if symmetric else limits if title != "deviation" else (None, None)
        extent = (times[0], times[-1], mean.shape[1], 0)
        image = axis.imshow(values.T, aspect="auto", cmap=colours, vmin=low, vmax=high, extent=extent)
        axis.set(title=title, xlabel="time")
        axis.plot(np.full(int(hidden.sum()), times[0]), np.flatnonzero(hidden) + 0.5, "k_", ms=4, clip_on=False)
        figure.colorbar(image, ax=axis, shrink=0.8)
    axes[0][0].set_ylabel("site (marks: never observed)")
    return figure


def components_figure(posterior: Mapping[str, np.ndarray], count: int = 6) -> Any:
    """Hidden components over time with their 90% bands, and the truth where it is known."""
    places = np.flatnonzero(posterior["hidden"])
    places = places if len(places) else np.arange(posterior["mean"].shape[1])
    places = places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]
    rows = -(-len(places) // 2)
    figure, axes = _new(rows, 2, (9, 2.0 * rows))
    for axis, place in zip(axes.flat, places, strict=False):
        mean, std = posterior["mean"][:, place], posterior["std"][:, place]
        axis.fill_between(posterior["times"], mean - Z90 * std, mean + Z90 * std, alpha=0.3, label="90% interval")
        axis.plot(posterior["times"], mean, label="inference")
        if "truth" in posterior:
            axis.plot(posterior["times"], posterior["truth"][:, place], "k--", lw=1, label="truth")
        axis.set_ylabel(f"$x_{{{place}}}$")
    for axis in axes[-1]:
        axis.set_xlabel("time")
    axes[0][0].legend(fontsize=7, ncols=3)
    return figure


def scaling_figure(summaries: Sequence[Mapping[str, Any]]) -> Any:
    """RMSE of the hidden components and solving time against the number of states."""
    figure, axes = _new(1, 2, (9, 3.2))
    sizes = np.array([s["states"] for s in summaries])
    known = [(s["states"], s["scores"]["rmse"]) for s in summaries if s.get("scores")]
    if known:
        axes[0][0].semilogx(*zip(*known, strict=True), "o")
    axes[0][0].set(xlabel="states", ylabel="RMSE, never observed", ylim=(0, None))
    axes[0][1].loglog(sizes, [s["solve_s"] for s in summaries], "o")
    axes[0][1].set(xlabel="states", ylabel="seconds, without compilation")
    return figure
