r"""Confidence intervals of slice averages, from the means of independently drawn blocks, and what narrows them.

A control variate for order 2 is the exact distance of the Gaussians that share the clouds' moments:

.. math::

    g(\theta) = \langle \theta, m_x - m_y \rangle^2
              + \left( \sqrt{\theta^\top S_x \theta} - \sqrt{\theta^\top S_y \theta} \right)^2

follows W_2^2 of the slices closely and needs no sorting, so its mean is known from many cheap slices, and the average
of :math:`W_2^2(\theta_l) - g(\theta_l)` over few expensive ones does the rest. The result has no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from awavo.errors import InputError
from awavo.transport.average import Clouds
from awavo.transport.line import root
from awavo.transport.slices import draw_slices, is_circle
from awavo.types import Estimate

__all__ = [
    "block_sums", "block_variance", "check_confidence", "half_width", "student_quantile", "surrogate_costs",
    "surrogate_mean",
]  # fmt: skip

_CHEAP_SLICES = 1 << 13  # slices that need no sorting


def _flatten(estimate: Estimate) -> tuple[tuple, str]:
    return tuple(estimate[:4]), estimate.method


# `method` is a word, not an array: as static data of the tree it passes through jit, vmap and grad.
jax.tree_util.register_pytree_node(Estimate, _flatten, lambda method, leaves: Estimate(*tuple(leaves), method=method))


def check_confidence(confidence: float | None) -> float | None:
    """Return the level, which lies strictly between 0 and 1, or None for no interval."""
    if confidence is None:
        return None
    if not (isinstance(confidence, int | float | np.floating) and 0 < confidence < 1):
        raise InputError(f"confidence is {confidence!r}, expected a number between 0 and 1 or None: take 0.95.")
    return float(confidence)


def _student_central(t: float, freedom: int) -> float:
    """P(|T| <= t) for a whole number of degrees of freedom, by its finite trigonometric sum."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


@lru_cache(maxsize=256)
def student_quantile(confidence: float, freedom: int) -> float:
    """Return t with P(|T| <= t) = confidence for Student's distribution."""
    normal = NormalDist().inv_cdf(0.5 + confidence / 2)
    if freedom > 1000:  # the first term of the expansion around the normal quantile
        return normal + (normal**3 + normal) / (4 * freedom)
    low, high = normal, normal
    while _student_central(high, freedom) < confidence:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_central(middle, freedom) < confidence else (low, middle)
    return high


def block_sums(values: Any, block: int) -> tuple[Any, np.ndarray]:
    """Return sums over blocks of the last axis, in numpy or jax, and their sizes; the last block may be short."""
    xp = np if isinstance(values, np.ndarray) else jnp
    num = values.shape[-1]
    num_blocks = -(-num // block)
    sizes = np.full(num_blocks, block)
    sizes[-1] = num - block * (num_blocks - 1)
    fill = [(0, 0)] * (values.ndim - 1) + [(0, num_blocks * block - num)]
    return xp.pad(values, fill).reshape(*values.shape[:-1], num_blocks, block).sum(axis=-1), sizes


def block_variance(values: Any, block: int, *, circle: bool = False) -> tuple[Any, int]:
    r"""Return the estimated variance of the mean of `values`, and its degrees of freedom.

    Values of one block of slices depend on each other, blocks do not. With block means :math:`m_b` of weight
    :math:`w_b` (their share of the slices) and overall mean m: :math:`\frac{B}{B-1} \sum_b w_b^2 (m_b - m)^2`.

    On the `circle` blocks are even angles. Their errors are waves of one angle, nearer to an arcsine law than to a
    normal one, and four of them agree by chance too often: one degree of freedom less is what holds its promise.
    """
    xp = np if isinstance(values, np.ndarray) else jnp
    num = values.shape[-1]
    if num <= block:
        return xp.full(values.shape[:-1], xp.nan, values.dtype), 0
    sums, sizes = block_sums(values, block)
    apart = (sums - sizes.astype(values.dtype) * xp.mean(values, axis=-1, keepdims=True)) / num
    freedom = len(sizes) - (2 if circle and block > 1 and len(sizes) > 2 else 1)
    return len(sizes) / (len(sizes) - 1) * xp.sum(apart**2, axis=-1), freedom


def half_width(parts: Sequence[Sequence], confidence: float | None) -> Any:
    """Return half the interval of a sum of independent `(variance, freedom)` parts, each with its own t quantile.

    Infinite freedom is the normal quantile; no freedom at all, or no confidence, gives NaN.
    """
    xp = np if isinstance(parts[0][0], np.ndarray | np.generic) else jnp
    if confidence is None or not all(freedom for _, freedom in parts):
        return xp.full(parts[0][0].shape, xp.nan)
    return xp.sqrt(sum(_quantile(confidence, freedom) ** 2 * variance for variance, freedom in parts))


def _quantile(confidence: float, freedom: float) -> float:
    if math.isinf(freedom):
        return NormalDist().inv_cdf(0.5 + confidence / 2)
    return student_quantile(confidence, int(freedom))


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
    return jnp.mean(costs), *block_variance(costs, block, circle=is_circle(sampling, dim))
