"""Fly in simulation and log every decision; make logged decisions again and compare them bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.belief import start_belief, take_in
from awavo.control.flight_planner import DEFAULT, DecisionInputs, FlightDecision, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.explain.record import FIELDS, DecisionLog, FlightLog
from awavo.explain.simulation import decide_from, flight_params, flight_steps
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["ReplayCheck", "decide_compiled", "record_flight", "replay_log"]

# Sums split over threads round otherwise: without this a flight recorded in Python did not replay on the command line.
PINNED = {"xla_cpu_multi_thread_eigen": False}


class ReplayCheck(NamedTuple):
    """How many decisions were made again, of how many, and the numbers of those that did not come out as logged."""

    decisions: int
    differing: list[int]
    of: int


@lru_cache(maxsize=8)
def decide_compiled(config: PlannerConfig, reference: Reference = FIGURE_OF_EIGHT):
    """The one compiled program that decides, for flying, for replay and for asking again."""
    return jax.jit(
        lambda inputs, params: decide_from(inputs, params, config, reference=reference), compiler_options=PINNED
    )


def _single(params: QuadrotorParams) -> QuadrotorParams:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)


def record_flight(
    path: str | Path,
    *,
    task: str = "FT3",
    seed: int = 0,
    steps: int = 600,
    config: PlannerConfig = DEFAULT,
    physics: Mapping[str, float] | None = None,
    reference: Reference = FIGURE_OF_EIGHT,
    about: Mapping[str, object] | None = None,
) -> dict[str, int | bool]:
    """Fly a task in simulation with the planner and write its record; a collision ends the flight."""
    params = flight_params(task, **(physics or {}))
    reset, advance, learn = (jax.jit(f) for f in (*flight_steps(reference), take_in))
    decide, key = decide_compiled(config, reference), jax.random.key(seed)
    # Without the weak types of a fresh state the first decision is made by the same program as all others.
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), reset(jax.random.fold_in(key, 2**20), params))
    belief, particles = start_belief(), start_particles(config)
    head = {"task": task, "seed": seed, "steps": steps, "simulated": True, **(about or {})}
    collided, made = False, 0
    with DecisionLog(Path(path), config, params, jax.device_get(state.forest), head, reference) as log:
        for t in range(steps):
            plan_key, step_key = jax.random.split(jax.random.fold_in(key, t))
            belief = learn(belief, state, params)
            inputs = DecisionInputs(plan_key, state.body, state.time, belief, particles, state.forest)
            decision: FlightDecision = decide(inputs, params)
            true_force = state.true_force
            state, (error, gap, costs, hit) = advance(step_key, state, decision.action, params)
            extra = {"true_force": true_force, "error": error, "clearance": gap, "costs": costs, "hit": hit}
            log.add(inputs, decision._asdict(), extra)
            particles, collided, made = decision.particles, bool(hit), t + 1
            if collided:
                break
    return {"decisions": made, "collision": collided}


def replay_log(log: FlightLog, every: int = 1, after_each: Callable[[], object] | None = None) -> ReplayCheck:
    """Make logged decisions again from their inputs, every one or every so many, and compare all bits of what came out.

    `after_each` is called after each of them.
    """
    decide, params = decide_compiled(log.config, log.reference), _single(log.params)
    differing, chosen = [], log.decisions[::every]
    for logged in chosen:
        found = jax.device_get(decide(logged.inputs, params))._asdict()
        same = all(np.asarray(found[n]).tobytes() == np.asarray(logged.outcome[n]).tobytes() for n in FIELDS)
        if not same:
            differing.append(logged.number)
        if after_each is not None:
            after_each()
    return ReplayCheck(len(chosen), differing, len(log.decisions))
