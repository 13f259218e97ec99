r"""What a flight decision is, and the analytic model in which it is followed: the one rollout of flying and explaining.

A decision :math:`z = (\text{detour}, \text{brace})` is followed by a tracking law: four knots of an offset to the
reference over the horizon, and a force (N) that the law leans against. Both are inferred: wind moves the brace,
obstacles move the detour. The model has 13 states (position, velocity, attitude, rates; rates follow their command with
a lag) and draws of :math:`\theta` = (force, mass, drag); a decision costs the tracking error, clearance below a margin
and tilt above one, each summed over the horizon. Deciding over detours instead of raw commands keeps the dimension at
15, and a plan that is not renewed in time is still a feedback law.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.detours import detoured, flight_signals, near_path, shift_detours, turn
from awavo.control.planner_config import PlannerConfig
from awavo.control.tracking import Gains, track
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, rotor_forces, thrust_axis
from awavo.tasks.quadrotor.flight import PLANT_DT
from awavo.tasks.quadrotor.forest import Forest, clearance
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.rate_loop import rate_loop, start_loop, throttle
from awavo.tasks.quadrotor.references import RefFn

__all__ = ["FlightModel", "Rollout", "PWM_MIN", "flight_model", "motor_pwm"]

PWM_MIN, PWM_SPAN = 1000.0, 1000.0


class Rollout(NamedTuple):
    """Sums of reward, clearance cost and tilt cost over the horizon; positions and commands along it."""

    signals: Float[Array, "3 M K"]
    positions: Float[Array, "H 3 M K"]
    commands: Float[Array, "H 4 M K"]


class FlightModel(NamedTuple):
    """The model's functions, for one vehicle and reference.

    `imagine(body, time, theta [5, M], decisions [K, D], forest)` follows every decision under every draw; `command` is
    what a decision does now, `added_thrust` the thrust by which it differs from plain tracking; `shift` moves decisions
    on by one period, `near_path` picks the obstacles that matter.
    """

    imagine: Callable[[Body, Array, Array, Array, Forest], Rollout]
    command: Callable[[Body, Array, Array], Float[Array, " 4 *K"]]
    added_thrust: Callable[[Array], Float[Array, "K 3"]]
    shift: Callable[[Array], Float[Array, "P D"]]
    near_path: Callable[[Forest, Array], Forest]


def motor_pwm(
    command: Float[Array, " 4 *K"], rates: Float[Array, " 3 *#K"], params: QuadrotorParams
) -> Float[Array, " 4 *K"]:
    """Return the PWM (microseconds) with which the rate loop answers a command at once, per motor."""
    loop = start_loop(jnp.broadcast_to(rates, command[1:].shape))
    speeds = rate_loop(loop, loop.rates, params.mass * command[0], command[1:], params, PLANT_DT)[1]
    return PWM_MIN + PWM_SPAN * throttle(rotor_forces(speeds, params), params)


def flight_model(params: QuadrotorParams, reference: RefFn, config: PlannerConfig) -> FlightModel:
    """Build the model; `params` are the vehicle's nominal ones."""
    gains, knots = Gains(max_rate=config.max_rate), config.num_knots
    wanted_along, (offset, rate) = detoured(reference, params, config)
    move = shift_detours(config)

    def drag_of(velocity, attitude):
        return rotate(attitude, body_drag(attitude, velocity, 1.0, params))

    def imagine(body: Body, time, theta, decisions, forest):
        wide = (theta.shape[1], decisions.shape[0])

        def spread(x):
            return jnp.broadcast_to(x.reshape(-1, 1, 1), (x.shape[0], *wide))

        # The law undoes the brace and the nominal drag; the draw's force, mass and drag are what it really meets.
        brace = decisions[:, None, 3 * knots :].T / params.mass
        lightness = 1 / (1 + theta[3, :, None])
        force, drag_share = theta[:3, :, None] * (lightness / params.mass), (1 + theta[4, :, None])
        lag = 1 - jnp.exp(-config.dt / config.rate_lag)
        weight = params.gravity * jnp.array([0.0, 0.0, 1.0]).reshape(3, 1, 1)

        def step(carry, inputs):
            p, v, q, w, total = carry
            wanted, (place, speed) = inputs
            drag = drag_of(v, q) / params.mass
            command = track(p, v, q, wanted, brace + drag, params.gravity, gains)
            w = w + lag * (command[1:] - w)
            q = turn(q, w, config.dt)
            axis = thrust_axis(q)
            a = command[0] * lightness * axis + force + drag * drag_share * lightness - weight
            p = p + config.dt * v + 0.5 * config.dt**2 * a
            v = v + config.dt * a
            gap = clearance(forest, p, params)
            # Errors count against the true reference, not the detoured one.
            error, drift = (jnp.sqrt(jnp.sum((there - here) ** 2, 0)) for there, here in ((place, p), (speed, v)))
            signals = flight_signals(error, drift, gap, axis[2], params, config)
            return (p, v, q, w, total + config.dt * signals), (p, command)

        start = (*(spread(x) for x in (body.position, body.velocity, body.attitude, body.rates)), jnp.zeros((3, *wide)))
        inputs = wanted_along(time, decisions[:, : 3 * knots], config.horizon)
        last, (positions, commands) = jax.lax.scan(step, start, inputs)
        return Rollout(last[4], positions, commands)

    def command(body: Body, time, decisions):
        """Thrust per mass and body rates now, [4, K]."""
        wanted, _ = wanted_along(time, decisions[:, : 3 * knots], 1)
        wanted = jax.tree.map(lambda x: x[0, :, 0], wanted)
        count = decisions.shape[0]
        p, v, q = (
            jnp.broadcast_to(x[:, None], (x.shape[0], count)) for x in (body.position, body.velocity, body.attitude)
        )
        push = (decisions[:, 3 * knots :].T + drag_of(body.velocity, body.attitude)[:, None]) / params.mass
        return track(p, v, q, wanted, push, params.gravity, gains)

    def added_thrust(decisions):
        """Thrust (N, world) that a decision adds now to plain tracking: against the force, and towards the detour."""
        detours = decisions[:, : 3 * knots].reshape(-1, knots, 3)
        pull = gains.position * jnp.einsum("k,nkc->nc", offset[0], detours)
        pull = pull + gains.velocity * jnp.einsum("k,nkc->nc", rate[0], detours)
        return params.mass * pull - decisions[:, 3 * knots :]

    def shift(decisions):
        """Move detours on by one period; braces stay."""
        return jnp.concatenate([move(decisions[:, : 3 * knots]), decisions[:, 3 * knots :]], 1)

    def near(forest, time):
        return near_path(forest, time, reference, params, config)

    return FlightModel(imagine, command, added_thrust, shift, near)
