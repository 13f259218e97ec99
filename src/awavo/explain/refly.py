"""The same flight flown again in the model, closed loop: with everything, and without one factor at a time.

The plant is the nominal vehicle under the force that the record believed, step by step; the planner decides anew from
where it then is. What a factor cost is the difference between the flights, not between plans of one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.belief import Belief
from awavo.control.flight_planner import flight_planner, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.explain.flight_factors import Situation, flight_factor
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.flight import DT, fly
from awavo.tasks.quadrotor.flight_path import Reference, reference_function
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.rate_loop import start_loop

__all__ = ["EVERYTHING", "LONGEST_S", "Reflown", "refly", "refly_all"]

EVERYTHING = "with everything"
LONGEST_S = 30.0
# Drag and mass belong to the vehicle: without them it is another one.
REMOVABLE = ("wind", "obstacle")


class Reflown(NamedTuple):
    """A flight of the model, one row a step: error to the reference and clearance in m."""

    time: np.ndarray
    position: np.ndarray
    error: np.ndarray
    clearance: np.ndarray


@lru_cache(maxsize=4)
def _program(config: PlannerConfig, reference: Reference):
    wanted = reference_function(reference)

    @jax.jit
    def run(key, body, forest, beliefs: Belief, start_time, params):
        plan = flight_planner(params, wanted, config).plan

        def one(carry, inputs):
            body, loop, particles, time, k = carry
            belief = inputs
            found = plan(jax.random.fold_in(key, k), body, time, belief, particles, forest)
            body, loop, _, _ = fly(body, loop, found.action, jnp.zeros(3), belief.mean[:3], params)
            time = time + DT
            error = jnp.linalg.norm(wanted(time, params).position - body.position)
            row = (time, body.position, error, clearance(forest, body.position, params))
            return (body, loop, found.particles, time, k + 1), row

        start = (body, start_loop(body.rates), start_particles(config), start_time, 0)
        return jax.lax.scan(one, start, beliefs)[1]

    return run


def refly(log: FlightLog, factor: str | None = None) -> Reflown:
    """Fly the record again from its first state for at most `LONGEST_S`, without a factor where one is named."""
    first = log.decisions[0].inputs
    times = np.array([float(d.inputs.time) for d in log.decisions])
    length = min(float(times[-1] - times[0]), LONGEST_S)
    # The belief at every step: the one of the last decision before it. A whole second more or less is one program.
    grid = times[0] + DT * np.arange(max(1, round(length / DT)))
    places = np.clip(np.searchsorted(times, grid + 1e-6, side="right") - 1, 0, len(times) - 1)
    beliefs: Belief = jax.tree.map(
        lambda *x: jnp.asarray(np.stack(x)), *(log.decisions[i].inputs.belief for i in places)
    )
    forest = jax.tree.map(jnp.asarray, first.forest)
    if factor is not None:
        remove = flight_factor(factor).remove
        beliefs, forest = jax.vmap(lambda b: tuple(remove(Situation(b, forest))), out_axes=(0, None))(beliefs)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), log.params)
    if factor is not None and factor.startswith("obstacles"):
        params = params._replace(obstacles_on=jnp.float32(0.0))
    body = jax.tree.map(jnp.asarray, first.body)
    start = jnp.asarray(first.time, jnp.float32)
    return Reflown(
        *map(np.asarray, _program(log.config, log.reference)(first.key, body, forest, beliefs, start, params))
    )


def refly_all(log: FlightLog, names: Sequence[str]) -> dict[str, Reflown]:
    """Fly it again with everything and without each factor that can be taken away; one decision is no flight."""
    if len(log.decisions) < 2:
        return {}
    kept = [name for name in names if name.startswith(REMOVABLE)]
    if float(log.params.obstacles_on) == 0:
        kept = [name for name in kept if not name.startswith("obstacle")]
    return {EVERYTHING: refly(log), **{f"without {name}": refly(log, name) for name in kept}}
