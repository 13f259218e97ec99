r"""Testing p_D(theta) on data it has not seen: evidence of the members, calibration of the mixture.

Every rollout is predicted before it is learnt from (prequential testing), so nothing has to be held back. With the
members' Gaussians of the change, mixture weights w and the predictive distribution function

.. math::  F(x) = \sum_k w_k \Phi\big((x - m_k) / v_k\big),

:math:`F(x)` of what happened is uniform when the prediction is calibrated (the PIT). The evidence of a member is a
moving average of its log-likelihood per transition; `stretch` widens or narrows all Gaussians of a component until 90%
of what happens lies in the central 90% interval (online conformal control, Gibbs and Candes 2021).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from awavo.inference.ensemble import Ensemble, EnsembleModel, Prediction

__all__ = ["LEVEL", "Assessment", "assess", "pit_distance", "pit_values"]

LEVEL = 0.9
STRETCH_RANGE = (0.05, 20.0)


class Assessment(NamedTuple):
    """How well the ensemble predicted new transitions."""

    log_likelihood: Float[Array, " K"]
    coverage: Float[Array, ""]
    pit_error: Float[Array, ""]


def pit_values(prediction: Prediction, log_weights: Float[Array, " K"], next_obs: Array) -> Float[Array, "... d"]:
    """F of what happened, for every component."""
    weights = jnp.exp(log_weights).reshape(-1, *[1] * next_obs.ndim)
    return jnp.sum(weights * norm.cdf((next_obs - prediction.next_obs) / prediction.std), 0)


def pit_distance(pit: Float[Array, "n d"]) -> Float[Array, ""]:
    """How far the distribution of values of F is from uniform: the largest gap on a grid."""
    grid = jnp.linspace(0.05, 0.95, 19)
    empirical = jnp.mean((pit[..., None] <= grid).astype(jnp.float32), 0)
    return jnp.max(jnp.abs(jnp.mean(empirical, 0) - grid))


def assess(
    dynamics: EnsembleModel,
    model: Ensemble,
    obs: Float[Array, "n d"],
    action: Array,
    next_obs: Float[Array, "n d"],
    *,
    decay: float = 0.95,
    rate: float = 0.5,
) -> tuple[Ensemble, Assessment]:
    """Predict transitions, then update evidence and stretch from how it went."""
    num_members = model.evidence.shape[0]
    prediction = dynamics.predict(model, jnp.broadcast_to(obs, (num_members, *obs.shape)), action)
    miss = (next_obs - prediction.next_obs) / prediction.std
    density = -0.5 * jnp.sum(miss**2 + 2 * jnp.log(prediction.std) + math.log(2 * math.pi), -1)
    log_likelihood = jnp.mean(jnp.maximum(density, -1e3), -1)
    # Too narrow where less than the level lies inside: stretch until it does.
    pit = pit_values(prediction, model.log_weights(), next_obs)
    tail = (1 - LEVEL) / 2
    covered = jnp.mean(((pit >= tail) & (pit <= 1 - tail)).astype(jnp.float32), 0)
    stretch = jnp.clip(model.stretch * jnp.exp(rate * (LEVEL - covered)), *STRETCH_RANGE)
    # Relative to the best member, so that a rollout that surprised all of them changes no weight.
    evidence = decay * model.evidence + (1 - decay) * (log_likelihood - jnp.max(log_likelihood))
    assessment = Assessment(log_likelihood, jnp.mean(covered), pit_distance(pit))
    return model._replace(evidence=evidence, stretch=stretch), jax.tree.map(jax.lax.stop_gradient, assessment)
