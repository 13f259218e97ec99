r"""Policies without a planner: the same measures on the law of their actions under counterfactual observations.

A factor removes something from what the policy sees; the policy's law in every coalition,
:math:`\pi_S = \pi(\cdot \mid o_S)`, takes the place of the planner's posterior. For discrete actions the laws are
compared exactly; for Gaussian ones on a pool drawn from all of them, weighted by density over the pool's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.measures import num_factors, without
from awavo.networks.normalizer import normalize

__all__ = ["greedy_necessity", "law_weights", "policy_law"]

POOL = 1024


def policy_law(state: Any) -> Callable[[Float[Array, "B d"]], Any]:
    """Return observation -> distribution of a trained policy: the average one, whose mode is the greedy action."""
    state = getattr(state, "orpo", state)
    if hasattr(state, "learner"):
        return lambda obs: state.learner.average_actor(normalize(state.obs_stats, obs))
    if hasattr(state, "average") and hasattr(state, "estimates"):
        return lambda obs: state.average(normalize(state.estimates.obs_stats, obs))
    raise InputError("this algorithm has no policy network: its decisions come from its planner alone.")


def law_weights(law: Any, key: Array) -> Float[Array, "S K"]:
    """Return the laws of the coalitions (first axis of `law`) as weights on one pool of actions."""
    if hasattr(law, "log_probs"):
        return jnp.exp(law.log_probs())
    mean, spread = jnp.asarray(law.mean), jnp.exp(jnp.broadcast_to(law.log_std, law.mean.shape))
    count = mean.shape[0]
    noise = jax.random.normal(key, (-(-POOL // count), *mean.shape))
    pool = (mean + spread * noise).reshape(-1, mean.shape[-1])
    gaps = (pool - mean[:, None]) / spread[:, None]
    log_density = -0.5 * jnp.sum(gaps**2, -1) - jnp.sum(jnp.log(spread), -1)[:, None]
    return jax.nn.softmax(log_density - jax.nn.logsumexp(log_density, 0), -1)


def greedy_necessity(law: Any) -> Float[Array, " M"]:
    """Return how necessary each factor was for the most probable action, from the coalitions' own (log) densities."""
    best = jax.tree.map(lambda x: jnp.broadcast_to(x[-1], x.shape), law.mode())
    log_prob = law.log_prob(best)
    num = num_factors(log_prob.shape[0])
    less = jnp.stack([log_prob[without(num, i)] for i in range(num)])
    return jnp.maximum(0.0, -jnp.expm1(less - log_prob[-1]))
