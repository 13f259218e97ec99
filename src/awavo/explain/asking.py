"""Ask a logged flight about any factor: remove it from the planner's world and score the same pool again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.belief import Belief
from awavo.errors import UnknownNameError, did_you_mean
from awavo.explain.factors import Factor, check_factors, coalition_models
from awavo.explain.flight import DecisionInputs
from awavo.explain.flight_planner import ExplainedConfig, explained_planner, likelihoods
from awavo.explain.measures import coalition_weights
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

__all__ = ["FLIGHT_FACTORS", "World", "ask_weights", "flight_factor"]

FAR = 1e4


class World(NamedTuple):
    """What a factor may remove something from: the belief about force, mass and drag, and the obstacles."""

    belief: Belief
    forest: Forest


def _set_mean(world: World, place: slice | int, value: float) -> World:
    mean = jnp.asarray(world.belief.mean).at[place].set(value)
    return world._replace(belief=world.belief._replace(mean=mean))


def _clear(world: World, place: slice | int = slice(None)) -> World:
    x = jnp.asarray(world.forest.x)
    return world._replace(forest=world.forest._replace(x=x.at[place].set(FAR)))


FLIGHT_FACTORS = {
    "wind": Factor("wind", lambda w: _set_mean(w, slice(0, 3), 0.0), "the external force, with its uncertainty kept"),
    "obstacles": Factor("obstacles", _clear, "all obstacles"),
    "drag": Factor("drag", lambda w: _set_mean(w, 4, -1.0), "drag in still air"),
    "mass": Factor("mass", lambda w: _set_mean(w, 3, 0.0), "the estimated change of mass"),
}


def flight_factor(name: str) -> Factor:
    """Return a factor by name; `obstacle:3` is one cylinder of the forest."""
    single = re.fullmatch(r"obstacle:(\d{1,4})", name)
    if single:
        number = int(single[1])
        return Factor(name, lambda w: _clear(w, number), f"obstacle number {number}")
    if name not in FLIGHT_FACTORS:
        raise UnknownNameError(
            f"no flight factor is named '{name}'.{did_you_mean(name, [*FLIGHT_FACTORS, 'obstacle:0'])}"
        )
    return FLIGHT_FACTORS[name]


def ask_weights(
    inputs: DecisionInputs, factors: Sequence[Factor], params: QuadrotorParams, config: ExplainedConfig
) -> tuple[Float[Array, "S K"], Float[Array, "K D"]]:
    """Return the posteriors of all coalitions, on the pool and with the draws of the decision itself, and that pool."""
    planner = explained_planner(params, lissajous, config)
    score_key = jax.random.split(inputs.key)[0]

    def log_likelihood(world: World):
        scores = planner.score(
            score_key, inputs.body, inputs.time, world.belief, inputs.particles, world.forest, inputs.belief
        )
        return scores.candidates, likelihoods(scores.signals, config)[3]

    worlds = coalition_models(check_factors(factors), World(inputs.belief, inputs.forest))
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(part, jnp.float32) for part in x]), *worlds)
    candidates, log_likelihoods = jax.lax.map(log_likelihood, stacked)
    return coalition_weights(log_likelihoods, 1.0), candidates[0]
