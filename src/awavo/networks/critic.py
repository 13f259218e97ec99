"""Quantile critics: for every signal (the reward and each cost) M quantiles of its discounted return."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.mlp import MLP, mlp
from awavo.types import ActionSpace, Discrete

__all__ = ["QuantileCritic", "quantile_critic"]


class QuantileCritic(eqx.Module):
    """Z^i(s, a), i = 0..C, as quantiles at the midpoints (j - 1/2) / M.

    With discrete actions one pass gives all actions; with continuous ones the action, scaled to [-1, 1], is an input.
    The network's output is multiplied by `scale`, the order of magnitude of a return.
    """

    net: MLP
    space: ActionSpace = eqx.field(static=True)
    num_signals: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def all_actions(self, obs: Float[Array, "... d"]) -> Float[Array, "... A S M"]:
        """Quantiles of every discrete action."""
        assert isinstance(self.space, Discrete)
        out = self.scale * self.net(obs)
        return out.reshape(*out.shape[:-1], self.space.num, self.num_signals, -1)

    def __call__(self, obs: Float[Array, "... d"], action: Array) -> Float[Array, "... S M"]:
        """Quantiles of the given actions."""
        if isinstance(self.space, Discrete):
            every = self.all_actions(obs)
            return jnp.take_along_axis(every, action[..., None, None, None], -3)[..., 0, :, :]
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        unit = (2 * action - high - low) / (high - low)
        out = self.scale * self.net(jnp.concatenate([obs, unit], -1))
        return out.reshape(*out.shape[:-1], self.num_signals, -1)


def quantile_critic(
    key: Array,
    obs_dim: int,
    space: ActionSpace,
    hidden: Sequence[int],
    num_signals: int,
    num_quantiles: int,
    scale: float,
) -> QuantileCritic:
    """Draw a critic that starts close to zero."""
    per_action = num_signals * num_quantiles
    if isinstance(space, Discrete):
        sizes = (obs_dim, *hidden, space.num * per_action)
    else:
        sizes = (obs_dim + space.dim, *hidden, per_action)
    return QuantileCritic(mlp(key, sizes, output_scale=0.01), space, num_signals, scale)
