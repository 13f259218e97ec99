r"""What a PX4 log says about forces: the balance of accelerometer and thrust, without the planner's decisions.

With specific force :math:`a` (body FRD), thrust setpoint :math:`u` along :math:`-z` and attitude R,

.. math::  f / m = R\,(a + k u\, e_z), \qquad k = \mathrm{median}(-a_z / u) \;\text{while flying},

so that k is gravity over hover throttle. Sideways forces need no thrust model. A ULog does not hold what a planner
weighed: influences on decisions cannot be told from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from awavo.errors import InputError
from awavo.explain.ulog_file import ULogFile, read_ulog

__all__ = ["ForceBalance", "force_balance", "ulog_segments"]

# Topic, field, and the components that are needed.
TOPICS = {
    "sensor_combined": ("accelerometer_m_s2", (0, 1, 2)),
    "vehicle_attitude": ("q", (0, 1, 2, 3)),
    "vehicle_thrust_setpoint": ("xyz", (2,)),
}
FLYING, LEAST_SECONDS, RATE = 0.1, 2.0, 50.0
LONGEST_SECONDS, LEAST_HZ = 6 * 3600.0, 1.0
"""A flight is at most so long, and every topic logged at least so often: the grid of times follows from both."""


class ForceBalance(NamedTuple):
    """Force per mass (m/s^2, north, east, down) while flying, and how it was found."""

    time: np.ndarray
    force: np.ndarray
    hover_throttle: float
    rates: dict[str, float]
    notes: list[str]


def _columns(log: ULogFile, path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Times (s) and needed components of each topic."""
    found, missing = {}, []
    for name, (field, components) in TOPICS.items():
        data = log.samples.get(name, np.zeros(0, []))
        names = data.dtype.names or ()
        if len(data) < 2 or not {"timestamp", field} <= set(names) or not _holds(data, field, max(components)):
            missing.append(name)
            continue
        times = np.asarray(data["timestamp"], float) * 1e-6
        if (np.diff(times) < 0).any():
            raise InputError(f"'{path}': the times of {name} run backwards: the log is damaged.")
        values = np.asarray(data[field], float)[:, components]
        found[name] = (times, _aligned(values) if field == "q" else values)
    if missing:
        raise InputError(
            f"'{path}' has no usable topic {', '.join(missing)}: the force balance needs {', '.join(TOPICS)} (PX4's "
            "logging profile 'high rate' has them)."
        )
    return found


def _holds(data: np.ndarray, field: str, component: int) -> bool:
    """Whether the times are whole numbers and the field a list of floats with that component."""
    kind = data.dtype[field]
    list_of_floats = kind.base.kind == "f" and len(kind.shape) == 1 and kind.shape[0] > component
    return data.dtype["timestamp"].kind == "u" and list_of_floats


def _aligned(q: np.ndarray) -> np.ndarray:
    """Quaternions with the signs in which neighbours are near each other, as interpolation needs them."""
    turns = np.where((q[1:] * q[:-1]).sum(1) < 0, -1.0, 1.0)
    return q * np.concatenate([[1.0], np.cumprod(turns)])[:, None]


