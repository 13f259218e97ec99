"""Units of the signals: critics learn returns in units that the data give, so no scale of a reward is ever set by hand.

The unit of the reward is the root mean square of the discounted returns seen while running; that of a cost is the
discounted share of its limit, limit / horizon / (1 - discount), or measured like the reward's where the limit is 0.
When a unit moves, the critics' last layers are rescaled: what they say in raw numbers stays.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.critic import CautiousCritic, QuantileCritic
from awavo.types import Discrete, EnvSpec, Rollout

__all__ = ["Units", "cost_shares", "initial_units", "measure_units", "rescale"]

AnyCritic = QuantileCritic | CautiousCritic


class Units(NamedTuple):
    """Running discounted returns of each environment, the sum of their squares, steps counted, the units."""

    running: Float[Array, "E signals"]
    squares: Float[Array, " signals"]
    steps: Float[Array, ""]
    unit: Float[Array, " signals"]


def cost_shares(spec: EnvSpec, discount: float) -> Float[Array, " C"]:
    """What a policy at its limits spends, discounted: limit / horizon / (1 - discount)."""
    return jnp.asarray(spec.cost_limits, jnp.float32).reshape(spec.num_costs) / spec.horizon / (1.0 - discount)


def initial_units(spec: EnvSpec, num_envs: int) -> Units:
    """Before any data."""
    signals = 1 + spec.num_costs
    return Units(jnp.zeros((num_envs, signals)), jnp.zeros(signals), jnp.zeros(()), jnp.ones(signals))


def measure_units(units: Units, rollout: Rollout, shares: Float[Array, " C"], discount: float) -> Units:
    """The units after a rollout."""
    signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1)

    def follow(total: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        signal, done = row
        total = discount * total + signal
        return jnp.where(done[:, None], 0.0, total), jnp.sum(total**2, 0)

    running, squares = jax.lax.scan(follow, units.running, (signals, rollout.done))
    squares, steps = units.squares + squares.sum(0), units.steps + rollout.reward.size
    measured = jnp.sqrt(squares / steps)
    unit = jnp.where(measured > 0, measured, 1.0)
    unit = unit.at[1:].set(jnp.where(shares > 0, shares, unit[1:]))
    return Units(running, squares, steps, unit)


def rescale(critic: AnyCritic, ratio: Float[Array, " signals"]) -> AnyCritic:
    """The critic whose outputs are `ratio` times as large: old unit / new unit keeps the raw values."""
    inner = critic.members if isinstance(critic, CautiousCritic) else critic
    repeat = inner.space.num if isinstance(inner.space, Discrete) else 1
    num_quantiles = inner.net.biases[-1].shape[-1] // (repeat * inner.num_signals)
    factor = jnp.broadcast_to(ratio[None, :, None], (repeat, inner.num_signals, num_quantiles)).reshape(-1)

    def last(c: AnyCritic) -> tuple[Array, Array]:
        net = (c.members if isinstance(c, CautiousCritic) else c).net
        return net.weights[-1], net.biases[-1]

    weight, bias = last(critic)
    return eqx.tree_at(last, critic, (weight * factor, bias * factor))
