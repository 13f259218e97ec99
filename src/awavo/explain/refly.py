"""The same flight flown again in the model, closed loop: with everything, and without one factor at a time.

The plant is the nominal vehicle under the force that the whole record shows, step by step; the planner decides anew
from where it then is, with the beliefs of the record. What a factor cost is the difference between the flights, not
between plans of one instant. All flights are one compiled program, in pieces of `PIECE` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.belief import Belief
from awavo.control.flight_planner import flight_planner, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.explain.flight_factors import Situation, flight_factor
from awavo.explain.hindsight import Hindsight
from awavo.explain.record import FlightLog
from awavo.explain.recording import PINNED
from awavo.tasks.quadrotor.flight import DT, fly
from awavo.tasks.quadrotor.flight_path import Reference, reference_function
from awavo.tasks.quadrotor.forest import Forest, clearance
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.rate_loop import start_loop

__all__ = ["EVERYTHING", "LONGEST_S", "Reflown", "pieces", "refly", "refly_all"]

EVERYTHING = "with everything"
LONGEST_S, PIECE = 30.0, 50
# Drag and mass belong to the vehicle: without them it is another one.
REMOVABLE = ("wind", "obstacle")


class Reflown(NamedTuple):
    """A flight of the model, one row a step: error to the reference and clearance in m."""

    time: np.ndarray
    position: np.ndarray
    error: np.ndarray
    clearance: np.ndarray


class _World(NamedTuple):
    """What a flight is flown in, beside its beliefs: forces and obstacles, where the factor leaves them."""

    params: QuadrotorParams
    forest: Forest
    wind: np.ndarray


@lru_cache(maxsize=4)
def _program(config: PlannerConfig, reference: Reference):
    wanted = reference_function(reference)

    @partial(jax.jit, compiler_options=PINNED)
    def run(key, carry, beliefs: Belief, forces, world: _World):
        """Fly `PIECE` steps; where `world.wind` is 0, without the force and with the belief that there is none."""
        plan = flight_planner(world.params, wanted, config).plan

        def one(carry, inputs):
            body, loop, particles, time, k = carry
            belief, force = inputs
            belief = belief._replace(mean=belief.mean.at[:3].multiply(world.wind))
            found = plan(jax.random.fold_in(key, k), body, time, belief, particles, world.forest)
            body, loop, _, _ = fly(body, loop, found.action, jnp.zeros(3), world.wind * force, world.params)
            time = time + DT
            error = jnp.linalg.norm(wanted(time, world.params).position - body.position)
            row = (time, body.position, error, clearance(world.forest, body.position, world.params))
            return (body, loop, found.particles, time, k + 1), row

        return jax.lax.scan(one, carry, (beliefs, forces))

    return run


def _world(log: FlightLog, factor: str | None) -> _World:
    forest = log.decisions[0].inputs.forest
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), log.params)
    if factor is not None and factor.startswith("obstacle"):
        forest = flight_factor(factor).remove(Situation(log.decisions[0].inputs.belief, forest)).forest
        if factor == "obstacles":
            params = params._replace(obstacles_on=np.float32(0.0))
    forest = jax.tree.map(lambda x: np.asarray(x, np.float32), forest)
    return _World(params, forest, np.asarray(factor != "wind", np.float32))


def _places(log: FlightLog) -> np.ndarray:
    """Which decision's belief and force each step is flown under: the last one before it; whole pieces of steps."""
    times = np.array([float(d.inputs.time) for d in log.decisions])
    length = min(float(times[-1] - times[0]), LONGEST_S)
    steps = PIECE * max(1, round(length / DT / PIECE))
    grid = times[0] + DT * np.arange(steps)
    return np.clip(np.searchsorted(times, grid + 1e-6, side="right") - 1, 0, len(times) - 1)


def pieces(log: FlightLog, names: Sequence[str]) -> int:
    """In how many pieces `refly_all` flies."""
    return 0 if len(log.decisions) < 2 else (1 + len(_removable(log, names))) * (len(_places(log)) // PIECE)


def _removable(log: FlightLog, names: Sequence[str]) -> list[str]:
    kept = [name for name in names if name.startswith(REMOVABLE)]
    return kept if float(log.params.obstacles_on) > 0 else [name for name in kept if name == "wind"]


def refly(
    log: FlightLog, seen: Hindsight, factor: str | None = None, after_each: Callable[[], object] | None = None
) -> Reflown:
    """Fly the record again from its first state for at most `LONGEST_S`, without a factor where one is named."""
    first, places = log.decisions[0].inputs, _places(log)
    beliefs: Belief = jax.tree.map(lambda *x: np.stack(x), *(log.decisions[i].inputs.belief for i in places))
    forces, world = np.asarray(seen.force, np.float32)[places], _world(log, factor)
    body = jax.tree.map(jnp.asarray, first.body)
    carry = (body, start_loop(body.rates), start_particles(log.config), jnp.asarray(first.time, jnp.float32), 0)
    carry = jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), carry)
    program, rows = _program(log.config, log.reference), []
    for k in range(0, len(places), PIECE):
        part = jax.tree.map(itemgetter(slice(k, k + PIECE)), (beliefs, forces))
        carry, found = program(first.key, carry, *part, world)
        rows.append(jax.device_get(found))
        if after_each is not None:
            after_each()
    return Reflown(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def refly_all(
    log: FlightLog, names: Sequence[str], seen: Hindsight, after_each: Callable[[], object] | None = None
) -> dict[str, Reflown]:
    """Fly it again with everything and without each factor that can be taken away; one decision is no flight."""
    if len(log.decisions) < 2:
        return {}
    without = {f"without {name}": refly(log, seen, name, after_each) for name in _removable(log, names)}
    return {EVERYTHING: refly(log, seen, None, after_each), **without}
