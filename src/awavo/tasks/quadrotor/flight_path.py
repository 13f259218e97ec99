"""References by name or from a file: a record names the one it was flown on, and whoever explains it builds the same.

Files: JSON `{"waypoints": [[x, y, z], ...], "speed": 1.5}` or `{"path": [[t, x, y, z], ...]}`, or CSV with a head of
`x,y,z` (waypoints) or `t,x,y,z` (a path, t in seconds). x is north, y west, z up, in metres; a CSV head of `north`,
`east`, `up` is understood too.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from awavo.checks import all_finite
from awavo.errors import InputError
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import REFERENCES, RefFn, RefState, make_reference, snap_reference, snap_seconds
from awavo.types import FieldsView

__all__ = ["FIGURE_OF_EIGHT", "Reference", "path_through", "read_reference", "reference_function", "stored_reference"]

KINDS = (*REFERENCES, "path")
MOST_POINTS, MOST_BYTES, FARTHEST = 2000, 2**24, 1e5
FASTEST, STRONGEST = 30.0, 20.0  # m/s and m/s^2 of a path through waypoints: no thrust reaches further
KNOT_S = 0.5  # a recorded path is followed through its means over so many seconds


class Reference(NamedTuple):
    """A path to fly: a name, with waypoints and speed for "snap", places and times for "path"; moved by `offset`."""

    kind: str = "lissajous"
    points: tuple[tuple[float, ...], ...] = ()
    times: tuple[float, ...] = ()
    speed: float = 1.5
    offset: tuple[float, ...] = (0.0, 0.0, 0.0)


FIGURE_OF_EIGHT = Reference()


@lru_cache(maxsize=32)
def reference_function(reference: Reference) -> RefFn:
    """Build the function of time and vehicle; the same reference gives the same function."""
    if reference.kind == "path":
        plain = _spline(np.array(reference.times), np.array(reference.points))
    elif reference.kind == "snap" and reference.points:
        plain = snap_reference(reference.points, reference.speed)
    else:
        plain = make_reference(reference.kind, None, reference.speed)
    if not any(reference.offset):
        return plain
    offset = np.array(reference.offset, np.float32)

    def moved(time, params):
        found = plain(time, params)
        return found._replace(position=found.position + offset.reshape(3, *[1] * (found.position.ndim - 1)))

    return moved


def _spline(times: Float[np.ndarray, " n"], points: Float[np.ndarray, "n 3"]) -> RefFn:
    """A cubic spline, at rest at both ends; it stays at the last place."""
    from scipy.interpolate import CubicSpline

    pieces = np.asarray(CubicSpline(times, points, bc_type="clamped").c[::-1], np.float32)  # [power, piece, 3]

    def reference(time, params):
        table, begins = jnp.asarray(pieces), jnp.asarray(times, jnp.float32)
        inside = (time < begins[-1]).astype(jnp.float32)
        time = jnp.clip(time, begins[0], begins[-1])
        place = jnp.clip(jnp.searchsorted(begins, time, side="right") - 1, 0, len(times) - 2)
        t = time - begins[place]
        a, b, c, d = (jnp.moveaxis(table[k][place], -1, 0) for k in range(4))
        return RefState(a + t * (b + t * (c + t * d)), b + t * (2 * c + 3 * t * d), (2 * c + 6 * t * d) * inside)

    return reference


def path_through(times: Sequence[float] | np.ndarray, places: Sequence[Sequence[float]] | np.ndarray) -> Reference:
    """Return a recorded path as a reference that starts at time 0: its means over half a second, joined smoothly."""
    t, p = np.asarray(times, float), np.asarray(places, float)
    if t.ndim != 1 or p.shape != (len(t), 3) or len(t) < 4 or not (all_finite(t) and all_finite(p)):
        raise InputError(f"a path of {p.shape} places at {t.shape} times: expected 4 or more, 3 finite numbers each.")
    if (np.diff(t) <= 0).any():
        raise InputError("the times of a path must grow from each place to the next.")
    if t[-1] - t[0] < 2 * KNOT_S:
        raise InputError(f"a path of {t[-1] - t[0]:g} s is too short: give {2 * KNOT_S:g} s or more.")
    bins = np.floor((t - t[0]) / KNOT_S).astype(int)
    knots = [0, *np.unique(bins[(bins > 0) & (bins < bins[-1])]), -1]
    ends = {0: (0.0, p[0]), -1: (float(t[-1] - t[0]), p[-1])}
    rows = [ends[k] if k in ends else (float((t[bins == k] - t[0]).mean()), p[bins == k].mean(0)) for k in knots]
    return _checked(Reference("path", _rows([r[1] for r in rows]), tuple(r[0] for r in rows)))


def _rows(points: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in points)


def _checked(reference: Reference) -> Reference:
    """The reference, if it can be flown."""
    points, times = reference.points, reference.times
    if reference.kind not in KINDS or len(points) > MOST_POINTS or len(reference.offset) != 3:
        raise InputError(f"a reference '{reference.kind}' of {len(points)} points: expected {', '.join(KINDS)}, at "
                         f"most {MOST_POINTS} points.")  # fmt: skip
    numbers = np.array([*reference.offset, reference.speed, *times, *(x for row in points for x in row)])
    if any(len(row) != 3 for row in points) or not (np.abs(numbers) < FARTHEST).all():  # False for NaN too
        raise InputError("the points of a reference must be three finite numbers each, in metres.")
    if not reference.speed > 0:
        raise InputError(f"speed={reference.speed} must be > 0.")
    if reference.kind == "path" and (len(times) != len(points) or len(times) < 2 or (np.diff(times) <= 0).any()):
        raise InputError("the times of a path must grow, one for each place, two or more.")
    if reference.kind == "snap" and points:
        reference_function(reference)  # refuses waypoints that are the same twice
    return reference


def stored_reference(stored: FieldsView | None) -> Reference:
    """Return the reference of a record's table; records of before have none, and were flown on the figure of eight."""
    if stored is None:
        return FIGURE_OF_EIGHT
    kind, speed = str(stored["kind"]), float(stored["speed"])
    times, offset = (tuple(float(x) for x in stored[name]) for name in ("times", "offset"))
    return _checked(Reference(kind, _rows(stored["points"]), times, speed, offset))


