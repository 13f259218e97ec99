r"""A forest of upright cylinders: distance, direction, the push of air near them, and where they stand.

For a cylinder of radius r and height h, with :math:`a = \rho - r` and :math:`b = z - h`, the distance to its surface is
:math:`d = \sqrt{a_+^2 + b_+^2} + \min(\max(a, b), 0)`. Air near obstacles pushes with
:math:`F = \sum c\,e^{-d_+/d_0}\,n` (a modelling assumption, so that tasks without wind have forces too).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Forest", "clearance", "distances", "plant_forest", "proximity_push"]

FAR = 1e3  # metres: where obstacles are that do not exist
HALF_SIZE = (7.0, 5.0)  # of the ground, in metres
TRIES = 32  # places tried for a cylinder


class Forest(NamedTuple):
    """Cylinders; one that found no place stands a kilometre away."""

    x: Float[Array, " M"]
    y: Float[Array, " M"]
    radius: Float[Array, " M"]
    height: Float[Array, " M"]


def distances(forest: Forest, position: Float[Array, "3 ..."]) -> Float[Array, "M ..."]:
    """Distance to every cylinder's surface, negative inside."""
    wide = (slice(None), *[None] * (position.ndim - 1))
    dx, dy = position[0] - forest.x[wide], position[1] - forest.y[wide]
    a = jnp.sqrt(dx * dx + dy * dy) - forest.radius[wide]
    b = position[2] - forest.height[wide]
    a_out, b_out = jnp.maximum(a, 0.0), jnp.maximum(b, 0.0)
    return jnp.sqrt(a_out * a_out + b_out * b_out) + jnp.minimum(jnp.maximum(a, b), 0.0)


def clearance(forest: Forest, position: Float[Array, "3 ..."], params: QuadrotorParams) -> Float[Array, " *n"]:
    """Distance to the nearest surface; a kilometre where obstacles are switched off."""
    nearest = jnp.min(distances(forest, position), 0, initial=FAR)
    return jnp.where(jnp.asarray(params.obstacles_on) > 0, nearest, FAR)


def proximity_push(forest: Forest, position: Float[Array, "3 ..."], params: QuadrotorParams) -> Float[Array, "3 ..."]:
    """Force of the air between vehicle and obstacles, away from their axes."""
    wide = (slice(None), *[None] * (position.ndim - 1))
    d = distances(forest, position)
    dx, dy = position[0] - forest.x[wide], position[1] - forest.y[wide]
    push = params.proximity_force * jnp.exp(-jnp.maximum(d, 0.0) / params.proximity_length)
    push = params.obstacles_on * push / jnp.maximum(jnp.sqrt(dx * dx + dy * dy), 1e-6)
    return jnp.stack([jnp.sum(push * dx, 0), jnp.sum(push * dy, 0), jnp.zeros_like(position[0])])


def plant_forest(
    key: Array, path: Float[Array, "T 3"], mark: Float[Array, " 3"], num: int, gap: float, spacing: float
) -> Forest:
    """Plant `num` cylinders at random: no surface nearer than `gap` to the path, nor than `spacing` to another one.

    Widths are 0.5 to 0.7 m, heights up to 3 m. The first stands 3 m high at `gap` from the mark, on the outer side if
    it fits there.
    """
    place_key, width_key, height_key = jax.random.split(key, 3)
    radius = jax.random.uniform(width_key, (num,), minval=0.25, maxval=0.35)
    height = jax.random.uniform(height_key, (num,), minval=0.5, maxval=3.0).at[0].set(3.0)
    half = jnp.array(HALF_SIZE)
    drawn = jax.random.uniform(place_key, (num, TRIES, 2), minval=-half, maxval=half)
    # The first cylinder tries places around the mark, the outer side first.
    angles = jnp.linspace(0, 2 * jnp.pi, TRIES, endpoint=False) + jnp.arctan2(mark[1], mark[0])
    ring = mark[:2] + (radius[0] + gap + 0.02) * jnp.stack([jnp.cos(angles), jnp.sin(angles)], 1)
    drawn = drawn.at[0].set(ring)
    blank = (jnp.full((num, 2), 10 * FAR), jnp.zeros(num))

    def put(planted, item):
        places, radii = planted
        index, options, r = item
        off_path = jnp.min(jnp.linalg.norm(options[:, None] - path[:, :2], axis=-1), 1) - r >= gap
        apart = jnp.linalg.norm(options[:, None] - places, axis=-1) - radii - r
        fits = off_path & jnp.all(apart >= spacing, 1)
        # One that fits nowhere goes far away, each to its own place.
        chosen = jnp.where(jnp.any(fits), options[jnp.argmax(fits)], 10 * FAR + index * FAR)
        return (places.at[index].set(chosen), radii.at[index].set(r)), None

    (places, radii), _ = jax.lax.scan(put, blank, (jnp.arange(num), drawn, radius))
    return Forest(places[:, 0], places[:, 1], radii, height)
