"""The path of a recorded episode in the report page: three dimensions seen from a corner, drawn as SVG.

The record is the run folder's `flight.json` (written by `awavo render RUN`). It is somebody's file: every number is
checked, and every text escaped.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike

from awavo.errors import RunFolderError
from awavo.results.compare import Comparison
from awavo.results.page import Section
from awavo.types import Fields

__all__ = ["draw_flight", "flight_section", "read_flight"]

WIDTH, HEIGHT, MARGIN = 760, 460, 24
TURN, LEAN = math.radians(-58), math.radians(32)
MAX_POINTS = 1500
LARGEST = 1e6  # metres, and newtons
# What reading somebody's record raises where a value is not what it should be.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)


def read_flight(path: Path) -> Fields:
    """Read a record and check that its path is one."""
    try:
        record = json.loads(path.read_text())
        points = np.asarray(record["path"]["position"], float)
        target = np.asarray(record["path"]["target"], float)
        force = np.asarray(record["path"]["force"], float)
    except (OSError, *MALFORMED) as error:
        raise RunFolderError(f"'{path}' is not a recorded episode ({error}): run `awavo render` again.") from error
    whole = points.ndim == 2 and points.shape[1] == 3 and len(points) and points.shape == target.shape == force.shape
    if not whole or not (np.abs([points, target, force]) < LARGEST).all():  # NaN compares as false
        raise RunFolderError(f"'{path}' holds no path of finite points [T, 3]: run `awavo render` again.")
    return record


def _project(points: ArrayLike) -> np.ndarray:
    """Look from a corner: turn about z, then lean; x to the right, y down the page."""
    x, y, z = np.moveaxis(np.asarray(points, float), -1, 0)
    u = math.cos(TURN) * x - math.sin(TURN) * y
    depth = math.sin(TURN) * x + math.cos(TURN) * y
    return np.stack([u, -(z * math.cos(LEAN) + depth * math.sin(LEAN))], -1)


def draw_flight(record: Fields) -> Markup:
    """Draw floor, obstacles, reference or goals, the path (its thickness growing with the external force) and marks."""
    path = np.asarray(record["path"]["position"], float)
    target = np.asarray(record["path"]["target"], float)
    force = np.linalg.norm(np.asarray(record["path"]["force"], float), axis=-1)
    step = max(1, len(path) // MAX_POINTS)
    path, target, force = path[::step], target[::step], force[::step]
    low, high = np.minimum(path.min(0), target.min(0)) - 0.6, np.maximum(path.max(0), target.max(0)) + 0.6
    corners = [[x, y, 0.0] for x, y in ((low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1]))]
    seen = _project([*corners, [low[0], high[1], high[2]], [high[0], high[1], high[2]], *path])
    size = np.ptp(seen, 0)
    scale = min((WIDTH - 2 * MARGIN) / size[0], (HEIGHT - 2 * MARGIN) / size[1])

    def place(points: ArrayLike) -> np.ndarray:
        return MARGIN + scale * (_project(points) - seen.min(0))

    def line(points: np.ndarray, style: str) -> str:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return f'<polyline points="{text}" {style}/>'

    faint = 'fill="currentColor" fill-opacity="0.04" stroke="currentColor" stroke-opacity="0.3"'
    parts = [line(place([*corners, corners[0]]), faint)]
    angles = np.linspace(0, 2 * np.pi, 25)
    ring = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1)
    inside = [
        c
        for c in record.get("cylinders", [])
        if low[0] - 1 < c["x"] < high[0] + 1 and low[1] - 1 < c["y"] < high[1] + 1
    ]
    grey = 'fill="currentColor" fill-opacity="0.10" stroke="currentColor" stroke-opacity="0.45"'
    for c in sorted(inside, key=lambda c: -(math.sin(TURN) * c["x"] + math.cos(TURN) * c["y"])):
        base = ring * float(c["radius"]) + [float(c["x"]), float(c["y"]), 0.0]
        top = base + np.array([0.0, 0.0, float(c["height"])])
        parts += [line(place(base), grey), line(place(top), grey)]
        for i in (0, 12):
            parts.append(line(place([base[i], top[i]]), 'fill="none" stroke="currentColor" stroke-opacity="0.45"'))
    for s in record.get("spheres", []):
        (x, y), r = place([s["centre"]])[0], scale * float(s["radius"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" {grey}/>')
    parts.append(line(place(target), 'fill="none" stroke="currentColor" stroke-opacity="0.5" stroke-dasharray="4 4"'))
    flown = place(path)
    levels = np.minimum((force / 0.5).astype(int), 4)
    start = 0
    for i in range(1, len(flown) + 1):
        if i == len(flown) or levels[i] != levels[start]:
            width = 1.6 + 0.9 * levels[start]
            parts.append(
                line(flown[start : i + 1], f'fill="none" stroke="var(--series-0, #2a6fbb)" stroke-width="{width:.1f}"')
            )
            start = i
    for mark in record.get("marks", []):
        x, y = place([mark["position"]])[0]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="currentColor"/>')
        parts.append(
            f'<text x="{x + 4:.1f}" y="{y - 4:.1f}" font-size="11" fill="currentColor">{escape(mark["name"])}</text>'
        )
    label = escape(f"Path of one episode of {record.get('task')} in space, seen from a corner")
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" style="width:100%;height:auto">'
    return Markup(head + "".join(parts) + "</svg>")


def flight_section(comparison: Comparison) -> Section | None:
    """Return the recorded episodes of the runs that have one."""
    shown = []
    for row in (row for group in comparison.groups for row in group.rows):
        file = row.run.path / "flight.json"
        if not file.is_file():
            continue
        try:
            shown.append(_figure(read_flight(file), row.label))
        except MALFORMED as error:
            raise RunFolderError(f"'{file}' is not a recorded episode ({error}): run `awavo render` again.") from error
    return Section("path", "Path in space", Markup("".join(shown))) if shown else None


def _figure(record: Fields, label: str) -> str:
    """The drawing of an episode with its totals below."""
    costs = ", ".join(f"{escape(k)} {float(v):.2f}" for k, v in record.get("costs", {}).items())
    about = (
        f"{escape(label)}: seed {escape(str(record.get('seed')))}, {len(record['path']['position'])} steps, "
        f"ended by {escape(str(record.get('ended')))}, return {float(record.get('return', math.nan)):.2f}, {costs}."
    )
    note = "Solid: flown, thicker where the external force is larger. Dashed: reference or goals."
    return f"<figure>{draw_flight(record)}<figcaption>{about} {note}</figcaption></figure>"
