r"""What a PX4 log says about forces: the balance of accelerometer and thrust, without the planner's decisions.

With specific force :math:`a` (body FRD), attitude R, throttle u and hover throttle h, in two ways:

.. math::

   f / m &= R\,(a + \tfrac{g}{h} u\, e_z) && \text{the thrust model, with the log's hover throttle} \\
   f / m &= R a - \tfrac{(R a)_z}{R_{zz}} R e_z && \text{no vertical force: no thrust model is needed}

The first rests on the hover throttle, the second on there being no steady vertical force. A vehicle that leans into the
wind tells them apart only where one is known to be right, so the interval of the sideways force holds both. A ULog does
not hold what a planner weighed: influences on decisions cannot be told from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from awavo.errors import InputError
from awavo.explain.ulog_file import ULogFile, read_ulog
from awavo.explain.ulog_topics import TOPICS, Series, firmware, held, in_air, need, series, thrust_series
from awavo.tasks.quadrotor.frames import flip_vector, rotate_rows, wind_name
from awavo.types import Fields

__all__ = ["ForceBalance", "Hover", "force_balance", "ulog_segments"]

GRAVITY, FLYING, LEAST_SECONDS, RATE = 9.81, 0.1, 2.0, 50.0
LONGEST_SECONDS, LEAST_HZ = 6 * 3600.0, 1.0
"""A flight is at most so long, and every topic logged at least so often: the grid of times follows from both."""
SHOWN_HOLES = 5
TRIM_S = 0.5  # left out after take-off and before landing: the ground pushes too
DEFAULT_HOVER = 0.5  # of MPC_THR_HOVER: a vehicle that has it was never told
# Relative deviations of a hover throttle: of PX4's own estimate at least, of a parameter somebody set, of none.
ESTIMATE_STD, PARAMETER_STD, UNKNOWN_STD = 0.03, 0.1, 0.15
ACCELEROMETER_STD = 0.1  # m/s^2 of bias
Z90 = 1.645


class Hover(NamedTuple):
    """The hover throttle (of each sample), how far it may be off (a share of it), and where it comes from."""

    throttle: Float[np.ndarray, " T"]
    std: float
    source: str
    known: bool


class ForceBalance(NamedTuple):
    """Force per mass (m/s^2, north, east, down) while flying, by the better way and by the other, and how it was found.

    `lean` is the sideways thrust per mass, which a wrong thrust model would take for force.
    """

    time: Float[np.ndarray, " T"]
    force: Float[np.ndarray, "T 3"]
    other: Float[np.ndarray, "T 3"]
    lean: Float[np.ndarray, " T"]
    position: Float[np.ndarray, "T 3"] | None
    hover: Hover
    rates: dict[str, float]
    notes: list[str]
    firmware: str


def _aligned(q: np.ndarray) -> np.ndarray:
    """Quaternions with the signs in which neighbours are near each other, as interpolation needs them."""
    turns = np.where((q[1:] * q[:-1]).sum(1) < 0, -1.0, 1.0)
    return q * np.concatenate([[1.0], np.cumprod(turns)])[:, None]


def _grid(columns: list[Series], path: Path) -> np.ndarray:
    """Times at which all topics are there, 50 a second; refuse a stretch that the samples cannot fill."""
    start, end = max(c.times[0] for c in columns), min(c.times[-1] for c in columns)
    if end - start < LEAST_SECONDS:
        raise InputError(
            f"'{path}' has {max(end - start, 0):.1f} s in which all topics are there, expected 2 s or more."
        )
    if end - start > LONGEST_SECONDS:
        raise InputError(f"'{path}' covers {(end - start) / 3600:.3g} hours, at most 6 are read: cut the log.")
    for c in columns:
        rate = ((c.times >= start) & (c.times <= end)).sum() / (end - start)
        if rate < LEAST_HZ:
            raise InputError(f"'{path}' has {c.topic} at {rate:.2g} Hz, expected 1 Hz or more: its times are wrong.")
    return np.arange(start, end, 1 / RATE)


def _on_grid(found: Series, times: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(times, found.times, column) for column in found.values.T], 1)


def _logged(columns: list[Series], times: np.ndarray) -> np.ndarray:
    """Say where every topic has a sample within half a second: a log may have gaps."""
    near = np.ones(len(times), bool)
    for c in columns:
        after = np.clip(np.searchsorted(c.times, times), 1, len(c.times) - 1)
        near &= np.minimum(np.abs(times - c.times[after - 1]), np.abs(c.times[after] - times)) < 0.5
    return near


def _holes(flying: np.ndarray, logged: np.ndarray) -> list[str]:
    """Say between which times of the flight nothing was logged."""
    first, *_, last = np.flatnonzero(flying)
    edges = np.flatnonzero(np.diff(np.pad(~logged[first : last + 1], 1).astype(int))) + first
    spans = [f"{a / RATE:.1f} to {b / RATE:.1f} s" for a, b in edges.reshape(-1, 2)]
    if not spans:
        return []
    shown = ", ".join([*spans[:SHOWN_HOLES], *(["..."] if len(spans) > SHOWN_HOLES else [])])
    return [f"{(~logged[first:last]).sum() / RATE:.1f} s within the flight were not logged (from {shown})"]


def _flying(log: ULogFile, throttle: np.ndarray, times: np.ndarray, path: Path) -> tuple[np.ndarray, list[str]]:
    air, as_plane = in_air(log, times, path)
    notes = ["the part flown as a plane was left out"] if as_plane.any() else []
    if air is None:
        notes.append(f"the log has no land detector: thrust above {FLYING:.0%} was taken for flight")
        air = throttle > FLYING
        why = f"thrust above {FLYING:.0%}"
    else:
        why = "not landed, by its land detector"
    on = air & ~as_plane
    # A sample counts where the vehicle flew half a second before and after it, as far as the log says.
    trim = round(TRIM_S * RATE)
    inside = np.convolve(np.pad(on, trim, mode="edge"), np.ones(2 * trim + 1), "valid") > 2 * trim
    if inside.sum() < LEAST_SECONDS * RATE:
        plane = f", {as_plane.sum() / RATE:.1f} s as a plane" if as_plane.any() else ""
        raise InputError(
            f"'{path}' shows {on.sum() / RATE:.1f} s of flight ({why}){plane}, expected 2 s or more, half a second "
            "after take-off and before landing not counted."
        )
    return inside, notes


def _hover(log: ULogFile, times: np.ndarray, path: Path) -> Hover:
    """The hover throttle that the log states: PX4's own estimate, else the parameter, with the battery's voltage."""
    found = series(log, "hover_thrust_estimate", ("hover_thrust", "hover_thrust_var"), path, 2)
    valid = series(log, "hover_thrust_estimate", ("valid",), path, 1)
    if found is not None:
        ok = np.isfinite(found.values).all(1) & (found.values[:, 0] > 0.05) & (found.values[:, 0] < 1)
        ok &= True if valid is None else valid.values[:, 0] > 0
        if ok.sum() > 1:
            kept = Series(found.topic, found.times[ok], found.values[ok])
            throttle, variance = held(kept, times).T
            std = max(ESTIMATE_STD, float(np.median(np.sqrt(np.maximum(variance, 0)) / throttle)))
            return Hover(throttle, std, "hover_thrust_estimate", True)
    told = log.numbers.get("MPC_THR_HOVER", DEFAULT_HOVER)
    if not 0.05 < told < 0.95 or abs(told - DEFAULT_HOVER) < 1e-6:
        return Hover(np.full(len(times), DEFAULT_HOVER), UNKNOWN_STD, "none", False)
    throttle, source = np.full(len(times), told), "MPC_THR_HOVER"
    battery = series(log, "battery_status", ("voltage_v",), path, 1)
    if battery is not None and (np.isfinite(battery.values) & (battery.values > 3)).all():
        volts = _on_grid(battery, times)[:, 0]
        # Thrust goes with the square of the voltage: at a lower one, the same force takes more throttle.
        throttle, source = throttle * (np.median(volts) / volts) ** 2, "MPC_THR_HOVER with the battery's voltage"
    return Hover(throttle, PARAMETER_STD, source, True)


def force_balance(path: str | Path) -> ForceBalance:
    """Compute the force per mass over the flying part of a log; refuse one that cannot give it."""
    path = Path(path)
    log = read_ulog(path, TOPICS)
    thrust = thrust_series(log, path)
    columns = [
        need(log, "sensor_combined", "accelerometer_m_s2", 3, path),
        need(log, "vehicle_attitude", "q", 4, path),
        thrust,
    ]
    columns[1] = columns[1]._replace(values=_aligned(columns[1].values))
    times = _grid(columns, path)
    felt, attitude, throttle = (_on_grid(c, times) for c in columns)
    throttle = throttle[:, 0]
    logged = _logged(columns, times)
    flying, notes = _flying(log, np.where(logged, throttle, 0.0), times, path)
    flying &= logged
    if flying.sum() < LEAST_SECONDS * RATE:
        raise InputError(f"'{path}' has gaps: {flying.sum() / RATE:.1f} s of its flight were logged, expected 2 s.")
    notes += _holes(flying, logged)
    start, times = times[0], times[flying]
    felt, attitude, throttle = felt[flying], attitude[flying], throttle[flying]
    size = np.linalg.norm(attitude, axis=1, keepdims=True)
    if not (np.isfinite(felt).all() and (np.abs(size - 1) < 0.5).all()):  # False for NaN too
        raise InputError(f"'{path}' has attitudes or accelerations in flight that are none (zero or not finite).")
    attitude = attitude / size
    down = rotate_rows(attitude, np.broadcast_to([0.0, 0.0, 1.0], felt.shape))
    if np.median(down[:, 2]) < 0.5:
        raise InputError(f"'{path}' was not flown upright: there is no balance of a multirotor in it.")
    world = rotate_rows(attitude, felt)
    hover = _hover(log, times, path)
    free = world - (world[:, 2:] / np.maximum(down[:, 2:], 0.3)) * down
    model = world + (GRAVITY / hover.throttle * throttle)[:, None] * down
    lifted = -world[:, 2] / np.maximum(down[:, 2], 0.3)  # thrust per mass, were there no vertical force
    fitted = float(GRAVITY * np.median(throttle) / max(np.median(lifted), 1e-3))
    if not 0.5 * GRAVITY < np.median(lifted) < 3 * GRAVITY:
        raise InputError(f"'{path}' feels {np.median(lifted):.1f} m/s2 upwards in the median: no flight.")
    if not hover.known:
        hover = hover._replace(throttle=np.full(len(times), fitted), source="fitted to this flight")
    force, other = (model, free) if hover.known else (free, free)
    place = series(log, "vehicle_local_position", ("x", "y", "z"), path, 3)
    position = None if place is None else _on_grid(place, times)
    rates = {c.topic: c.rate / float(logged.mean()) for c in columns}
    return ForceBalance(
        times - start, force, other, np.hypot(down[:, 0], down[:, 1]) * np.abs(lifted),
        position if position is not None and np.isfinite(position).all() else None, hover, rates,
        [*notes, *_notes(log, hover, fitted, rates)], firmware(log),
    )  # fmt: skip


def _notes(log: ULogFile, hover: Hover, fitted: float, rates: dict[str, float]) -> list[str]:
    """What the balance rests on, and what it cannot say."""
    told = float(np.median(hover.throttle))
    notes = [
        "a ULog does not hold what the planner weighed: the influence of the force on decisions cannot be judged",
        "obstacles are not in the log and cannot be judged",
        "drag in still air is part of the force while the vehicle moves",
    ]
    if not hover.known:
        notes.append(
            "the log does not say what throttle the vehicle hovers at (no hover_thrust_estimate, MPC_THR_HOVER at its "
            "default): the vertical force was taken to be zero"
        )
    elif abs(fitted / told - 1) > 0.15:
        notes.append(
            f"in this flight the vehicle hovers at a throttle of {fitted:.2f}, the log says {told:.2f} "
            f"({hover.source}): a vertical force, or a wrong thrust; the intervals hold both"
        )
    slow = [f"{name} ({rate:.0f} Hz)" for name, rate in rates.items() if rate < 40]
    if slow:
        notes.append(f"logged slowly: {', '.join(slow)}; gusts faster than that are smoothed away")
    if log.damaged:
        notes.append("the log is damaged or was cut off: what follows the damage was not read")
    return notes


def ulog_segments(found: ForceBalance, window: float = 1.0, count: int | None = 5) -> list[Fields]:
    """Return the windows with the largest mean sideways force (None: all), with a 90% interval of its size."""
    rows = []
    number = (found.time / window).astype(int)
    for n in np.unique(number):
        inside = number == n
        part = found.force[inside]
        if len(part) < 0.5 * window * RATE:
            continue
        mean = part.mean(0)
        sizes = [float(np.hypot(*x[inside].mean(0)[:2])) for x in (found.force, found.other)]
        # Neighbouring samples are alike: an eighth of them counts as independent.
        spread = part[:, :2].var(0).sum() / max(len(part) / 8, 1)
        scale = found.hover.std * float(found.lean[inside].mean())
        half = Z90 * float(np.sqrt(spread + ACCELEROMETER_STD**2 + scale**2))
        rows.append(
            {
                "start_s": float(n * window),
                "end_s": float((n + 1) * window),
                "sideways_m_s2": sizes[0],
                "low": max(0.0, min(sizes) - half),
                "high": max(sizes) + half,
                "down_m_s2": float(mean[2]),
                "from": wind_name(flip_vector(mean)),
            }
        )
    return rows if count is None else sorted(rows, key=lambda r: -r["sideways_m_s2"])[:count]
