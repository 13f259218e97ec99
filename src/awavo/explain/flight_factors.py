"""Factors of a flight: what each removes from what the planner believes, and the same pool scored without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.belief import Belief
from awavo.control.flight_planner import DecisionInputs, flight_planner, likelihoods
from awavo.control.planner_config import PlannerConfig
from awavo.errors import UnknownNameError, did_you_mean
from awavo.explain.decision import coalition_scores
from awavo.explain.factors import Factor
from awavo.explain.measures import coalition_weights
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

__all__ = ["FLIGHT_FACTORS", "Situation", "factor_weights", "flight_factor"]

FAR = 1e4


class Situation(NamedTuple):
    """What a factor may remove something from: the belief about force, mass and drag, and the obstacles."""

    belief: Belief
    forest: Forest


def _set_mean(situation: Situation, place: slice | int, value: float) -> Situation:
    mean = jnp.asarray(situation.belief.mean).at[place].set(value)
    return situation._replace(belief=situation.belief._replace(mean=mean))


def _clear(situation: Situation, place: slice | int = slice(None)) -> Situation:
    x = jnp.asarray(situation.forest.x)
    return situation._replace(forest=situation.forest._replace(x=x.at[place].set(FAR)))


FLIGHT_FACTORS = {
    "wind": Factor("wind", lambda s: _set_mean(s, slice(0, 3), 0.0), "the external force, with its uncertainty kept"),
    "obstacles": Factor("obstacles", _clear, "all obstacles"),
    "drag": Factor("drag", lambda s: _set_mean(s, 4, -1.0), "drag in still air"),
    "mass": Factor("mass", lambda s: _set_mean(s, 3, 0.0), "the estimated change of mass"),
}


def flight_factor(name: str) -> Factor:
    """Return a factor by name; `obstacle:3` is one cylinder of the forest."""
    single = re.fullmatch(r"obstacle:(\d{1,4})", name)
    if single:
        number = int(single[1])
        return Factor(name, lambda s: _clear(s, number), f"obstacle number {number}")
    if name not in FLIGHT_FACTORS:
        raise UnknownNameError(
            f"no flight factor is named '{name}'.{did_you_mean(name, [*FLIGHT_FACTORS, 'obstacle:0'])}"
        )
    return FLIGHT_FACTORS[name]


def factor_weights(
    inputs: DecisionInputs, factors: Sequence[Factor], params: QuadrotorParams, config: PlannerConfig
) -> tuple[Float[Array, "S K"], Float[Array, "K D"]]:
    """Return the posteriors of all coalitions, on the pool and with the draws of the decision itself, and that pool."""
    planner = flight_planner(params, lissajous, config)
    score_key = jax.random.split(inputs.key)[0]

    def log_likelihood(situation: Situation):
        scores = planner.score(
            score_key, inputs.body, inputs.time, situation.belief, inputs.particles, situation.forest, inputs.belief
        )
        return likelihoods(scores.signals, config)[3]

    scores = coalition_scores(log_likelihood, Situation(inputs.belief, inputs.forest), factors)
    candidates = planner.pool(score_key, inputs.belief, inputs.particles)[0]
    return coalition_weights(scores, 1.0), candidates
