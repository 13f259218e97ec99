r"""Sliced transport: moving one cloud towards another along slices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.transport.average import Clouds, slice_average
from awavo.transport.checks import check_measures, check_positive, check_slices
from awavo.transport.defining import Linear

__all__ = ["sliced_displacement"]


def sliced_displacement(
    x: Float[Array, "n d"] | np.ndarray,
    y: Float[Array, "m d"] | np.ndarray,
    slices: Float[Array, "l d"] | np.ndarray,
    *,
    x_weights: Float[Array, " n"] | np.ndarray | None = None,
    y_weights: Float[Array, " m"] | np.ndarray | None = None,
    chunk: int | None = None,
) -> Float[Array, "n d"]:
    r"""Return the averaged slice displacement of every point of `x` towards `y`.

    .. math::

        v_i = \frac{d}{L} \sum_l \theta_l ( T_l(\langle \theta_l, x_i \rangle) - \langle \theta_l, x_i \rangle ),
        \qquad T_l(x_i) = \frac{1}{a_i} \sum_j \gamma^l_{ij} \langle \theta_l, y_j \rangle

    with the monotone coupling of each slice, so :math:`v_i = -\frac{d}{2 a_i} \nabla_{x_i} SW_2^2`. A step `x + v` is
    exact for a translation on whole orthonormal blocks; smaller steps, fresh slices and repetition follow the sliced
    Wasserstein flow. Points of weight zero stay.
    """
    x, y, x_weights, y_weights = check_measures(x, y, x_weights, y_weights)
    slices = check_slices(slices, x.shape[1], x)
    chunk = None if chunk is None else check_positive("chunk", chunk)

    def energy(points: Array) -> Array:
        clouds = Clouds(points, y, x_weights, y_weights)
        return slice_average(clouds, slices, None, defining=Linear(), order=2, chunk=chunk)[0]

    num, dim = x.shape
    weights = jnp.full((num,), 1.0 / num, x.dtype) if x_weights is None else x_weights
    # The gradient of a point carries its weight: taken out, points move alike.
    share = jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1), 0)
    return -dim / 2 * share[:, None] * jax.grad(energy)(x)
