r"""What a robot of the goal task senses of goal and hazards: pseudo-lidars and a compass, in its own frame.

An object at distance d shows :math:`e^{-d}` in the bin of its direction; with :math:`\alpha \in [0, 1)` its place
within the bin, the next bin shows :math:`\alpha e^{-d}` and the one before :math:`(1 - \alpha) e^{-d}`. Bins keep the
largest value of all objects. In space, azimuth wraps round and elevation stops at its first and last bin.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["AZIMUTHS", "BINS", "ELEVATIONS", "compass", "lidar_plane", "lidar_space"]

BINS = 16
AZIMUTHS, ELEVATIONS = 10, 6


def _spread(place: Float[Array, " H"], num: int, wraps: bool) -> tuple[Float[Array, "H n"], Float[Array, "H n"]]:
    """Shares of each bin: 1 for the bin of `place` (in bins), and with the neighbours' shares too."""
    bins = jnp.arange(num)
    index = jnp.clip(jnp.floor(place), 0, num - 1)
    alpha = jnp.clip(place - index, 0.0, 1.0)
    after, before = index + 1, index - 1
    if wraps:
        after, before = jnp.where(after == num, 0, after), jnp.where(before < 0, num - 1, before)
    # An object near a bin's edge shows in the neighbour too, so that nothing jumps as it passes.
    here = (bins == index[:, None]).astype(place.dtype)
    above = jnp.where(bins == after[:, None], alpha[:, None], 0.0)
    below = jnp.where(bins == before[:, None], 1 - alpha[:, None], 0.0)
    return here, jnp.maximum(here, jnp.maximum(above, below))


def _azimuth(offsets: Float[Array, "H d"], num: int) -> Float[Array, " H"]:
    angle = jnp.arctan2(offsets[:, 1], offsets[:, 0])
    return jnp.where(angle < 0, angle + 2 * jnp.pi, angle) * (num / (2 * jnp.pi))


def lidar_plane(offsets: Float[Array, "H 3"]) -> Float[Array, " 16"]:
    """16 bins over the directions in the robot's plane; distances in that plane."""
    value = jnp.exp(-jnp.linalg.norm(offsets[:, :2], axis=-1))
    _, shares = _spread(_azimuth(offsets, BINS), BINS, wraps=True)
    return jnp.max(value[:, None] * shares, 0, initial=0.0)


def lidar_space(offsets: Float[Array, "H 3"]) -> Float[Array, " 60"]:
    """10 azimuths by 6 elevations (from straight down to straight up), azimuth the slower index."""
    value = jnp.exp(-jnp.linalg.norm(offsets, axis=-1))
    elevation = jnp.arctan2(offsets[:, 2], jnp.linalg.norm(offsets[:, :2], axis=-1)) + jnp.pi / 2
    one_a, wide_a = _spread(_azimuth(offsets, AZIMUTHS), AZIMUTHS, wraps=True)
    one_e, wide_e = _spread(elevation * (ELEVATIONS / jnp.pi), ELEVATIONS, wraps=False)
    # Neighbours along one direction at a time: the four diagonal bins show nothing.
    shares = jnp.maximum(wide_a[:, :, None] * one_e[:, None], one_a[:, :, None] * wide_e[:, None])
    return jnp.max(value[:, None, None] * shares, 0, initial=0.0).ravel()


def compass(offset: Float[Array, " 3"], dims: int) -> Float[Array, " dims"]:
    """Direction to the goal, of (almost) unit length in space; in the plane of what is left of it there."""
    shown = offset[:dims]
    return shown / (jnp.linalg.norm(shown) + 1e-3)  # finite at the goal itself
