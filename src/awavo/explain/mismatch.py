r"""Where the vehicle is not the one that the filter was told: alarms, and how much less the force is then known.

Alarms rest on the whole record: mass (or thrust) and drag far from what was told, noise above what was told, and
innovations larger than the filter expects. They are shown with every finding. The force that the record shows
(`hindsight.py`, covariance :math:`\Sigma`) is then known less well than the noise alone allows,

.. math::  \Sigma' = s\,\Sigma + (\delta_m f)(\delta_m f)^\top + b^2\,(h_m h_m^\top + h_d h_d^\top) + l l^\top ,

with the innovations' excess s. The second term is what a wrong mass changes about the force itself, and a wrong thrust
does not: the balance cannot tell these two apart. :math:`h_m = (T + F) \lambda` and :math:`h_d = F \delta_d` are what
mass and drag explain: where they raise an alarm, b = `LEAST_SHARE` of it stays in doubt, as they may not be the same
all along. The last one is `WIND_LIFT` of the sideways force, times the lean: how far the lift of wind on a leaning
vehicle may be off.

A record without the filter's measurements (formats 1 and 2) is taken as the filter believed it at the time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from awavo.control.belief import Belief
from awavo.explain.hindsight import LEAST, Hindsight, look_back, still_forces
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Alarm", "alarm_text", "flight_alarms", "log_hindsight", "review"]

# What counts as far: a mass or thrust off by 5%, drag by 60%, noise of twice the deviation told, squared innovations
# of half as much again as expected.
MASS_FAR, DRAG_FAR, NOISE_FAR, SURPRISE_FAR = 0.05, 0.6, 2.0, 1.5
WIND_LIFT, LEAST_SHARE = 0.05, 0.2
SETTLED = 50  # decisions after which the averages of a second say something


class Alarm(NamedTuple):
    """One kind of mismatch: `value` beside the `limit` it passed, from `start` seconds of the flight on, in words."""

    kind: str
    value: float
    limit: float
    start: float
    text: str


def alarm_text(alarm: Alarm) -> str:
    """Say what does not fit, from when, and what follows from it."""
    return f"{alarm.text} (since {alarm.start:.1f} s): influences of the force are less certain, intervals wider"


def _first(over: np.ndarray, times: np.ndarray) -> float:
    return float(times[int(np.argmax(over))])


def flight_alarms(
    beliefs: Belief, seen: Hindsight, params: QuadrotorParams, times: Float[np.ndarray, " T"]
) -> list[Alarm]:
    """Return what does not fit in a flight's beliefs, time first, and in what was seen looking back on it."""
    mean = np.asarray(beliefs.mean, float)
    noise = np.sqrt(np.maximum(np.asarray(beliefs.watch.noise, float), 0)) / max(float(params.force_noise), LEAST)
    surprise = np.asarray(beliefs.watch.surprise, float)
    settled = np.arange(len(mean)) >= min(SETTLED, len(mean) - 1)
    found = []
    mass, drag = _mass_change(seen), seen.drag_change
    if abs(mass) > MASS_FAR:
        start = _first(np.abs(mean[:, 3]) > MASS_FAR, times)
        text = f"the vehicle acts as if its mass were {mass:+.0%} (or its thrust {seen.lightness:+.0%}) off"
        found.append(Alarm("mass", mass, MASS_FAR, start, text))
    if abs(drag) > DRAG_FAR:
        start = _first(np.abs(mean[:, 4]) > DRAG_FAR, times)
        found.append(Alarm("drag", drag, DRAG_FAR, start, f"its drag is {drag:+.0%} off what was told"))
    if (over := settled & (noise > NOISE_FAR)).any():
        text = f"the accelerometer is up to {noise[settled].max():.1f} times as noisy as was told"
        found.append(Alarm("noise", float(noise[settled].max()), NOISE_FAR, _first(over, times), text))
    if (over := settled & (surprise > SURPRISE_FAR)).any():
        worst = float(surprise[settled].max())
        text = f"the filter is surprised: squared innovations are up to {worst:.1f} times what it expects"
        found.append(Alarm("surprise", worst, SURPRISE_FAR, _first(over, times), text))
    return found


def _mass_change(seen: Hindsight) -> float:
    return 1 / max(1 + seen.lightness, 0.1) - 1


def _as_believed(beliefs: Belief, body: Body, params: QuadrotorParams) -> Hindsight:
    """What the filter believed at the time, for records that do not hold what it measured."""
    mean, covariance = np.asarray(beliefs.mean), np.asarray(beliefs.covariance, float)
    thrust, drag, _, _ = still_forces(body, params)
    lightness = 1 / (1 + float(mean[-1, 3])) - 1
    stds = np.sqrt(np.diagonal(covariance[-1]))
    return Hindsight(
        mean[:, :3].astype(np.float32), covariance[:, :3, :3], lightness, float(stds[3]), float(mean[-1, 4]),
        float(stds[4]), float(params.force_noise), thrust, drag,
    )  # fmt: skip


def review(beliefs: Belief, body: Body, times: Float[np.ndarray, " T"], params: QuadrotorParams) -> Hindsight:
    """Look back on a flight, time first; the force's covariance holds every doubt named above."""
    found = look_back(beliefs, body, times, params)
    seen = _as_believed(beliefs, body, params) if found is None else found
    side = np.hypot(seen.force[:, 0], seen.force[:, 1])[:, None]
    lean = seen.thrust / np.maximum(seen.thrust[:, 2:], 1e-3) * [1.0, 1.0, 0.0]
    mass, drag = _mass_change(seen), seen.drag_change
    parts = [mass * seen.force, WIND_LIFT * side * lean]
    if abs(mass) > MASS_FAR:
        parts.append(LEAST_SHARE * seen.lightness * (seen.thrust + seen.drag))
    if abs(drag) > DRAG_FAR:
        parts.append(LEAST_SHARE * drag * seen.drag)
    excess = np.maximum(1.0, np.asarray(beliefs.watch.surprise, float))[:, None, None]
    covariance = excess * seen.covariance + sum(part[:, :, None] * part[:, None] for part in parts)
    return seen._replace(covariance=covariance.astype(np.float32))


def _beliefs(log: FlightLog) -> Belief:
    """The beliefs of a record, time first."""
    return jax.tree.map(lambda *parts: np.stack(parts), *(d.inputs.belief for d in log.decisions))


def log_hindsight(log: FlightLog) -> tuple[Hindsight, list[Alarm]]:
    """Look back on a record: the force at every decision, and what does not fit."""
    times = np.array([float(d.inputs.time) for d in log.decisions])
    body: Body = jax.tree.map(lambda *parts: np.stack(parts), *(d.inputs.body for d in log.decisions))
    beliefs = _beliefs(log)
    seen = review(beliefs, body, times, log.params)
    return seen, flight_alarms(beliefs, seen, log.params, times)
