r"""What a flight decision is, and the analytic model that scores it.

A decision :math:`z = (\text{detour}, \text{brace})` is followed by a tracking law: four knots of an offset to the
reference over the horizon, and a force (N) that the law leans against. Both are inferred: wind moves the brace,
obstacles move the detour. The model has 13 states and draws of :math:`\theta` = (force, mass, drag); a decision costs
the tracking error, clearance below a margin and tilt above one, each summed over the horizon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.detours import detoured, flight_signals, near_path, shift_detours, turn
from awavo.control.tracking import Gains, track
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, rotor_forces, thrust_axis
from awavo.tasks.quadrotor.flight import PLANT_DT
from awavo.tasks.quadrotor.forest import Forest, clearance
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.rate_loop import rate_loop, start_loop, throttle
from awavo.tasks.quadrotor.references import RefFn

__all__ = ["FlightModel", "ModelConfig", "PWM_MIN", "flight_model", "motor_pwm"]

PWM_MIN, PWM_SPAN = 1000.0, 1000.0


class ModelConfig(NamedTuple):
    """Horizon, weights and margins of the model."""

    horizon: int = 20
    dt: float = 0.05
    num_knots: int = 4
    clearance_margin: float = 0.42
    clearance_weight: float = 60.0
    tilt_margin: float = 0.45
    tilt_weight: float = 20.0
    velocity_weight: float = 0.1
    rate_lag: float = 0.05
    lead: float = 0.06
    num_near: int = 8


class FlightModel(NamedTuple):
    """The model's functions, for one vehicle and reference."""

    imagine: Callable[..., Float[Array, "3 M K"]]
    paths: Callable[..., Float[Array, "H 3 M K"]]
    command: Callable[..., Float[Array, " 4 *K"]]
    added_thrust: Callable[..., Float[Array, "K 3"]]
    shift: Callable[..., Float[Array, "P D"]]
    near_path: Callable[..., Forest]


def motor_pwm(
    command: Float[Array, " 4 *K"], rates: Float[Array, " 3 *#K"], params: QuadrotorParams
) -> Float[Array, " 4 *K"]:
    """Return the PWM (microseconds) with which the rate loop answers a command at once, per motor."""
    loop = start_loop(jnp.broadcast_to(rates, command[1:].shape))
    speeds = rate_loop(loop, loop.rates, params.mass * command[0], command[1:], params, PLANT_DT)[1]
    return PWM_MIN + PWM_SPAN * throttle(rotor_forces(speeds, params), params)


def flight_model(
    params: QuadrotorParams, reference: RefFn, period: float, config: ModelConfig, gains: Gains | None = None
) -> FlightModel:
    """Build the model; `params` are the vehicle's nominal ones, `period` the time between decisions."""
    law = Gains() if gains is None else gains
    knots = config.num_knots
    wanted_along, (offset, rate) = detoured(reference, params, config)
    move = shift_detours(period, config)

    def drag_of(velocity, attitude):
        return rotate(attitude, body_drag(attitude, velocity, 1.0, params))

    def roll(body: Body, time, theta, candidates, forest):
        """Follow each candidate under each draw: sums of reward, clearance cost, tilt cost, and the positions."""
        wide = (theta.shape[1], candidates.shape[0])

        def spread(x):
            return jnp.broadcast_to(x.reshape(-1, 1, 1), (x.shape[0], *wide))

        brace = candidates[:, None, 3 * knots :].T / params.mass
        lightness = 1 / (1 + theta[3, :, None])
        force, drag_share = theta[:3, :, None] * (lightness / params.mass), (1 + theta[4, :, None])
        lag = 1 - jnp.exp(-config.dt / config.rate_lag)
        weight = params.gravity * jnp.array([0.0, 0.0, 1.0]).reshape(3, 1, 1)

        def step(carry, inputs):
            p, v, q, w, total = carry
            wanted, (place, speed) = inputs
            drag = drag_of(v, q) / params.mass
            command = track(p, v, q, wanted, brace + drag, params.gravity, law)
            w = w + lag * (command[1:] - w)
            q = turn(q, w, config.dt)
            axis = thrust_axis(q)
            a = command[0] * lightness * axis + force + drag * drag_share * lightness - weight
            p = p + config.dt * v + 0.5 * config.dt**2 * a
            v = v + config.dt * a
            gap = clearance(forest, p, params)
            error, drift = (jnp.sqrt(jnp.sum((there - here) ** 2, 0)) for there, here in ((place, p), (speed, v)))
            signals = flight_signals(error, drift, gap, axis[2], params, config)
            return (p, v, q, w, total + config.dt * signals), p

        start = (*(spread(x) for x in (body.position, body.velocity, body.attitude, body.rates)), jnp.zeros((3, *wide)))
        inputs = wanted_along(time, candidates[:, : 3 * knots], config.horizon)
        last, places = jax.lax.scan(step, start, inputs)
        return last[4], places

    def imagine(*inputs):
        return roll(*inputs)[0]

    def paths(*inputs):
        return roll(*inputs)[1]

    def command(body: Body, time, candidates):
        """Thrust per mass and body rates now, [4, K]."""
        wanted, _ = wanted_along(time, candidates[:, : 3 * knots], 1)
        wanted = jax.tree.map(lambda x: x[0, :, 0], wanted)
        count = candidates.shape[0]
        p, v, q = (
            jnp.broadcast_to(x[:, None], (x.shape[0], count)) for x in (body.position, body.velocity, body.attitude)
        )
        push = (candidates[:, 3 * knots :].T + drag_of(body.velocity, body.attitude)[:, None]) / params.mass
        return track(p, v, q, wanted, push, params.gravity, law)

    def added_thrust(candidates):
        """Thrust (N, world) that a decision adds now to plain tracking: against the force, and towards the detour."""
        detours = candidates[:, : 3 * knots].reshape(-1, knots, 3)
        pull = law.position * jnp.einsum("k,nkc->nc", offset[0], detours)
        pull = pull + law.velocity * jnp.einsum("k,nkc->nc", rate[0], detours)
        return params.mass * pull - candidates[:, 3 * knots :]

    def shift(decisions):
        """Move detours on by one period; braces stay."""
        return jnp.concatenate([move(decisions[:, : 3 * knots]), decisions[:, 3 * knots :]], 1)

    def near(forest, time):
        return near_path(forest, time, reference, params, config)

    return FlightModel(imagine, paths, command, added_thrust, shift, near)
