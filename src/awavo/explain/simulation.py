"""Simulated flights, every decision explained: compiled in one piece for experiments, step by step for records."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.belief import start_belief, take_in
from awavo.control.flight_model import motor_pwm
from awavo.control.flight_planner import DecisionInputs, FlightDecision, flight_planner, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.errors import InputError
from awavo.explain.measures import influences, mean_parts, measure_weights
from awavo.tasks.quadrotor.flight import ACTION_HIGH, ACTION_LOW, FLIGHT_TASKS, FlightState, flight_functions, mark_time
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference, reference_function
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.types import Box

__all__ = [
    "FlightTrace", "at_mark", "decide_from", "explained_flight", "flight_params", "flight_steps",
]  # fmt: skip

# A filter with a time constant of about 0.1 s.
FORCE_WALK = 0.3


class FlightTrace(NamedTuple):
    """A flight, time first: measures of every decision, what the vehicle met, and how well it flew."""

    influence: Float[Array, "T 2"]
    shares: Float[Array, "T 2"]
    together: Float[Array, " T"]
    motors: Float[Array, "T 3 4"]
    log_likelihood: Float[Array, "T S K"]
    effective_size: Float[Array, " T"]
    inputs: DecisionInputs
    true_force: Float[Array, "T 3"]
    error: Float[Array, " T"]
    clearance: Float[Array, " T"]
    costs: Float[Array, "T 2"]
    alive: Array


def flight_params(task: str, **physics: float) -> QuadrotorParams:
    """Return the vehicle and surroundings of a flight task, as arrays."""
    if task not in FLIGHT_TASKS:
        raise InputError(f"no flight task is named '{task}': expected one of {', '.join(FLIGHT_TASKS)}.")
    wind, obstacles = FLIGHT_TASKS[task]
    values = {"wind_on": wind, "obstacles_on": obstacles, "force_walk": FORCE_WALK, **physics}
    unknown = set(values) - set(QuadrotorParams._fields)
    if unknown:
        raise InputError(f"{', '.join(sorted(unknown))} is no number of the quadrotor.")
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), QuadrotorParams(**values))


def decide_from(
    inputs: DecisionInputs,
    params: QuadrotorParams,
    config: PlannerConfig,
    seen: int | Array = 3,
    reference: Reference = FIGURE_OF_EIGHT,
) -> FlightDecision:
    """Make the decision of these inputs (again)."""
    return flight_planner(params, reference_function(reference), config).decide(*inputs, seen)


def flight_steps(
    reference: Reference = FIGURE_OF_EIGHT,
) -> tuple[Callable[..., FlightState], Callable[..., tuple[FlightState, tuple[Array, ...]]]]:
    """Return `reset(key, params)` and `step(key, state, action, params)`."""
    wanted = reference_function(reference)
    bare_reset, bare_step = flight_functions(wanted, Box(ACTION_LOW, ACTION_HIGH))

    def reset(key, params):
        return bare_reset(key, params)[0]

    def step(key, state, action, params):
        state, out = bare_step(key, state, action, params)
        error = jnp.linalg.norm(wanted(state.time, params).position - state.body.position)
        return state, (error, clearance(state.forest, state.body.position, params), out.costs, out.terminated)

    return reset, step


def explained_flight(
    seed: int | Array,
    params: QuadrotorParams,
    config: PlannerConfig,
    steps: int = 500,
    seen: int | Array = 3,
    shuffled: bool = False,
) -> FlightTrace:
    """Fly and explain every decision; compile it with `jax.jit` (static: config, steps, shuffled).

    `seen` is the coalition of factors that the planner acts on: 3 for all, 2 with the wind hidden, 1 with the
    obstacles hidden. With `shuffled` the trace's influences are those of the flight's force estimates in random order.
    """
    reset, advance = flight_steps()
    key = jax.random.key(seed)

    def one(carry, t):
        state, particles, belief, alive = carry
        plan_key, step_key = jax.random.split(jax.random.fold_in(key, t))
        belief = take_in(belief, state, params)
        inputs = DecisionInputs(plan_key, state.body, state.time, belief, particles, state.forest)
        decision = decide_from(inputs, params, config, seen)
        found = measure_weights(decision.weights)
        pwm = motor_pwm(decision.commands, state.body.rates[:, None], params).T
        motors = mean_parts(decision.weights, pwm)
        force = state.true_force
        state, (error, gap, costs, hit) = advance(step_key, state, decision.action, params)
        row = FlightTrace(
            *found, motors, decision.log_likelihood, decision.effective_size, inputs, force, error, gap, costs, alive,
        )  # fmt: skip
        return (state, decision.particles, belief, alive & ~hit), row

    start = reset(jax.random.fold_in(key, 2**20), params)
    carry = (start, start_particles(config), start_belief(), jnp.array(True))
    trace = jax.lax.scan(one, carry, jnp.arange(steps))[1]
    if not shuffled:
        return trace
    order = jax.random.permutation(jax.random.fold_in(key, 2**21), steps)
    belief = jax.tree.map(lambda x: x[order], trace.inputs.belief)

    def again(inputs):
        return influences(decide_from(inputs, params, config).weights)

    return trace._replace(influence=jax.lax.map(again, trace.inputs._replace(belief=belief)))


def at_mark(time: Float[Array, " T"], params: QuadrotorParams, index: int = 2, half_width: float = 0.5) -> Array:
    """Say which decisions fall within half a second of passing a reference state RS."""
    period = mark_time(8, params)
    gap = jnp.abs((time - mark_time(index, params) + period / 2) % period - period / 2)
    return gap <= half_width
