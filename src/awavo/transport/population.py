r"""The distance between the populations that two clouds were drawn from, with an interval for points and slices.

The distance between samples is too large: their scatter adds a bias to every slice, however many slices there are. It
is larger in halves of the samples, so it can be told from the mean :math:`\bar W_{n/2}` over two pairs of halves:

.. math::

    \hat W = W_n - \frac{\beta(n)}{\beta(n/2) - \beta(n)} (\bar W_{n/2} - W_n), \qquad
    \beta(n) = \frac{2 \log \log n + 2.43}{n}

with the rate :math:`\beta = 2 - 2 \sum_i (E z_{(i)})^2 / n` of normal samples at order 2 (within 3% from n = 8 on),
which slices of many dimensions are like; the rate 1/n would leave a tenth of the bias. Its spread has three sources:
which points were drawn, which slices, and both together. With :math:`\phi_b` the Kantorovich potential averaged over
block b of slices and :math:`\bar\phi` over all of them, for x (and likewise for y)

.. math::

    T = \sum_i a_i^2\, \bar\phi_i^2, \qquad
    U = \sum_i a_i^2\, \frac{B}{B-1} \sum_b w_b^2 (\phi_{bi} - \bar\phi_i)^2, \qquad
    S = \frac{B}{B-1} \sum_b w_b^2 (\hat W_b - \hat W)^2

hold points and both, both alone, slices and both; the variance is :math:`(T - U) + S`. The first follows the central
limit theorem of sliced distances, the second has B - 1 degrees of freedom.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.transport.average import Clouds
from awavo.transport.defining import Defining
from awavo.transport.intervals import block_sums
from awavo.transport.line import line_costs

__all__ = ["debiased_costs", "point_variance"]


def _halves(key: Key[Array, ""], rows: Float[Array, "l n"], weights: Float[Array, " n"] | None):
    """Two random halves of the points, seen by all slices, with weights of sum one."""
    half = rows.shape[1] // 2
    order = jax.random.permutation(key, rows.shape[1])
    for index in (order[:half], order[half : 2 * half]):
        share = None if weights is None else weights[index] / jnp.sum(weights[index])
        yield rows[:, index], share


def debiased_costs(
    key: Key[Array, ""], clouds: Clouds, slices: Float[Array, "l c"], defining: Defining, order: float
) -> Float[Array, " l"]:
    """Return the debiased W_p^p of every slice."""
    x, y = defining.project(clouds.x, slices), defining.project(clouds.y, slices)
    whole = line_costs(x, y, clouds.x_weights, clouds.y_weights, order)
    x_key, y_key = jax.random.split(key)
    pairs = zip(_halves(x_key, x, clouds.x_weights), _halves(y_key, y, clouds.y_weights), strict=True)
    halves = [line_costs(a, b, a_weights, b_weights, order) for (a, a_weights), (b, b_weights) in pairs]
    num_x, num_y = x.shape[1], y.shape[1]
    whole_bias, half_bias = _bias(num_x, num_y), _bias(num_x // 2, num_y // 2)
    return whole - whole_bias / (half_bias - whole_bias) * ((halves[0] + halves[1]) / 2 - whole)


def _bias(num_x: int, num_y: int) -> float:
    """The rate of the bias, at the harmonic mean of both sizes."""
    num = 2 / (1 / num_x + 1 / num_y)
    return (2 * math.log(math.log(max(num, 3.0))) + 2.43) / num


def _spread(potential: Float[Array, "l n"], weights: Float[Array, " n"] | None, block: int) -> tuple[Array, Array]:
    """T and U of one measure."""
    num_slices, num = potential.shape
    weights = jnp.full((num,), 1 / num, potential.dtype) if weights is None else weights
    potential = potential - (potential @ weights)[:, None]
    mean = jnp.mean(potential, axis=0)
    both = jnp.sum((weights * mean) ** 2)
    scale = num / max(num - 1, 1)
    if num_slices <= block:
        return scale * both, jnp.zeros_like(both)
    sums, sizes = block_sums(potential.T, block)
    apart = (sums - jnp.asarray(sizes, sums.dtype) * mean[:, None]) / num_slices
    blocks = len(sizes)
    return scale * both, scale * blocks / (blocks - 1) * jnp.sum(weights**2 * jnp.sum(apart**2, axis=1))


def point_variance(
    clouds: Clouds, slices: Float[Array, "l c"], defining: Defining, order: float, block: int
) -> tuple[Float[Array, ""], float]:
    """Return T - U, what the choice of the points adds to the variance beside S, and its degrees of freedom."""
    clouds = lax.stop_gradient(clouds)
    x, y = defining.project(clouds.x, slices), defining.project(clouds.y, slices)

    def rows(points: Array, weights: Array | None) -> Array:
        weights = jnp.full((points.shape[1],), 1 / points.shape[1], points.dtype) if weights is None else weights
        return jnp.broadcast_to(weights, points.shape)

    a, b = rows(x, clouds.x_weights), rows(y, clouds.y_weights)
    # The gradient in the weights of a slice is its potential.
    _, pull = jax.vjp(lambda a, b: line_costs(x, y, a, b, order), a, b)
    x_potential, y_potential = pull(jnp.ones(slices.shape[:1], x.dtype))
    x_both, x_inner = _spread(x_potential, clouds.x_weights, block)
    y_both, y_inner = _spread(y_potential, clouds.y_weights, block)
    return jnp.maximum(x_both - x_inner + y_both - y_inner, 0), math.inf
