"""Clouds of particles: a policy's draws as one, the units of a box, and the heaviest mode."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.networks.distributions import SquashedGaussian, SquashedMixture
from awavo.types import Box

__all__ = ["committed", "nearness", "policy_cloud", "to_box", "to_unit"]

# Share of the pairs of particles taken for neighbours, whose distance is the width of a mode; how much more the mode
# of the step before counts.
NEIGHBOURS, STAY = 0.25, 0.5


def to_box(space: Box, unit: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From [-1, 1] to the box."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (high + low) / 2 + (high - low) / 2 * jnp.clip(unit, -1.0, 1.0)


def to_unit(space: Box, action: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From the box to [-1, 1]."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (2 * action - high - low) / (high - low)


def policy_cloud(
    key: Array, dist: SquashedGaussian | SquashedMixture, num: int, space: Box
) -> tuple[Float[Array, "B n d"], Float[Array, "B n"]]:
    """Draws of the policy in each state, in [-1, 1], and their weights: of a mixture as many of every component.

    Weights carry the gradient of the components' shares, which draws of one component or another would not have.
    """
    if isinstance(dist, SquashedGaussian):
        mean, log_std = (jnp.broadcast_to(x, (num, *x.shape)) for x in (dist.mean, dist.log_std))
        drawn = jnp.swapaxes(SquashedGaussian(mean, log_std, dist.low, dist.high).sample(key), 0, 1)
        return to_unit(space, drawn), jnp.full(drawn.shape[:2], 1.0 / num)
    each = -(-num // dist.logits.shape[-1])
    drawn = jax.vmap(dist.components().sample)(jax.random.split(key, each))  # [each, B, C, d]
    points = jnp.moveaxis(drawn, 0, 1).reshape(drawn.shape[1], -1, drawn.shape[-1])
    return to_unit(space, points), jnp.tile(jax.nn.softmax(dist.logits) / each, (1, each))


def nearness(points: Float[Array, "P D"], others: Float[Array, "Q D"] | None = None) -> Float[Array, "P Q"]:
    """exp(-d^2 / (2 h^2)) between points (and others), h the distance within which a share of their pairs lies."""
    squares = jnp.sum((points[:, None] - points) ** 2, -1)
    apart = jnp.where(jnp.eye(points.shape[0], dtype=bool), jnp.nan, squares)
    width = jnp.maximum(jnp.nanquantile(apart, NEIGHBOURS), 1e-12)
    if others is not None:
        squares = jnp.sum((points[:, None] - others) ** 2, -1)
    return jnp.exp(-0.5 * squares / width)


def committed(points: Float[Array, "P D"], before: Float[Array, " D"]) -> Float[Array, "P D"]:
    """The points with the centre of the heaviest mode first; the mode that `before` lies in counts for more.

    Between two ways round an obstacle the mean is the obstacle, and two equal ways would be taken in turn.
    """
    density = nearness(points).mean(1) * (1.0 + STAY * nearness(points, before[None])[:, 0])
    first = jnp.argmax(density)
    return points.at[0].set(points[first]).at[first].set(points[0])
