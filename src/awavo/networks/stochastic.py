"""Policies for likelihood-ratio methods: a density, its exact divergence, and the map from samples to actions.

Discrete actions are their own samples. Continuous ones are `center + half_range * tanh(u)` with `u` Gaussian; ratios
and divergences are those of `u`, which the bijection leaves as they are, so no action ever has to be inverted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.distributions import ActionDistribution, Categorical, SquashedGaussian, SquashedMixture
from awavo.networks.mlp import MLP, mlp
from awavo.types import ActionSpace, Box, Discrete

__all__ = ["Gaussian", "StochasticPolicy", "kl_divergence", "stochastic_policy"]


class Gaussian(NamedTuple):
    """Independent normal components."""

    mean: Float[Array, "... d"]
    log_std: Float[Array, "... d"]

    def sample(self, key: Array) -> Float[Array, "... d"]:
        """Draw once each."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "... d"]:
        """The mean."""
        return self.mean

    def log_prob(self, u: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Log-density."""
        z = (u - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi), -1)

    def entropy(self) -> Float[Array, "..."]:
        """Differential entropy in nats."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), -1)


class StochasticPolicy(eqx.Module):
    """A perceptron for the logits or the mean; the Gaussian's width does not depend on the observation."""

    net: MLP
    log_std: Float[Array, " d"] | None
    space: ActionSpace = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "... d"]) -> Categorical | Gaussian:
        """Return the distribution of samples in each observation."""
        out = self.net(obs)
        if self.log_std is None:
            return Categorical(out)
        return Gaussian(out, jnp.broadcast_to(self.log_std, out.shape))

    def actions(self, obs: Float[Array, "... d"]) -> ActionDistribution:
        """Return the distribution of actions in each observation."""
        samples = self(obs)
        if isinstance(samples, Categorical):
            return samples
        assert isinstance(self.space, Box)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        return SquashedGaussian(samples.mean, samples.log_std, low, high)

    def action(self, sample: Array) -> Array:
        """The action that a sample stands for."""
        if isinstance(self.space, Discrete):
            return sample
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        return (high + low) / 2 + (high - low) / 2 * jnp.tanh(sample)


def stochastic_policy(
    key: Array, obs_dim: int, space: ActionSpace, hidden: Sequence[int], activation: str = "tanh", log_std: float = -0.5
) -> StochasticPolicy:
    """Draw a policy that starts close to uniform (discrete) or centred with standard deviation `exp(log_std)`."""
    discrete = isinstance(space, Discrete)
    num_out = space.num if discrete else space.dim
    net = mlp(key, (obs_dim, *hidden, num_out), activation=activation, output_scale=0.01)
    return StochasticPolicy(net, None if discrete else jnp.full(num_out, log_std, jnp.float32), space)


def kl_divergence(old: ActionDistribution | Gaussian, new: ActionDistribution | Gaussian) -> Float[Array, "..."]:
    """KL(old || new) of two distributions of the same kind, in closed form; of mixtures an upper bound."""
    if isinstance(old, Categorical) and isinstance(new, Categorical):
        return old.kl(new)
    if isinstance(old, SquashedGaussian) and isinstance(new, SquashedGaussian):
        return old.kl(new)
    if isinstance(old, SquashedMixture) and isinstance(new, SquashedMixture):
        return old.kl(new)
    assert isinstance(old, Gaussian)
    assert isinstance(new, Gaussian)
    scale = jnp.exp(2 * (old.log_std - new.log_std))
    shift = ((new.mean - old.mean) * jnp.exp(-new.log_std)) ** 2
    return jnp.sum(0.5 * (scale + shift - 1) + new.log_std - old.log_std, -1)
