r"""The average over slices of W_p^p, whole or in chunks that bound the memory, and the flow along its gradient."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from awavo.transport.checks import check_arrays, check_positive, check_slices
from awavo.transport.defining import Defining, Linear
from awavo.transport.line import line_costs

__all__ = ["Clouds", "default_chunk", "slice_average", "slice_costs", "sliced_displacement"]

# Points times slices held at once.
_CPU_BUDGET = 1 << 20
_DEVICE_BUDGET = 1 << 28


class Clouds(NamedTuple):
    """Two weighted measures, by the features of their points."""

    x: Float[Array, "n k"]
    y: Float[Array, "m k"]
    x_weights: Float[Array, " n"] | None
    y_weights: Float[Array, " m"] | None


def default_chunk(clouds: Clouds, num_slices: int) -> int:
    """Number of slices held at once, for a few dozen megabytes on a CPU and a few gigabytes on an accelerator."""
    budget = _CPU_BUDGET if jax.default_backend() == "cpu" else _DEVICE_BUDGET
    # Weighted coupling holds integer levels of 64 bits and both permutations.
    weighted = clouds.x_weights is not None or clouds.y_weights is not None
    num_points = (4 if weighted else 1) * (clouds.x.shape[0] + clouds.y.shape[0])
    if num_points * num_slices <= 4 * budget:
        return num_slices
    return max(1, budget // num_points)


def slice_costs(clouds: Clouds, slices: Float[Array, "l c"], defining: Defining, order: float) -> Float[Array, " l"]:
    """Return W_p^p of the images of both measures under each slice."""
    x, y = defining.project(clouds.x, slices), defining.project(clouds.y, slices)
    return line_costs(x, y, clouds.x_weights, clouds.y_weights, order)


def _part(order: float, defining: Defining, clouds: Clouds, slices: Array, weights: Array) -> tuple[Array, Array]:
    costs = slice_costs(clouds, slices, defining, order)
    return jnp.sum(weights * costs), costs


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked(order: float, defining: Defining, clouds: Clouds, slices: Array, weights: Array) -> tuple[Array, Array]:
    """Sum over chunks `[b, c, k]` of slices, one after the other."""
    values, costs = lax.map(lambda chunk: _part(order, defining, clouds, *chunk), (slices, weights))
    return jnp.sum(values), costs


def _chunked_fwd(order, defining, *arguments):
    """Form the gradient chunk by chunk together with the value: nothing is kept, nothing is sorted twice."""
    clouds, slices, weights = jax.tree.map(lambda leaf: leaf.value, arguments)
    live = jax.tree.map(lambda leaf: leaf.perturbed, arguments)  # whose gradient is asked for

    def part(clouds, rows, weights):
        clouds, rows = jax.tree.map(
            lambda leaf, flag: leaf if flag else lax.stop_gradient(leaf), (clouds, rows), (live[0], live[1])
        )
        return _part(order, defining, clouds, rows, weights)

    def run(total, chunk):
        (value, costs), (grad, rows_grad) = jax.value_and_grad(part, (0, 1), has_aux=True)(clouds, *chunk)
        return jax.tree.map(jnp.add, total, (value, grad)), (costs, rows_grad)

    start = (jnp.zeros((), slices.dtype), jax.tree.map(jnp.zeros_like, clouds))
    (value, grad), (costs, slices_grad) = lax.scan(run, start, (slices, weights))
    return (value, costs), (grad, slices_grad, jnp.zeros_like(weights))


def _chunked_bwd(order, defining, gradients, cotangents):
    return jax.tree.map(lambda gradient: gradient * cotangents[0], gradients)


_chunked.defvjp(_chunked_fwd, _chunked_bwd, symbolic_zeros=True)


@partial(jax.jit, static_argnames=("defining", "order", "chunk"))
def slice_average(
    clouds: Clouds,
    slices: Float[Array, "l c"],
    weights: Float[Array, " l"] | None,
    *,
    defining: Defining,
    order: float,
    chunk: int | None,
) -> tuple[Float[Array, ""], Float[Array, " l"]]:
    r"""Return :math:`\sum_l w_l W_p^p(\alpha(\cdot, \theta_l)_\# \mu, \alpha(\cdot, \theta_l)_\# \nu)` and its terms.

    Only the sum is differentiable. With `chunk` below the number of slices the work goes through them chunk by chunk;
    its gradient exists in reverse mode only.
    """
    num = slices.shape[0]
    weights = jnp.full((num,), 1.0 / num, slices.dtype) if weights is None else lax.stop_gradient(weights)
    chunk = default_chunk(clouds, num) if chunk is None else chunk
    if chunk >= num:
        value, costs = _part(order, defining, clouds, slices, weights)
        return value, lax.stop_gradient(costs)
    num_chunks = -(-num // chunk)
    chunk = -(-num // num_chunks)
    fill = num_chunks * chunk - num  # slices repeated with weight zero
    rows = jnp.concatenate([slices, slices[:fill]]).reshape(num_chunks, chunk, -1)
    parts = jnp.pad(weights, (0, fill)).reshape(num_chunks, chunk)
    result: tuple[Array, Array] = _chunked(order, defining, clouds, rows, parts)
    return result[0], lax.stop_gradient(result[1]).reshape(-1)[:num]


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
    x, y, x_weights, y_weights = check_arrays(x, y, x_weights, y_weights)
    slices = check_slices(slices, x.shape[1], x, unit=True)
    chunk = None if chunk is None else check_positive("chunk", chunk)

    def energy(points: Array) -> Array:
        clouds = Clouds(points, y, x_weights, y_weights)
        return slice_average(clouds, slices, None, defining=Linear(), order=2, chunk=chunk)[0]

    num, dim = x.shape
    weights = jnp.full((num,), 1.0 / num, x.dtype) if x_weights is None else x_weights
    # The gradient of a point carries its weight: taken out, points move alike.
    share = jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1), 0)
    return -dim / 2 * share[:, None] * jax.grad(energy)(x)
