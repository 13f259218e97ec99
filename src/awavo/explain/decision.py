r"""Explain one decision of any planner that scores a pool of candidates.

.. code-block:: python

    wind = Factor("wind", lambda model: model._replace(force=0 * model.force))
    found = explain_decision(score, model, [wind], candidates, temperature=0.1)
    found.influence["wind"]

`score(model, candidates)` returns log-likelihoods (or minus costs); the model is a tree of arrays. Whatever is drawn at
random must come from a key inside the model or be fixed: with other draws on the two sides a factor that does nothing
seems to have an influence. The flight planner is asked in the same way (`flight_factors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.factors import Factor, check_factors, coalition_models
from awavo.explain.measures import coalition_weights, measure_weights, necessity
from awavo.inference.wvi import effective_sample_size

__all__ = ["Explanation", "coalition_scores", "explain_decision"]

Model = TypeVar("Model")
Candidates = TypeVar("Candidates")


class Explanation(NamedTuple):
    """What moved a decision. Values by factor name; the temperature and effective size they hold for."""

    influence: dict[str, float]
    shares: dict[str, float]
    together: float
    necessity: dict[str, Float[np.ndarray, " K"]]
    weights: Float[np.ndarray, "S K"]
    temperature: float
    effective_size: float


def coalition_scores(
    score: Callable[[Model], Float[Array, " K"]], model: Model, factors: Sequence[Factor]
) -> Float[Array, "S K"]:
    """Score one pool under the model of every coalition, by mask; one program serves them all."""
    models = coalition_models(check_factors(factors), model)
    return jax.lax.map(score, jax.tree.map(lambda *x: jnp.stack([jnp.asarray(part) for part in x]), *models))


def explain_decision(
    score: Callable[[Model, Candidates], Float[Array, " K"]],
    model: Model,
    factors: Sequence[Factor],
    candidates: Candidates,
    *,
    temperature: float,
) -> Explanation:
    """Score one pool under the model of every coalition and compare the posteriors."""
    if not temperature > 0:
        raise InputError(f"temperature={temperature} must be > 0.")
    scores = coalition_scores(lambda each: score(each, candidates), model, factors)
    if scores.ndim != 2 or not bool(jnp.all(jnp.isfinite(scores))):
        raise InputError(f"score returned shape {scores.shape[1:]}, expected finite numbers (K,), one per candidate.")
    weights = coalition_weights(scores, temperature)
    found, names = measure_weights(weights), [factor.name for factor in factors]
    return Explanation(
        influence=dict(zip(names, map(float, found.influence), strict=True)),
        shares=dict(zip(names, map(float, found.shares), strict=True)),
        together=float(found.together),
        necessity={name: np.asarray(necessity(weights, i)) for i, name in enumerate(names)},
        weights=np.asarray(weights),
        temperature=float(temperature),
        effective_size=float(effective_sample_size(weights[-1])),
    )
