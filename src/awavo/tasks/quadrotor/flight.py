r"""Flight tasks: track a reference in wind (FT1), among obstacles (FT2), in both (FT3), or in neither (FT0).

A step of 20 ms holds one action (collective thrust per mass and body rates, or four throttles) over ten steps of the
inner loop and the plant at 500 Hz. With position and velocity errors :math:`e, \dot e`,

.. math::  r = -\lVert e \rVert - w_v \lVert \dot e \rVert - w_a \lVert a - a_{hover} \rVert^2 .

Costs: `clearance`, from 0 at 0.3 m to 1 at the collision radius (a collision costs `collision_cost` and ends the
episode), and `envelope`, 1 where the tilt exceeds 30 degrees or a rotor is at its bound. Wind and obstacles are
parameters, so the same key with a factor switched off gives the same flight without it. Reference states RS 00 to RS 07
mark eighths of the reference; RS 02 lies in the wind zone and near the first obstacle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.checks import check_choice, check_limits, check_physics
from awavo.errors import InputError
from awavo.tasks.base import Transition, auto_reset, declare_physics
from awavo.tasks.quadrotor.body import (
    Body,
    body_drag,
    euler_step,
    hovering,
    rotate,
    rotor_forces,
    throttle_forces,
    thrust_axis,
)
from awavo.tasks.quadrotor.force_filter import ForceFilter, start_filter, update_filter
from awavo.tasks.quadrotor.forest import Forest, clearance, distances, plant_forest, proximity_push
from awavo.tasks.quadrotor.observed import UNKNOWN, UNKNOWN_MASS, observed_step
from awavo.tasks.quadrotor.params import QuadrotorParams, hover_speed
from awavo.tasks.quadrotor.rate_loop import RateLoop, rate_loop, start_loop
from awavo.tasks.quadrotor.references import RefFn, make_reference
from awavo.tasks.quadrotor.wind import start_gusts, step_gusts, wind_at
from awavo.types import Box, Env, EnvSpec

__all__ = [
    "DT", "FLIGHT_TASKS", "FlightState", "MARKS", "PLANT_DT", "SUBSTEPS", "fly", "flight_functions", "mark_time",
    "observe", "quadrotor",
]  # fmt: skip

# Shares of wind and of obstacles: 0 switches a factor off.
FLIGHT_TASKS = {"FT0": (0.0, 0.0), "FT1": (1.0, 0.0), "FT2": (0.0, 1.0), "FT3": (1.0, 1.0)}
COST_NAMES = ("clearance", "envelope")
POSITIVE = (
    "mass", "arm", "inertia_x", "inertia_y", "inertia_z", "thrust_coefficient", "torque_ratio", "rotor_inertia",
    "motor_time", "thrust_max", "zone_radius", "zone_edge", "gust_length", "gust_speed", "gust_time",
    "collision_radius", "proximity_length",
)  # fmt: skip
SUBSTEPS, PLANT_DT = 10, 0.002
DT = SUBSTEPS * PLANT_DT
MARKS = 8
# What the policy sees ahead: the reference after these seconds, and so many of the nearest obstacles.
LOOKAHEAD = (0.2, 0.4, 0.8)
NEAREST = 3
OBS_DIM = 3 + 3 + 9 + 3 + 3 + 3 * len(LOOKAHEAD) + 3 * NEAREST
# Thrust per mass in m/s^2, body rates in rad/s.
ACTION_LOW = (0.0, -6.0, -6.0, -3.0)
ACTION_HIGH = (20.0, 6.0, 6.0, 3.0)


class FlightState(NamedTuple):
    """The vehicle, its inner loop and filter, the air, the forest, and the time on the reference.

    `true_force` is what the filter looks for: wind and obstacles, without drag in still air. `thrust` is the last
    step's mean thrust and `felt` its mean acceleration without gravity, as measured, both in the world frame.
    """

    body: Body
    loop: RateLoop
    filter: ForceFilter
    air: Float[Array, " 5"]
    forest: Forest
    time: Float[Array, ""]
    gust_start: Float[Array, ""]
    true_force: Float[Array, " 3"]
    thrust: Float[Array, " 3"]
    felt: Float[Array, " 3"]


def mark_time(index: int, params: QuadrotorParams) -> Array:
    """Time of a reference state RS: an eighth of the period each."""
    return jnp.asarray(index * 2 * jnp.pi / (MARKS * params.reference_rate))


def fly(
    body: Body,
    loop: RateLoop,
    action: Float[Array, "4 ..."],
    wind: Float[Array, "3 ..."],
    external: Float[Array, "3 ..."],
    params: QuadrotorParams,
    motors: bool = False,
    substeps: int = SUBSTEPS,
) -> tuple[Body, RateLoop, Float[Array, "3 ..."], Array]:
    """Hold an action over one step; return vehicle, loop, mean thrust vector and whether a rotor was at its bound."""

    def substep(_, carry):
        body, loop, total, bound = carry
        if motors:
            forces = throttle_forces(action, params)
            commands, at_bound = jnp.sqrt(forces / params.thrust_coefficient), jnp.any(action >= 1.0, 0)
        else:
            loop, commands, at_bound = rate_loop(
                loop, body.rates, params.mass * action[0], action[1:], params, PLANT_DT
            )
        thrust = jnp.sum(rotor_forces(body.rotors, params), 0) * thrust_axis(body.attitude)
        body = euler_step(body, commands, wind, external, params, PLANT_DT)
        return body, loop, total + thrust / substeps, bound | at_bound

    start = (body, loop, jnp.zeros_like(body.position), jnp.zeros(body.position.shape[1:], bool))
    return jax.lax.fori_loop(0, substeps, substep, start)


def observe(state: FlightState, reference: RefFn, params: QuadrotorParams) -> Float[Array, " d"]:
    """Return what a policy sees: errors, axes and rates, the estimated force, the way ahead, the nearest obstacles."""
    body = state.body
    wanted = reference(state.time, params)
    axes = [rotate(body.attitude, axis) for axis in jnp.eye(3)]
    ahead = [reference(state.time + t, params).position - body.position for t in LOOKAHEAD]
    gaps = jnp.where(jnp.asarray(params.obstacles_on) > 0, distances(state.forest, body.position), 1e3)
    near = jax.lax.top_k(-gaps, NEAREST)[1]
    towards = jnp.stack([state.forest.x[near], state.forest.y[near]], 1) - body.position[:2]
    unit = towards / jnp.maximum(jnp.linalg.norm(towards, axis=1, keepdims=True), 1e-6)
    # As the lidars of the goal tasks do: e^-d, so that far obstacles fade.
    shown = jnp.exp(-jnp.maximum(gaps[near], 0.0))
    parts = [
        wanted.position - body.position, wanted.velocity - body.velocity, *axes, body.rates, state.filter.force,
        *ahead, (unit * shown[:, None]).ravel(), shown,
    ]  # fmt: skip
    return jnp.concatenate(parts)


def _measure(state: FlightState, before: Body, key: Array, params: QuadrotorParams) -> FlightState:
    """Feed the filter with the step's mean accelerations and the velocity at its end, both with noise."""
    body, thrust = state.body, state.thrust
    force_key, velocity_key = jax.random.split(key)
    gravity = jnp.array([0.0, 0.0, 1.0]) * params.gravity
    # The accelerometer feels everything but gravity; what thrust and still air explain is taken off.
    still = rotate(body.attitude, body_drag(body.attitude, body.velocity, 1.0, params))
    noise = params.force_noise / params.mass * jax.random.normal(force_key, (3,))
    felt = (body.velocity - before.velocity) / DT + gravity + noise
    seen = body.velocity + params.velocity_noise * jax.random.normal(velocity_key, (3,))
    push = thrust + still - params.mass * gravity
    found = update_filter(state.filter, push, params.mass * felt - thrust - still, seen, params, DT)
    return state._replace(filter=found, felt=felt)


