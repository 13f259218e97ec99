"""Factors of a flight: what each removes from what the planner believes, and the same pool scored without it.

For wind and obstacles, the planner's own factors, also the posteriors that other forces would have given (intervals).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.belief import Belief
from awavo.control.flight_planner import FACTORS, DecisionInputs, flight_planner, likelihoods
from awavo.control.planner_config import PlannerConfig
from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.explain.decision import coalition_scores
from awavo.explain.factors import Factor, check_factors
from awavo.explain.intervals import LEVEL, Band, nested_draws, quantile_band
from awavo.explain.measures import coalition_weights, influences
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference, reference_function
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = [
    "FLIGHT_FACTORS", "NUM_RESAMPLES", "Situation", "Uncertain", "factor_weights", "flight_factor", "measure_band",
    "named_factors", "true_influence", "uncertain_posteriors",
]  # fmt: skip

FAR = 1e4
SINGLE, MOST_OBSTACLES = re.compile(r"obstacle:(\d{1,4})"), 10_000
NUM_FORCES, NUM_RESAMPLES = 8, 24


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
    single = SINGLE.fullmatch(name)
    if single:
        number = int(single[1])
        return Factor(f"obstacle:{number}", lambda s: _clear(s, number), f"obstacle number {number}")
    if name not in FLIGHT_FACTORS:
        raise UnknownNameError(
            f"no flight factor is named '{name}'.{did_you_mean(name, [*FLIGHT_FACTORS, 'obstacle:0'])}"
        )
    return FLIGHT_FACTORS[name]


def named_factors(names: Sequence[str], forest: Forest | None = None) -> tuple[str, ...]:
    """Return the names as they are asked for: the planner's own factors where none or both of them are given.

    In whatever order both are named, it is the same question, with the same intervals. With a `forest` an obstacle that
    it does not have is refused.
    """
    factors = check_factors([flight_factor(name) for name in names or FACTORS])
    plain = tuple(factor.name for factor in factors)
    count = MOST_OBSTACLES if forest is None else len(forest.x)
    for name in plain:
        if (single := SINGLE.fullmatch(name)) and int(single[1]) >= count:
            raise InputError(f"there is no {name}: the flight has {count} obstacles, counted from 0.")
    return FACTORS if set(plain) == set(FACTORS) else plain


def factor_weights(
    inputs: DecisionInputs,
    factors: Sequence[Factor],
    params: QuadrotorParams,
    config: PlannerConfig,
    reference: Reference = FIGURE_OF_EIGHT,
    force: Float[Array, " 3"] | None = None,
) -> tuple[Float[Array, "S K"], Float[Array, "K D"]]:
    """Return the posteriors of all coalitions, on the pool and with the draws of the decision itself, and that pool.

    `force` is the external one, where more is known of it than the planner believed.
    """
    planner = flight_planner(params, reference_function(reference), config)
    score_key = jax.random.split(inputs.key)[0]

    def log_likelihood(situation: Situation):
        scores = planner.score(
            score_key, inputs.body, inputs.time, situation.belief, inputs.particles, situation.forest, inputs.belief
        )
        return likelihoods(scores.signals, config)[3]

    belief = inputs.belief if force is None else inputs.belief._replace(mean=inputs.belief.mean.at[:3].set(force))
    scores = coalition_scores(log_likelihood, Situation(belief, inputs.forest), factors)
    candidates = planner.pool(score_key, inputs.belief, inputs.particles)[0]
    return coalition_weights(scores, 1.0), candidates


class Uncertain(NamedTuple):
    """The posteriors of the coalitions, the pool they weigh, and the posteriors that other forces would have given.

    `believed` are the posteriors under what the planner believed at that instant, `paths` those of the pool then.
    """

    weights: Float[Array, "S K"]
    pool: Float[Array, "K D"]
    outer: Float[Array, "B S K"]
    believed: Float[Array, "S K"]
    paths: Float[Array, "H 3 K"]


def uncertain_posteriors(
    inputs: DecisionInputs,
    params: QuadrotorParams,
    config: PlannerConfig,
    force: Float[Array, " 3"],
    doubt: Float[Array, "3 3"],
    reference: Reference = FIGURE_OF_EIGHT,
) -> Uncertain:
    """Score the decision's own pool again: under a force, under forces drawn around it, and as it was believed.

    `force` and its covariance `doubt` are what the whole record shows (`mismatch.review`). The draws of mass, drag and
    of the force's spread are those of the decision.
    """
    planner = flight_planner(params, reference_function(reference), config)
    body, time, belief = inputs.body, inputs.time, inputs.belief
    candidates, theta, still = planner.pool(jax.random.split(inputs.key)[0], belief, inputs.particles)
    near = planner.model.near_path(inputs.forest, time)
    root = jnp.linalg.cholesky(doubt + 1e-9 * jnp.eye(3))
    half = root @ jax.random.normal(_keys(inputs)[0], (3, NUM_FORCES // 2))
    shifts = force[:, None] + jnp.concatenate([jnp.zeros((3, 1)), half, -half], 1)
    moved = still + jnp.zeros((1 + NUM_FORCES, 5, 1)).at[:, :3, 0].set(shifts.T)
    worlds = jnp.concatenate([still[None], theta[None], moved])

    def imagined(theta):
        found = planner.model.imagine(body, time, theta, candidates, near)
        return found.signals, jnp.mean(found.positions, 2)

    signals, paths = jax.lax.map(imagined, worlds)
    pairs = jax.vmap(lambda windy: likelihoods(jnp.stack([signals[0], windy]), config))(signals[1:])
    weights = coalition_weights(pairs, 1.0)
    return Uncertain(weights[1], candidates, weights[2:], weights[0], paths[1])


def _keys(inputs: DecisionInputs) -> Array:
    """Keys of the forces and of the resamples of a decision."""
    return jax.random.split(jax.random.fold_in(inputs.key, 1))


def measure_band(
    inputs: DecisionInputs,
    found: Uncertain,
    measure: Callable[[Array, Array], Array],
    num: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Band:
    """Return the raw band of `measure(counts, weights)`: over the force's uncertainty and resamples of the pool.

    With num = 0 every force comes with one resample.
    """
    every = nested_draws(_keys(inputs)[1], jnp.concatenate([found.weights[None], found.outer]), num, measure)
    return quantile_band(every[0], every[1 + num :], level)


def true_influence(
    inputs: DecisionInputs, force: Float[Array, " 3"], params: QuadrotorParams, config: PlannerConfig
) -> Float[Array, " 2"]:
    """Return what a planner with this (large) pool would have found, had its belief been centred at the true force."""
    mean = inputs.belief.mean.at[:3].set(force)
    known = Belief(mean, inputs.belief.covariance, inputs.belief.watch)
    key = jax.random.fold_in(inputs.key, 2)
    planner = flight_planner(params, reference_function(FIGURE_OF_EIGHT), config)
    scores = planner.score(key, inputs.body, inputs.time, known, inputs.particles, inputs.forest)
    return influences(coalition_weights(likelihoods(scores.signals, config), 1.0))
