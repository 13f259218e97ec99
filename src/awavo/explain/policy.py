r"""Policies without a planner: the same measures on their action distributions under counterfactual observations.

A factor removes something from what the policy sees; the policy's distribution in every coalition,
:math:`\pi_S = \pi(\cdot \mid o_S)`, takes the place of the planner's posterior. For discrete actions they are compared
exactly; for Gaussian ones on a pool drawn from all of them, weighted by density over the pool's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.explain.measures import num_factors, without
from awavo.networks.distributions import Categorical, SquashedGaussian
from awavo.types import Distribution

__all__ = ["distribution_weights", "greedy_necessity"]

POOL = 1024


def distribution_weights(distribution: Distribution, key: Array) -> Float[Array, "S K"]:
    """Return the coalitions' distributions (first axis of `distribution`) as weights on one pool of actions."""
    if isinstance(distribution, Categorical):
        return jnp.exp(distribution.log_probs())
    assert isinstance(distribution, SquashedGaussian)
    # Before squashing: the map is the same for all of them and leaves ratios of densities as they are.
    mean, spread = distribution.mean, jnp.exp(jnp.broadcast_to(distribution.log_std, distribution.mean.shape))
    count = mean.shape[0]
    noise = jax.random.normal(key, (-(-POOL // count), *mean.shape))
    pool = (mean + spread * noise).reshape(-1, mean.shape[-1])
    gaps = (pool - mean[:, None]) / spread[:, None]
    log_density = -0.5 * jnp.sum(gaps**2, -1) - jnp.sum(jnp.log(spread), -1)[:, None]
    return jax.nn.softmax(log_density - jax.nn.logsumexp(log_density, 0), -1)


def greedy_necessity(distribution: Distribution) -> Float[Array, " M"]:
    """Return how necessary each factor was for the most probable action, from the coalitions' own (log) densities."""
    modes = distribution.mode()
    # The last coalition has all factors: its action is the one that was taken.
    log_prob = distribution.log_prob(jnp.broadcast_to(modes[-1], modes.shape))
    num = num_factors(log_prob.shape[0])
    less = jnp.stack([log_prob[without(num, i)] for i in range(num)])
    return jnp.maximum(0.0, -jnp.expm1(less - log_prob[-1]))
