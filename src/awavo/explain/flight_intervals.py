"""The influence of wind and obstacles on a recorded flight decision, with its interval."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.belief import Belief, draw_members
from awavo.explain.flight import DecisionInputs
from awavo.explain.flight_planner import ExplainedConfig, explained_planner, likelihoods
from awavo.explain.intervals import Band, Stretch, nested_influences, quantile_band
from awavo.explain.measures import coalition_weights, influences
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

__all__ = ["influence_band", "load_calibration", "true_influence"]

NUM_FORCES, NUM_RESAMPLES = 8, 24


def influence_band(
    inputs: DecisionInputs, params: QuadrotorParams, config: ExplainedConfig, level: float = 0.9
) -> tuple[Band, Float[Array, "S K"], Float[Array, "K D"]]:
    """Return the raw band of both factors, the posteriors of the coalitions, and the pool of the decision itself."""
    planner = explained_planner(params, lissajous, config)
    key, body, time, belief, particles, forest = inputs
    score_key = jax.random.split(key)[0]
    candidates, signals = planner.score(score_key, body, time, belief, particles, forest)
    weights = coalition_weights(likelihoods(signals, config), 1.0)
    near = planner.model.near_path(forest, time)
    force_key, count_key = jax.random.split(jax.random.fold_in(key, 1))
    forces = draw_members(force_key, belief, NUM_FORCES)[:3] - belief.mean[:3, None]
    theta = draw_members(jax.random.split(score_key)[0], belief, config.num_members)

    def posterior(shift):
        moved = planner.model.imagine(body, time, theta.at[:3].add(shift[:, None]), candidates, near)
        return coalition_weights(likelihoods(jnp.stack([signals[0], moved]), config), 1.0)

    outer = jax.lax.map(posterior, forces.T)
    draws = nested_influences(count_key, outer, NUM_RESAMPLES)
    return quantile_band(influences(weights), draws, level), weights, candidates


def true_influence(
    inputs: DecisionInputs, force: Float[Array, " 3"], params: QuadrotorParams, config: ExplainedConfig
) -> Float[Array, " 2"]:
    """Return what a planner with this (large) pool would have found, had its belief been centred at the true force."""
    mean = inputs.belief.mean.at[:3].set(force)
    known = Belief(mean, inputs.belief.covariance)
    key = jax.random.fold_in(inputs.key, 2)
    planner = explained_planner(params, lissajous, config)
    scores = planner.score(key, inputs.body, inputs.time, known, inputs.particles, inputs.forest)
    return influences(coalition_weights(likelihoods(scores.signals, config), 1.0))


def load_calibration() -> dict[str, Any] | None:
    """Return the calibration that comes with the package, with its provenance; None where there is none."""
    file = resources.files("awavo.explain").joinpath("calibration.json")
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return {**found, "stretch": {name: [Stretch(**part) for part in parts] for name, parts in found["stretch"].items()}}