def _grid(columns: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> np.ndarray:
    """Times at which all topics are there, 50 a second; refuse a stretch that the samples cannot fill."""
    start = max(t[0] for t, _ in columns.values())
    end = min(t[-1] for t, _ in columns.values())
    if end - start < LEAST_SECONDS:
        raise InputError(
            f"'{path}' has {max(end - start, 0):.1f} s in which all topics are there, expected 2 s or more."
        )
    if end - start > LONGEST_SECONDS:
        raise InputError(f"'{path}' covers {(end - start) / 3600:.3g} hours, at most 6 are read: cut the log.")
    for name, (times, _) in columns.items():
        rate = ((times >= start) & (times <= end)).sum() / (end - start)
        if rate < LEAST_HZ:
            raise InputError(f"'{path}' has {name} at {rate:.2g} Hz, expected 1 Hz or more: its times are wrong.")
    return np.arange(start, end, 1 / RATE)


def force_balance(path: str | Path) -> ForceBalance:
    """Compute the force per mass over the flying part of a log; refuse one that cannot give it."""
    path = Path(path)
    log = read_ulog(path, TOPICS)
    columns = _columns(log, path)
    times = _grid(columns, path)

    def on_grid(name):
        t, values = columns[name]
        return np.stack([np.interp(times, t, column) for column in values.T], 1)

    felt, attitude, thrust = (on_grid(name) for name in TOPICS)
    throttle = -thrust[:, 0]
    flying = throttle > FLYING
    if flying.sum() < LEAST_SECONDS * RATE:
        raise InputError(
            f"'{path}' shows {flying.sum() / RATE:.1f} s of flight (thrust above {FLYING:.0%}), expected 2 s or more."
        )
    scale = float(np.median(-felt[flying, 2] / throttle[flying]))
    if not np.isfinite(scale) or not 9.81 < scale < 200:
        raise InputError(f"'{path}' fits a hover throttle of {9.81 / scale if scale else np.inf:.2f}: no flight.")
    start, times = times[0], times[flying]
    felt, attitude, throttle = felt[flying], attitude[flying], throttle[flying]
    size = np.linalg.norm(attitude, axis=1, keepdims=True)
    if not (np.isfinite(felt).all() and (np.abs(size - 1) < 0.5).all()):  # False for NaN too
        raise InputError(f"'{path}' has attitudes or accelerations in flight that are none (zero or not finite).")
    body = felt + np.stack([0 * throttle, 0 * throttle, scale * throttle], 1)
    force = _rotate(attitude / size, body)
    rates = {name: float((len(t) - 1) / (t[-1] - t[0])) for name, (t, _) in columns.items()}
    notes = [
        "a ULog does not hold what the planner weighed: the influence of the force on decisions cannot be judged",
        "obstacles are not in the log and cannot be judged",
        "the vertical force rests on a straight thrust curve fitted to this flight: a steady one cannot be seen",
        "drag in still air is part of the force while the vehicle moves",
    ]
    slow = [f"{name} ({rate:.0f} Hz)" for name, rate in rates.items() if rate < 40]
    if slow:
        notes.append(f"logged slowly: {', '.join(slow)}; gusts faster than that are smoothed away")
    if log.damaged:
        notes.append("the log is damaged or was cut off: what follows the damage was not read")
    return ForceBalance(times - start, force, 9.81 / scale, rates, notes)


def _rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Body FRD to NED for rows of unit quaternions (w, x, y, z)."""
    w, u = q[:, :1], q[:, 1:]
    twice = 2 * np.cross(u, v)
    return v + w * twice + np.cross(u, twice)


def ulog_segments(found: ForceBalance, window: float = 1.0, count: int = 5) -> list[dict[str, Any]]:
    """Return the windows with the largest mean sideways force, with the interval of that mean."""
    rows = []
    number = (found.time / window).astype(int)
    for n in np.unique(number):
        part = found.force[number == n]
        if len(part) < 0.5 * window * RATE:
            continue
        mean = part.mean(0)
        side = float(np.hypot(*mean[:2]))
        # Neighbouring samples are alike: an eighth of them counts as independent.
        half = 1.645 * float(np.sqrt(part[:, :2].var(0).sum() / max(len(part) / 8, 1)))
        angle = np.arctan2(-mean[1], -mean[0])
        rows.append(
            {
                "start_s": float(n * window),
                "end_s": float((n + 1) * window),
                "sideways_m_s2": side,
                "low": max(0.0, side - half),
                "high": side + half,
                "down_m_s2": float(mean[2]),
                "from": ("N", "NE", "E", "SE", "S", "SW", "W", "NW")[round(float(angle) / (np.pi / 4)) % 8],
            }
        )
    return sorted(rows, key=lambda r: -r["sideways_m_s2"])[:count]