def read_reference(text: str, speed: float = 1.5) -> Reference:
    """Return the reference of a name, or of a JSON or CSV file."""
    if not 0 < speed < FARTHEST:  # False for NaN too
        raise InputError(f"speed={speed} must be a number of m/s above 0.")
    if text in REFERENCES:
        return _checked(Reference(text, speed=speed))
    path = Path(text)
    if not path.is_file():
        raise InputError(f"no reference is named '{text}', and there is no such file: expected {', '.join(REFERENCES)},"
                         " or a JSON or CSV file of waypoints or of a path.")  # fmt: skip
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"'{text}' has {path.stat().st_size:,} bytes, at most {MOST_BYTES:,} are read.")
    try:
        content = path.read_text(encoding="utf-8")
        timed, rows, speed = _csv(content, speed) if path.suffix == ".csv" else _json(content, speed)
        if not rows:  # a reference without points is the built-in one
            raise ValueError("it holds no point")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"'{text}' cannot be read as a reference ({str(error)[:200]}): "
            "expected waypoints (x, y, z) or a path (t, x, y, z), as JSON or CSV."
        ) from error
    if timed:
        return path_through([row[0] for row in rows], [row[1:] for row in rows])
    return _flyable(_checked(Reference("snap", _rows(rows), (), speed)))


def _flyable(reference: Reference) -> Reference:
    """The path through waypoints, if a vehicle can fly it: a leg far shorter than its neighbours makes it swing."""
    end = snap_seconds(reference.points, reference.speed)
    times = jnp.linspace(0.0, end, 32 * len(reference.points), dtype=jnp.float32)
    found = reference_function(reference)(times, QuadrotorParams())
    fast, hard = (float(np.linalg.norm(x, axis=0).max()) for x in (found.velocity, found.acceleration))
    if not (fast <= FASTEST and hard <= STRONGEST):
        raise InputError(
            f"the path through the waypoints reaches {fast:.3g} m/s and {hard:.3g} m/s2, at most {FASTEST:g} and "
            f"{STRONGEST:g} can be flown: give a lower speed, and legs of about the same length."
        )
    return reference


def _json(content: str, speed: float) -> tuple[bool, list[list[float]], float]:
    found = json.loads(content)
    timed = "path" in found
    rows = [[float(x) for x in row] for row in found["path" if timed else "waypoints"]]
    if any(len(row) != 3 + timed for row in rows):
        raise ValueError(f"rows must have {3 + timed} numbers")
    return timed, rows, float(found.get("speed", speed))


def _csv(content: str, speed: float) -> tuple[bool, list[list[float]], float]:
    lines = csv.DictReader(io.StringIO(content))
    names = [name.strip().lower() for name in lines.fieldnames or ()]
    lines.fieldnames = names
    timed, geographic = "t" in names, {"north", "east", "up"} <= set(names)
    if not geographic and not {"x", "y", "z"} <= set(names):
        raise ValueError("its head names neither x, y, z nor north, east, up")
    columns = ("north", "east", "up") if geographic else ("x", "y", "z")
    sign = -1.0 if geographic else 1.0  # y is west
    rows = []
    for line in lines:
        x, y, z = (float(line[name]) for name in columns)
        rows.append([*([float(line["t"])] if timed else []), x, sign * y, z])
    return timed, rows, speed