def quadrotor(
    *,
    task: str = "FT3",
    reference: str = "lissajous",
    waypoints: Sequence[Sequence[float]] | None = None,
    speed: float = 1.5,
    actuation: str = "rates",
    num_obstacles: int = 30,
    reference_gap: float = 0.25,
    spacing: float = 0.8,
    cost_limits: Sequence[float] = (2.0, 5.0),
    horizon: int = 500,
    **physics: float,
) -> Env:
    """Build a flight task; `physics` overrides fields of `QuadrotorParams`.

    `actuation` is "rates" (thrust per mass and body rates) or "motors" (four throttles); `waypoints` and `speed` are
    for the reference "snap". Obstacles keep `reference_gap` from the reference and `spacing` from each other.
    """
    check_choice("task", task, tuple(FLIGHT_TASKS))
    check_choice("actuation", actuation, ("rates", "motors"))
    if not speed > 0:
        raise InputError(f"speed={speed} must be > 0.")
    if num_obstacles < 1 or reference_gap < 0 or spacing < 0:
        raise InputError(
            f"num_obstacles={num_obstacles} must be >= 1, reference_gap={reference_gap} and spacing={spacing} >= 0; "
            "task=FT0 or FT1 flies without obstacles."
        )
    wind_on, obstacles_on = FLIGHT_TASKS[task]
    params = QuadrotorParams(**{"wind_on": wind_on, "obstacles_on": obstacles_on, **physics})
    check_physics(params, POSITIVE, signed=("wind_x", "wind_y", "wind_z", "reference_x", "reference_y"))
    if params.mass * params.gravity >= 4 * params.thrust_max:
        raise InputError(f"mass={params.mass} must be below what four rotors of {params.thrust_max} N lift.")
    reference_fn = make_reference(reference, waypoints, speed)
    space = Box((0.0,) * 4, (1.0,) * 4) if actuation == "motors" else Box(ACTION_LOW, ACTION_HIGH)
    spec = EnvSpec("quadrotor", OBS_DIM, space, horizon, COST_NAMES, check_limits(cost_limits, COST_NAMES))

    reset, step = flight_functions(reference_fn, space, num_obstacles, reference_gap, spacing)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)

    def follow(obs: Float[Array, " d"], action: Float[Array, " 4"], params: QuadrotorParams) -> Transition:
        return observed_step(obs, jnp.clip(action, low, high), params, LOOKAHEAD, DT, actuation == "motors")

    declared = declare_physics(params, UNKNOWN_MASS if actuation == "motors" else UNKNOWN, follow)
    return auto_reset(spec, params, reset, step, lazy=True, physics=declared)


