r"""Where the vehicle is not the one that the filter was told: alarms, and how much less the force is then known.

Alarms rest on the whole record: mass (or thrust) and drag far from what was told, noise above what was told, and
innovations larger than the filter expects. They are shown with every finding. The force at each decision is then known
less well than the filter said at the time,

.. math::  \Sigma' = s\,\Sigma_f + b^2 (h_m h_m^\top + h_d h_d^\top) + (\delta_m f)(\delta_m f)^\top + l l^\top ,

with the innovations' excess s, and :math:`h = H (\delta_{end} - \delta_t)`, the force that mass and drag explain by
the end of the flight and did not yet explain then (b = `BIAS`: it is off to one side, and by
more than is known; at least `LEAST_SHARE` of a parameter that raised an alarm stays in doubt). The
third term is what a wrong mass changes about the force itself, and a wrong thrust does not: the balance cannot tell
these two apart. The last one is the lift of wind on a leaning vehicle, taken for thrust: `WIND_LIFT` of the sideways
force, times the lean.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from awavo.control.belief import Belief
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, rotor_forces, thrust_axis
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Alarm", "alarm_text", "flight_alarms", "force_doubt", "log_alarms", "log_doubt"]

# What counts as far: a mass or thrust off by 5%, drag by 60%, noise of twice the deviation told, squared innovations
# of half as much again as expected.
MASS_FAR, DRAG_FAR, NOISE_FAR, SURPRISE_FAR = 0.05, 0.6, 2.0, 1.5
BIAS, WIND_LIFT, LEAST_SHARE = 2.0, 0.2, 0.2
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


def flight_alarms(beliefs: Belief, params: QuadrotorParams, times: Float[np.ndarray, " T"]) -> list[Alarm]:
    """Return what does not fit in a flight's beliefs, time first."""
    mean = np.asarray(beliefs.mean, float)
    noise = np.sqrt(np.maximum(np.asarray(beliefs.watch.noise, float), 0)) / float(params.force_noise)
    surprise = np.asarray(beliefs.watch.surprise, float)
    settled = np.arange(len(mean)) >= min(SETTLED, len(mean) - 1)
    found = []
    mass, drag = float(mean[-1, 3]), float(mean[-1, 4])
    if abs(mass) > MASS_FAR:
        start = _first(np.abs(mean[:, 3]) > MASS_FAR, times)
        text = f"the vehicle acts as if its mass were {mass:+.0%} (or its thrust {1 / (1 + mass) - 1:+.0%}) off"
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


def _doubted(values: Float[np.ndarray, " T"], far: float) -> Float[np.ndarray, " T"]:
    """How far a parameter still was from where it ended."""
    last = float(values[-1])
    return np.maximum(np.abs(last - values), LEAST_SHARE * abs(last) * (abs(last) > far))


def force_doubt(beliefs: Belief, body: Body, params: QuadrotorParams) -> Float[np.ndarray, "T 3 3"]:
    """Return the covariance of the force at every decision, seen from the end of the flight."""
    columns: Body = jax.tree.map(lambda x: jnp.moveaxis(jnp.asarray(x), -1, 0), body)
    drag = np.asarray(rotate(columns.attitude, body_drag(columns.attitude, columns.velocity, 1.0, params))).T
    thrust = np.asarray(rotor_forces(columns.rotors, params).sum(0) * thrust_axis(columns.attitude)).T
    mean = np.asarray(beliefs.mean, float)
    lightness = 1 / (1 + mean[:, 3])
    later = _doubted(lightness - 1, MASS_FAR)[:, None] * (thrust + drag)
    side = np.hypot(mean[:, 0], mean[:, 1])
    lift = WIND_LIFT * side[:, None] * thrust / np.maximum(thrust[:, 2:], 1e-3) * [1.0, 1.0, 0.0]
    parts = [BIAS * later, BIAS * drag * _doubted(mean[:, 4], DRAG_FAR)[:, None], mean[:, :3] * mean[:, 3:4], lift]
    excess = np.maximum(1.0, np.asarray(beliefs.watch.surprise, float))[:, None, None]
    covariance = excess * np.asarray(beliefs.covariance, float)[:, :3, :3]
    return (covariance + sum(part[:, :, None] * part[:, None] for part in parts)).astype(np.float32)


def _beliefs(log: FlightLog) -> Belief:
    """The beliefs of a record, time first."""
    return jax.tree.map(lambda *parts: np.stack(parts), *(d.inputs.belief for d in log.decisions))


def log_alarms(log: FlightLog) -> list[Alarm]:
    """Return what does not fit in a record."""
    return flight_alarms(_beliefs(log), log.params, np.array([float(d.inputs.time) for d in log.decisions]))


def log_doubt(log: FlightLog) -> Float[np.ndarray, "T 3 3"]:
    """Return the covariance of the force at every decision of a record, seen from its end."""
    body = jax.tree.map(lambda *parts: np.stack(parts), *(d.inputs.body for d in log.decisions))
    return force_doubt(_beliefs(log), body, log.params)
