"""Actors: an observation in, a distribution over actions out."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.distributions import Categorical, SquashedGaussian
from awavo.networks.mlp import MLP, mlp
from awavo.types import ActionSpace, Box, Discrete

__all__ = ["Actor", "actor"]

LOG_STD_RANGE = (-5.0, 1.0)


class Actor(eqx.Module):
    """A network over the space of actions it was built for."""

    net: MLP
    space: ActionSpace = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "... d"]) -> Categorical | SquashedGaussian:
        """Return the action distribution in each observation."""
        out = self.net(obs)
        if isinstance(self.space, Discrete):
            return Categorical(out)
        mean, log_std = jnp.split(out, 2, -1)
        low, high = LOG_STD_RANGE
        log_std = low + (high - low) * jax.nn.sigmoid(log_std)
        return SquashedGaussian(mean, log_std, jnp.asarray(self.space.low), jnp.asarray(self.space.high))


def actor(key: Array, obs_dim: int, space: ActionSpace, hidden: Sequence[int]) -> Actor:
    """Draw an actor that starts close to uniform."""
    num_out = space.num if isinstance(space, Discrete) else 2 * space.dim
    assert isinstance(space, Discrete | Box)
    return Actor(mlp(key, (obs_dim, *hidden, num_out), output_scale=0.01), space)
