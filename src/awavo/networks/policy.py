"""Actors: an observation in, a distribution over actions out."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.distributions import ActionDistribution, Categorical, SquashedGaussian, SquashedMixture
from awavo.networks.mlp import MLP, mlp
from awavo.networks.normalizer import RunningStatistics, standard_deviation
from awavo.types import ActionSpace, ActorParts, Discrete

__all__ = ["Actor", "actor", "actor_parts"]

LOG_STD_RANGE = (-5.0, 1.0)


class Actor(eqx.Module):
    """A network over the space of actions it was built for.

    For a box its outputs are means and spreads; with more than one component the means of all of them, their spreads,
    and their log-weights last.
    """

    net: MLP
    space: ActionSpace = eqx.field(static=True)
    num_components: int = eqx.field(static=True, default=1)

    def __call__(self, obs: Float[Array, "... d"]) -> ActionDistribution:
        """Return the action distribution in each observation."""
        out = self.net(obs)
        if isinstance(self.space, Discrete):
            return Categorical(out)
        num = self.num_components
        mean, log_std = jnp.split(out[..., : 2 * num * self.space.dim], 2, -1)
        low, high = LOG_STD_RANGE
        # Bounded smoothly: a hard clip would stop the gradient at its ends.
        log_std = low + (high - low) * jax.nn.sigmoid(log_std)
        box = (jnp.asarray(self.space.low), jnp.asarray(self.space.high))
        if num == 1:
            return SquashedGaussian(mean, log_std, *box)
        mean, log_std = (x.reshape(*x.shape[:-1], num, self.space.dim) for x in (mean, log_std))
        return SquashedMixture(out[..., -num:], mean, log_std, *box)


def actor(key: Array, obs_dim: int, space: ActionSpace, hidden: Sequence[int], num_components: int = 1) -> Actor:
    """Draw an actor that starts close to uniform over discrete actions, in a box near its middle and an eighth as wide.

    The components of a mixture start apart, spread over the box.
    """
    if isinstance(space, Discrete):
        return Actor(mlp(key, (obs_dim, *hidden, space.num), output_scale=0.01), space)
    if num_components == 1:
        return Actor(mlp(key, (obs_dim, *hidden, 2 * space.dim), output_scale=0.01), space)
    net_key, place_key = jax.random.split(key)
    num_out = num_components * (2 * space.dim + 1)
    net = mlp(net_key, (obs_dim, *hidden, num_out), output_scale=0.01)
    # Components that start alike stay alike: nothing would ever part them.
    places = jax.random.uniform(place_key, (num_components * space.dim,), minval=-1.0, maxval=1.0)
    last = net.biases[-1].at[: places.size].add(places)
    net = eqx.tree_at(lambda n: n.biases, net, (*net.biases[:-1], last))
    return Actor(net, space, num_components)


def actor_parts(stats: RunningStatistics, net: MLP, space: ActionSpace, num_components: int = 1) -> ActorParts:
    """A policy network with the scales of its observations, as plain numbers."""
    scales = stats.mean, standard_deviation(stats)
    return ActorParts(*scales, net.weights, net.biases, net.activation, space, num_components)
