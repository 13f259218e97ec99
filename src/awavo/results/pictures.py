"""Pictures of a recorded path in space, drawn by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from awavo.results.video import SHOTS, Shot
from awavo.types import Fields

__all__ = ["film_path", "save_picture"]


def _scene(record: Fields) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    path = np.asarray(record["path"]["position"])
    target = np.asarray(record["path"]["target"])
    figure = Figure(figsize=(7.2, 4.8))
    axes: Any = figure.add_axes((0.02, 0.02, 0.92, 0.9), projection="3d")
    angles = np.linspace(0, 2 * np.pi, 13)
    low, high = np.minimum(path.min(0), target.min(0)) - 0.8, np.maximum(path.max(0), target.max(0)) + 0.8
    for c in record.get("cylinders", []):
        if low[0] < c["x"] < high[0] and low[1] < c["y"] < high[1]:
            x, y = c["x"] + c["radius"] * np.cos(angles), c["y"] + c["radius"] * np.sin(angles)
            heights = np.array([0.0, c["height"]])
            axes.plot_surface(
                np.tile(x, (2, 1)), np.tile(y, (2, 1)), np.tile(heights[:, None], (1, 13)), alpha=0.3, color="0.5"
            )
    tall = np.linspace(0, np.pi, 7)
    for s in record.get("spheres", []):
        x = s["centre"][0] + s["radius"] * np.outer(np.cos(angles), np.sin(tall))
        y = s["centre"][1] + s["radius"] * np.outer(np.sin(angles), np.sin(tall))
        z = s["centre"][2] + s["radius"] * np.outer(np.ones_like(angles), np.cos(tall))
        axes.plot_surface(x, y, z, alpha=0.3, color="tab:red")
    axes.plot(*target.T, ls="--", lw=0.8, color="0.4")
    axes.set(xlabel="x (m)", ylabel="y (m)", zlabel="z (m)", zlim=(0, max(high[2], 1.0)))
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_box_aspect(np.maximum([high[0] - low[0], high[1] - low[1], max(high[2], 1.0)], 0.1), zoom=1.2)
    axes.locator_params(nbins=5)
    axes.locator_params(axis="z", nbins=3)
    costs = ", ".join(f"{k} {v:.2f} (limit {record['limits'][k]:g})" for k, v in record["costs"].items())
    axes.set_title(f"{record['task']}, seed {record['seed']}: return {record['return']:.1f}, {costs}", fontsize=9)
    return figure, axes


def save_picture(record: Fields, out: Path) -> Path:
    """Write a PNG of the whole path."""
    figure, axes = _scene(record)
    path = np.asarray(record["path"]["position"])
    axes.plot(*path.T, lw=1.5, color="tab:blue")
    axes.scatter(*path[-1], s=24, color="tab:blue")
    figure.savefig(out, dpi=120)
    return out


def film_path(record: Fields) -> list[Shot]:
    """Pictures of the path as it grows, each of the moment before its step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, axes = _scene(record)
    axes.set_title("")
    figure.set_dpi(75)
    canvas = FigureCanvasAgg(figure)
    path = np.asarray(record["path"]["position"])
    stops = np.unique(np.linspace(0, len(path) - 1, min(SHOTS, len(path))).astype(int))
    (trace,) = axes.plot([], [], [], lw=1.5, color="tab:blue")
    (dot,) = axes.plot([], [], [], "o", ms=5, color="tab:blue")
    shots = []
    for i in stops.tolist():
        trace.set_data_3d(*path[: i + 1].T)
        dot.set_data_3d(*path[i : i + 1].T)
        canvas.draw()
        shots.append(Shot(i, np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return shots
