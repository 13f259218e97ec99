r"""A control variate for order 2: the exact distance of the Gaussians that share the clouds' moments.

.. math::

    g(\theta) = \langle \theta, m_x - m_y \rangle^2
              + \left( \sqrt{\theta^\top S_x \theta} - \sqrt{\theta^\top S_y \theta} \right)^2

follows W_2^2 of the slices closely and needs no sorting, so its mean is known from many cheap slices, and the average
of :math:`W_2^2(\theta_l) - g(\theta_l)` over few expensive ones does the rest. The result has no bias.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from awavo.transport.average import Clouds
from awavo.transport.intervals import block_variance
from awavo.transport.line import root
from awavo.transport.slices import draw_slices

__all__ = ["surrogate_costs", "surrogate_mean"]

_CHEAP_SLICES = 1 << 13  # slices that need no sorting


def _moments(points: Float[Array, "n k"], weights: Float[Array, " n"] | None) -> tuple[Array, Array]:
    weights = jnp.full(points.shape[:1], 1.0 / points.shape[0], points.dtype) if weights is None else weights
    mean = weights @ points
    centred = points - mean
    return mean, (centred * weights[:, None]).T @ centred


def surrogate_costs(clouds: Clouds, slices: Float[Array, "l k"]) -> Float[Array, " l"]:
    """Return g for each slice."""
    x_mean, x_cov = _moments(clouds.x, clouds.x_weights)
    y_mean, y_cov = _moments(clouds.y, clouds.y_weights)
    shift = slices @ (x_mean - y_mean)
    x_width = root(jnp.sum((slices @ x_cov) * slices, axis=1), 2)
    y_width = root(jnp.sum((slices @ y_cov) * slices, axis=1), 2)
    return shift**2 + (x_width - y_width) ** 2


def surrogate_mean(
    key: Key[Array, ""], clouds: Clouds, dim: int, sampling: str | None, scale: np.ndarray | None
) -> tuple[Float[Array, ""], Float[Array, ""], int]:
    """Return the mean of g over all slices, from many of them, with the variance of that mean and its freedom."""
    slices, block = draw_slices(key, max(_CHEAP_SLICES, 8 * dim), dim, sampling=sampling, split=True)
    slices = slices.astype(clouds.x.dtype)
    costs = surrogate_costs(clouds, slices if scale is None else slices * scale.astype(slices.dtype))
    return jnp.mean(costs), *block_variance(costs, block)
