"""Policies for the flight tasks that see the vehicle's estimated state: the tracking law, and AWaVO's planner."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.control.belief import Belief, start_belief, take_in
from awavo.control.flight_planner import DEFAULT, FlightPlan, flight_planner, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.control.tracking import Gains, track
from awavo.tasks.base import Clocked, check_choice
from awavo.tasks.quadrotor.body import body_drag, rotate
from awavo.tasks.quadrotor.flight import FlightState
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn, lissajous
from awavo.types import Env

__all__ = ["FlightMemory", "awavo_step", "flight_policy", "start_memory", "tick_plan"]


class FlightMemory(NamedTuple):
    """What the planner's policy keeps between decisions: the posterior over decisions and p_D(theta)."""

    particles: Float[Array, "P D"]
    belief: Belief


# The tracking law keeps nothing.
Memory = FlightMemory | tuple[()]


def start_memory(config: PlannerConfig = DEFAULT) -> FlightMemory:
    """No detour and no brace, and the prior."""
    return FlightMemory(start_particles(config), start_belief())


def awavo_step(
    nominal: QuadrotorParams, reference: RefFn = lissajous, config: PlannerConfig = DEFAULT
) -> Callable[[Array, FlightState, FlightMemory], tuple[FlightPlan, FlightMemory]]:
    """Build one step of the policy: take in the last measurement, then plan."""
    planner = flight_planner(nominal, reference, config)

    def step(key, state, memory):
        belief = take_in(memory.belief, state, nominal)
        plan = planner.plan(key, state.body, state.time, belief, memory.particles, state.forest)
        return plan, FlightMemory(plan.particles, belief)

    return step


def tick_plan(plan: FlightPlan, dt: float, period: float) -> Float[np.ndarray, "T 4"]:
    """Spread a plan over the ticks of a control loop: its action now, then the model's commands, held between."""
    commands = np.asarray(plan.ahead)
    ticks = np.arange(1, int(len(commands) * dt / period))
    later = commands[np.minimum((ticks * period / dt).astype(int), len(commands) - 1)]
    return np.concatenate([np.asarray(plan.action)[None], later])


def flight_policy(
    env: Env, name: str, config: PlannerConfig = DEFAULT, reference: RefFn = lissajous
) -> tuple[Callable[[Array, Clocked, Array, Memory], tuple[Array, Memory]], Memory]:
    """Return `decide(key, state, obs, memory) -> (action, memory)` and the memory to start with.

    "track" is the tracking law with the filter's force, "awavo" the planner. `reference` must be the task's.
    """
    check_choice("policy", name, ("track", "awavo"))
    params = env.params
    if name == "track":

        def follow(key, state, obs, memory):
            inner = state.inner
            body = inner.body
            drag = rotate(body.attitude, body_drag(body.attitude, body.velocity, 1.0, params))
            push = (inner.filter.force + drag) / params.mass
            wanted = reference(inner.time, params)
            lead = reference(inner.time + config.lead, params).acceleration
            wanted = wanted._replace(acceleration=lead)
            return track(body.position, body.velocity, body.attitude, wanted, push, params.gravity, Gains()), memory

        return jax.jit(follow), ()
    step = awavo_step(params, reference, config)

    def decide(key, state, obs, memory):
        plan, memory = step(key, state.inner, memory)
        return plan.action, memory

    return jax.jit(decide), jax.tree.map(jnp.asarray, start_memory(config))
