"""Actors: an observation in, a distribution over actions out."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.distributions import ActionDistribution, Categorical, SquashedGaussian
from awavo.networks.mlp import MLP, mlp
from awavo.networks.normalizer import RunningStatistics, standard_deviation
from awavo.types import ActionSpace, ActorParts, Discrete

__all__ = ["Actor", "actor", "actor_parts"]

LOG_STD_RANGE = (-5.0, 1.0)


class Actor(eqx.Module):
    """A network over the space of actions it was built for."""

    net: MLP
    space: ActionSpace = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "... d"]) -> ActionDistribution:
        """Return the action distribution in each observation."""
        out = self.net(obs)
        if isinstance(self.space, Discrete):
            return Categorical(out)
        mean, log_std = jnp.split(out, 2, -1)
        low, high = LOG_STD_RANGE
        # Bounded smoothly: a hard clip would stop the gradient at its ends.
        log_std = low + (high - low) * jax.nn.sigmoid(log_std)
        return SquashedGaussian(mean, log_std, jnp.asarray(self.space.low), jnp.asarray(self.space.high))


def actor(key: Array, obs_dim: int, space: ActionSpace, hidden: Sequence[int]) -> Actor:
    """Draw an actor that starts close to uniform."""
    num_out = space.num if isinstance(space, Discrete) else 2 * space.dim
    return Actor(mlp(key, (obs_dim, *hidden, num_out), output_scale=0.01), space)


def actor_parts(stats: RunningStatistics, net: MLP, space: ActionSpace) -> ActorParts:
    """A policy network with the scales of its observations, as plain numbers."""
    return ActorParts(stats.mean, standard_deviation(stats), net.weights, net.biases, net.activation, space)
