"""Quantile critics: for every signal (the reward and each cost) M quantiles of its discounted return."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.mlp import MLP, mlp
from awavo.types import ActionSpace, Discrete

__all__ = ["CautiousCritic", "QuantileCritic", "cautious_critic", "quantile_critic"]


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
            # One pass gives all actions: pick the one that was taken.
            every = self.all_actions(obs)
            return jnp.take_along_axis(every, action[..., None, None, None], -3)[..., 0, :, :]
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        unit = (2 * action - high - low) / (high - low)
        out = self.scale * self.net(jnp.concatenate([obs, unit], -1))
        return out.reshape(*out.shape[:-1], self.num_signals, -1)

    def every(self, obs: Float[Array, "... d"], action: Array) -> Float[Array, "1 ... S M"]:
        """As a critic with one member."""
        return self(obs, action)[None]


class CautiousCritic(eqx.Module):
    """K independent critics of which, in every state and for every signal, the most pessimistic one speaks.

    An actor that climbs one critic finds its errors: the returns it promises grow without bound where the effect of
    an action is small. The lower of two rewards and the higher of two costs does not.
    """

    members: QuantileCritic

    def all_actions(self, obs: Float[Array, "... d"]) -> Float[Array, "... A S M"]:
        """Quantiles of every discrete action."""
        return most_pessimistic(jax.vmap(lambda member: member.all_actions(obs))(self.members))

    def __call__(self, obs: Float[Array, "... d"], action: Array) -> Float[Array, "... S M"]:
        """Quantiles of the given actions."""
        return most_pessimistic(self.every(obs, action))

    def every(self, obs: Float[Array, "... d"], action: Array) -> Float[Array, "K ... S M"]:
        """Quantiles of the given actions, of each member."""
        return jax.vmap(lambda member: member(obs, action))(self.members)


def most_pessimistic(quantiles: Float[Array, "K ... S M"]) -> Float[Array, "... S M"]:
    """The member with the lowest mean of the reward (signal 0), and of each cost with the highest."""
    means = quantiles.mean(-1)
    # A high cost is bad as a low reward is.
    sign = jnp.where(jnp.arange(means.shape[-1]) == 0, 1.0, -1.0)
    chosen = jnp.argmin(sign * means, 0)
    return jnp.take_along_axis(quantiles, chosen[None, ..., None], 0)[0]


def quantile_critic(
    key: Array,
    obs_dim: int,
    space: ActionSpace,
    hidden: Sequence[int],
    num_signals: int,
    num_quantiles: int,
    scale: float,
    standardize: bool = False,
) -> QuantileCritic:
    """Draw a critic that starts close to zero."""
    per_action = num_signals * num_quantiles
    if isinstance(space, Discrete):
        sizes = (obs_dim, *hidden, space.num * per_action)
    else:
        sizes = (obs_dim + space.dim, *hidden, per_action)
    net = mlp(key, sizes, output_scale=0.01, standardize=standardize)
    return QuantileCritic(net, space, num_signals, scale)


def cautious_critic(
    key: Array, num_critics: int, draw: Callable[[Array], QuantileCritic]
) -> QuantileCritic | CautiousCritic:
    """Draw a critic, or several that are cautious together."""
    return draw(key) if num_critics == 1 else CautiousCritic(jax.vmap(draw)(jax.random.split(key, num_critics)))
