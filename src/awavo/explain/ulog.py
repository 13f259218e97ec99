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

from awavo.errors import InputError, MissingExtraError

__all__ = ["ForceBalance", "force_balance", "ulog_segments"]

TOPICS = {
    "sensor_combined": [f"accelerometer_m_s2[{i}]" for i in range(3)],
    "vehicle_attitude": [f"q[{i}]" for i in range(4)],
    "vehicle_thrust_setpoint": ["xyz[2]"],
}
FLYING, LEAST_SECONDS, RATE = 0.1, 2.0, 50.0


class ForceBalance(NamedTuple):
    """Force per mass (m/s^2, north, east, down) while flying, and how it was found."""

    time: np.ndarray
    force: np.ndarray
    hover_throttle: float
    rates: dict[str, float]
    notes: list[str]


def _read(path: Path) -> Any:
    try:
        from pyulog import ULog
    except ImportError as error:
        raise MissingExtraError("PX4 logs need the extra 'ulog': pip install 'awavo[ulog]'.") from error
    if not path.is_file():
        raise InputError(f"'{path}': there is no such file.")
    try:
        return ULog(str(path), [*TOPICS, "vehicle_local_position"])
    except Exception as error:  # pyulog fails in many ways on a damaged file: struct, type, key, index
        raise InputError(f"'{path}' cannot be read as a ULog ({type(error).__name__}).") from error


def _columns(log: Any, path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found, missing = {}, []
    for name, fields in TOPICS.items():
        data = next((d.data for d in log.data_list if d.name == name and d.multi_id == 0), None)
        if data is None or any(f not in data for f in fields) or len(data["timestamp"]) < 2:
            missing.append(name)
            continue
        values = np.stack([np.asarray(data[f], float) for f in fields], 1)
        found[name] = (np.asarray(data["timestamp"], float) * 1e-6, values)
    if missing:
        raise InputError(
            f"'{path}' has no usable topic {', '.join(missing)}: the force balance needs {', '.join(TOPICS)} (PX4's "
            "logging profile 'high rate' has them)."
        )
    return found


def force_balance(path: str | Path) -> ForceBalance:
    """Compute the force per mass over the flying part of a log; refuse one that cannot give it."""
    path = Path(path)
    log = _read(path)
    columns = _columns(log, path)
    start = max(t[0] for t, _ in columns.values())
    end = min(t[-1] for t, _ in columns.values())
    if end - start < LEAST_SECONDS:
        raise InputError(
            f"'{path}' has {max(end - start, 0):.1f} s in which all topics are there, expected 2 s or more."
        )
    times = np.arange(start, end, 1 / RATE)

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
    body = felt + np.stack([0 * throttle, 0 * throttle, scale * throttle], 1)
    q = attitude / np.linalg.norm(attitude, axis=1, keepdims=True)
    force = _rotate(q, body)
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
    return ForceBalance(times[flying] - times[0], force[flying], 9.81 / scale, rates, notes)


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
