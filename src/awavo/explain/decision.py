r"""Explain one decision of any planner that scores a pool of candidates.

.. code-block:: python

    wind = Factor("wind", lambda model: model._replace(force=0 * model.force))
    found = explain_decision(score, model, [wind], candidates, temperature=0.1)
    found.influence["wind"]

`score(model, candidates)` returns log-likelihoods (or minus costs). Whatever it draws at random must come from a key
inside the model or be fixed: with other draws on the two sides a factor that does nothing seems to have an influence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.factors import Factor, check_factors, coalition_models
from awavo.explain.measures import coalition_weights, influences, necessity, shapley, total_variation

__all__ = ["Explanation", "explain_decision", "explain_weights"]


class Explanation(NamedTuple):
    """What moved a decision. Values by factor name; the temperature and effective size they hold for."""

    influence: dict[str, float]
    shares: dict[str, float]
    together: float
    necessity: dict[str, Float[np.ndarray, " K"]]
    weights: Float[np.ndarray, "S K"]
    temperature: float
    effective_size: float


def explain_weights(weights: Float[Array, "S K"], names: Sequence[str], temperature: float) -> Explanation:
    """Explain from the posteriors of all coalitions on one pool."""
    found, game = influences(weights), total_variation(weights, weights[0])
    shares = shapley(game)
    return Explanation(
        influence={name: float(v) for name, v in zip(names, found, strict=True)},
        shares={name: float(v) for name, v in zip(names, shares, strict=True)},
        together=float(game[-1]),
        necessity={name: np.asarray(necessity(weights, i)) for i, name in enumerate(names)},
        weights=np.asarray(weights),
        temperature=float(temperature),
        effective_size=float(1.0 / jnp.sum(weights[-1] ** 2)),
    )


def explain_decision(
    score: Callable[[Any, Any], Float[Array, " K"]],
    model: Any,
    factors: Sequence[Factor],
    candidates: Any,
    *,
    temperature: float,
) -> Explanation:
    """Score one pool under the model of every coalition and compare the posteriors."""
    factors = check_factors(factors)
    if not temperature > 0:
        raise InputError(f"temperature={temperature} must be > 0.")
    scores = jnp.stack([score(each, candidates) for each in coalition_models(factors, model)])
    if scores.ndim != 2 or not bool(jnp.all(jnp.isfinite(scores))):
        raise InputError(f"score returned shape {scores.shape[1:]}, expected finite numbers (K,), one per candidate.")
    weights = coalition_weights(scores, temperature)
    return explain_weights(weights, [factor.name for factor in factors], temperature)
