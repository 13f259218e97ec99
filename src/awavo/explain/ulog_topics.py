"""What a force balance needs from a PX4 log, wherever the firmware of its time wrote it (1.6 to 1.16).

| what | where |
|---|---|
| thrust | `vehicle_thrust_setpoint` (1.14 on), `vehicle_rates_setpoint` and `vehicle_attitude_setpoint` (`thrust_body`, before 1.9 `thrust`), `actuator_controls_0` (to 1.13) |
| in the air | `vehicle_land_detected`; without it, thrust above 10% |
| hover throttle | `hover_thrust_estimate` (1.11 on), else the parameter `MPC_THR_HOVER` |
| battery | `battery_status`; place | `vehicle_local_position` |
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from awavo.errors import InputError
from awavo.explain.ulog_file import ULogFile

__all__ = ["Series", "TOPICS", "firmware", "held", "in_air", "need", "series", "thrust_series"]

# Topic, field, component of the upward throttle, and its sign: PX4's body z points down.
THRUSTS = (
    ("vehicle_thrust_setpoint", "xyz", 2, -1.0),
    ("vehicle_rates_setpoint", "thrust_body", 2, -1.0),
    ("vehicle_rates_setpoint", "thrust", None, 1.0),
    ("vehicle_attitude_setpoint", "thrust_body", 2, -1.0),
    ("vehicle_attitude_setpoint", "thrust", None, 1.0),
    ("actuator_controls_0", "control", 3, 1.0),
)
TOPICS = frozenset(
    {"sensor_combined", "vehicle_attitude", "vehicle_land_detected", "hover_thrust_estimate", "battery_status"}
    | {"vehicle_local_position", "vehicle_status"} | {name for name, *_ in THRUSTS}
)  # fmt: skip
STEADY_HZ = 10.0
ON_GROUND = ("landed", "maybe_landed", "ground_contact")
FIXED_WING = 2


class Series(NamedTuple):
    """Times (s) and values of one field."""

    topic: str
    times: Float[np.ndarray, " n"]
    values: Float[np.ndarray, "n d"]

    @property
    def rate(self) -> float:
        """Samples a second."""
        return float((len(self.times) - 1) / max(self.times[-1] - self.times[0], 1e-9))


def series(log: ULogFile, topic: str, fields: tuple[str, ...], path: Path, size: int | None = None) -> Series | None:
    """Return the fields of a topic side by side, or None where the log does not hold two samples of all of them.

    With a `size` also where they are not so many numbers.
    """
    data = log.samples.get(topic, np.zeros(0, []))
    names = data.dtype.names or ()
    if len(data) < 2 or "timestamp" not in names or not set(fields) <= set(names):
        return None
    if data.dtype["timestamp"].kind != "u" or any(data.dtype[f].base.kind not in "fui" for f in fields):
        return None
    columns = [np.asarray(data[f], float).reshape(len(data), -1) for f in fields]
    values = np.concatenate(columns, 1)
    return Series(topic, _times(data, topic, path), values) if size in (None, values.shape[1]) else None


def _times(data: np.ndarray, topic: str, path: Path) -> np.ndarray:
    times = np.asarray(data["timestamp"], float) * 1e-6
    if (np.diff(times) < 0).any():
        raise InputError(f"'{path}': the times of {topic} run backwards: the log is damaged.")
    return times


def need(log: ULogFile, topic: str, field: str, size: int, path: Path) -> Series:
    """Return a topic without which there is no balance, or say that the log was made without it."""
    found = series(log, topic, (field,), path, size)
    if found is None:
        present = ", ".join(sorted(log.samples)) or "none of the topics that are looked for"
        raise InputError(f"'{path}' has no usable {topic} ({field}), which every balance needs; it holds {present}.")
    return found


def thrust_series(log: ULogFile, path: Path) -> Series:
    """Return the throttle (0 to 1, upwards) from the first place that has it often enough, or from the best one."""
    found, idle = [], []
    for topic, field, component, sign in THRUSTS:
        one = series(log, topic, (field,), path)
        if one is None or (component is not None and one.values.shape[1] <= component):
            continue
        throttle = sign * one.values[:, component or 0]
        if np.isfinite(throttle).mean() > 0.5 and (throttle > 0.02).any():
            found.append(Series(f"{topic}.{field}", one.times, np.nan_to_num(throttle)[:, None]))
        else:
            idle.append(f"{topic}.{field}")
    if not found and idle:
        raise InputError(f"'{path}' shows no flight: the thrust is zero throughout ({', '.join(idle)}).")
    if not found:
        places = ", ".join(dict.fromkeys(name for name, *_ in THRUSTS))
        raise InputError(f"'{path}' holds no thrust setpoint: looked in {places}.")
    return next((one for one in found if one.rate >= STEADY_HZ), max(found, key=lambda one: one.rate))


def held(found: Series, times: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T d"]:
    """Return the last value before each time; before the first, that one."""
    return found.values[np.maximum(np.searchsorted(found.times, times, side="right") - 1, 0)]


def _single(log: ULogFile, topic: str, field: str, path: Path) -> np.ndarray | None:
    """Times and values of a field that may have been logged only once, as what rarely changes is."""
    data = log.samples.get(topic, np.zeros(0, []))
    names = data.dtype.names or ()
    if not len(data) or not {"timestamp", field} <= set(names):
        return None
    if data.dtype["timestamp"].kind != "u" or data.dtype[field].kind not in "fui":  # an array has kind V
        return None
    return np.stack([_times(data, topic, path), np.asarray(data[field], float)])


def _state(log: ULogFile, topic: str, field: str, times: np.ndarray, path: Path) -> np.ndarray | None:
    found = _single(log, topic, field, path)
    if found is None:
        return None
    return found[1][np.maximum(np.searchsorted(found[0], times, side="right") - 1, 0)]


def in_air(log: ULogFile, times: Float[np.ndarray, " T"], path: Path) -> tuple[np.ndarray | None, np.ndarray]:
    """Say when the land detector saw the vehicle in the air (None without one), and when it flew as a plane."""
    ground = [x for name in ON_GROUND if (x := _state(log, "vehicle_land_detected", name, times, path)) is not None]
    kind = _state(log, "vehicle_status", "vehicle_type", times, path)
    rotary = _state(log, "vehicle_status", "is_rotary_wing", times, path)
    as_plane = kind == FIXED_WING if kind is not None else rotary == 0 if rotary is not None else np.zeros(len(times))
    as_plane = np.asarray(as_plane, bool)
    return (~np.any(np.array(ground) > 0, 0) if ground else None), as_plane


def firmware(log: ULogFile) -> str:
    """Return PX4's version as the log says it."""
    told = log.numbers.get("ver_sw_release", 0.0)
    release = int(told) if 0 < told < 2**32 else 0  # False for NaN too
    return f"{release >> 24}.{release >> 16 & 255}.{release >> 8 & 255}" if release else "unknown"