def flight_functions(
    reference_fn: RefFn, space: Box, num_obstacles: int = 30, reference_gap: float = 0.25, spacing: float = 0.8
) -> tuple[Callable[..., tuple[FlightState, Array]], Callable[..., tuple[FlightState, Transition]]]:
    """Build the bare `reset(key, params)` and `step(key, state, action, params)`, without time limit and auto-reset."""
    motors = space.high == (1.0,) * 4
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)

    def reset(key, params):
        forest_key, air_key, place_key, gust_key, phase_key = jax.random.split(key, 5)
        time = jax.random.uniform(phase_key) * mark_time(1, params)
        times = jnp.linspace(0.0, 1.0, 160) * mark_time(MARKS, params)
        path = reference_fn(times, params).position.T
        mark = reference_fn(mark_time(2, params), params).position
        forest = plant_forest(forest_key, path, mark, num_obstacles, reference_gap, spacing)
        wanted = reference_fn(time, params)
        body = hovering(wanted.position + 0.05 * jax.random.normal(place_key, (3,)), params)
        body = body._replace(velocity=wanted.velocity)
        gust = jax.random.uniform(gust_key) * mark_time(MARKS, params)
        state = FlightState(
            body, start_loop(body.rates), start_filter(body.velocity), start_gusts(air_key), forest, time, gust,
            jnp.zeros(3), params.mass * params.gravity * jnp.eye(3)[2], params.gravity * jnp.eye(3)[2],
        )  # fmt: skip
        return state, observe(state, reference_fn, params)

    def step(key, state, action, params):
        air_key, noise_key = jax.random.split(key)
        action = jnp.clip(action, low, high)
        before = state.body
        mark = reference_fn(mark_time(2, params), params).position
        wind = wind_at(before.position, mark, state.time, state.gust_start, state.air, params)
        external = proximity_push(state.forest, before.position, params)
        body, loop, thrust, bound = fly(before, state.loop, action, wind, external, params, motors)
        # What the filter looks for: the drag that wind adds to that of still air, and the push of obstacles.
        share = jnp.sum(body.rotors) / (4 * hover_speed(params))
        blown = body_drag(body.attitude, body.velocity - wind, share, params)
        still = body_drag(body.attitude, body.velocity, share, params)
        force = rotate(body.attitude, blown - still) + external
        state = state._replace(
            body=body, loop=loop, air=step_gusts(air_key, state.air, DT, params), time=state.time + DT,
            true_force=force, thrust=thrust,
        )  # fmt: skip
        state = _measure(state, before, noise_key, params)
        wanted = reference_fn(state.time, params)
        gap = clearance(state.forest, body.position, params)
        hit = (gap < params.collision_radius) | (body.position[2] < params.collision_radius)
        # The cost grows from 0 at the clearance to 1 at the collision radius.
        near = jnp.clip((params.clearance - gap) / (params.clearance - params.collision_radius), 0.0, 1.0)
        tilt = thrust_axis(body.attitude)[2]
        outside = (tilt < jnp.cos(params.tilt_limit)) | bound
        close = jnp.where(hit, jnp.asarray(params.collision_cost), near)
        costs = jnp.stack([close, outside.astype(jnp.float32)])
        effort = jnp.sum((action - jnp.array([1.0, 0, 0, 0]) * params.gravity) ** 2) if not motors else 0.0
        reward = (
            -jnp.linalg.norm(wanted.position - body.position)
            - params.velocity_weight * jnp.linalg.norm(wanted.velocity - body.velocity)
            - params.effort_weight * 0.01 * effort
        )
        return state, Transition(observe(state, reference_fn, params), reward, costs, hit)

    return reset, step
