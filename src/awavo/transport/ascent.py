r"""Slices that are sought instead of drawn: ascent of W_p^p over the sphere, and the max-sliced distance."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.errors import InputError
from awavo.transport.average import Clouds, slice_costs
from awavo.transport.checks import check_arrays, check_order, check_positive, check_slices
from awavo.transport.defining import Defining, Linear
from awavo.transport.slices import draw_slices, unit_slices

__all__ = ["MaxSlice", "ascend_slices", "max_sliced_wasserstein", "slice_overlap"]


class MaxSlice(NamedTuple):
    """The largest W_p^p found over slices, and the slice that gives it."""

    value: Float[Array, ""]
    slice: Float[Array, " c"]


def _ascend(clouds: Clouds, slices: Array, defining: Defining, order: float, num_steps: int, step: float) -> Array:
    """Move every slice towards its own gradient by a fixed step; keep the best one each has met."""

    def total(rows: Array) -> tuple[Array, Array]:
        costs = slice_costs(clouds, rows, defining, order)
        return jnp.sum(costs), costs

    def climb(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        rows, best_rows, best_costs = state
        (_, costs), gradient = jax.value_and_grad(total, has_aux=True)(rows)
        better = costs > best_costs
        best_rows = jnp.where(better[:, None], rows, best_rows)
        towards = unit_slices(gradient)  # zero where the gradient is
        moved = unit_slices((1 - step) * rows + step * towards)
        rows = jnp.where(jnp.any(towards != 0, axis=1, keepdims=True), moved, rows)
        return (rows, best_rows, jnp.maximum(costs, best_costs)), None

    start = (slices, slices, jnp.full(slices.shape[:1], -1, slices.dtype))
    (rows, best_rows, best_costs), _ = lax.scan(climb, start, None, length=num_steps)
    better = total(rows)[1] > best_costs
    return jnp.where(better[:, None], rows, best_rows)


@partial(jax.jit, static_argnames=("defining", "order", "num_steps", "step"))
def _climb(clouds: Clouds, slices: Array, defining: Defining, order: float, num_steps: int, step: float) -> Array:
    """The same with steps that are halved where a slice would not get higher: W_p^p need not be convex in it."""

    def evaluated(rows: Array) -> tuple[Array, Array]:
        costs, pull = jax.vjp(lambda rows: slice_costs(clouds, rows, defining, order), rows)
        return costs, unit_slices(pull(jnp.ones_like(costs))[0])

    def climb(state: tuple[Array, Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array, Array], None]:
        rows, costs, towards, length = state
        moved = unit_slices((1 - length) * rows + length * towards)
        found, further = evaluated(moved)
        higher = (found > costs)[:, None]
        longer = jnp.where(higher, jnp.minimum(2 * length, step), length / 2)
        return (
            jnp.where(higher, moved, rows), jnp.maximum(found, costs), jnp.where(higher, further, towards), longer,
        ), None  # fmt: skip

    start = (slices, *evaluated(slices), jnp.full((slices.shape[0], 1), step, slices.dtype))
    return lax.scan(climb, start, None, length=num_steps)[0][0]


_ascend_compiled = partial(jax.jit, static_argnames=("defining", "order", "num_steps", "step"))(_ascend)


def _check_step(step: float | None, defining: Defining) -> float:
    step = (1.0 if defining.linear else 0.2) if step is None else step
    if not 0 < step <= 1:
        raise InputError(f"step is {step}, expected a number in (0, 1]: 1 is the power step.")
    return step


def ascend_slices(
    x: Float[Array, "n d"] | np.ndarray,
    y: Float[Array, "m d"] | np.ndarray,
    slices: Float[Array, "l c"] | np.ndarray,
    *,
    order: float = 2,
    x_weights: Float[Array, " n"] | np.ndarray | None = None,
    y_weights: Float[Array, " m"] | np.ndarray | None = None,
    defining: Defining | None = None,
    num_steps: int = 30,
    step: float | None = None,
) -> Float[Array, "l c"]:
    r"""Return each slice moved uphill on W_p^p, over the unit sphere.

    .. math::

        \theta \leftarrow \frac{(1 - s)\, \theta + s\, u}{|(1 - s)\, \theta + s\, u|},
        \qquad u = \frac{\nabla_\theta W_p^p}{|\nabla_\theta W_p^p|}

    For s = 1, p = 2 and linear slices this is the power step :math:`\theta \leftarrow M_\theta \theta` with
    :math:`M_\theta = \sum \gamma_{ij} (x_i - y_j)(x_i - y_j)^\top` on the coupling of that slice. No gradient passes
    through.

    `slices` are the rows `[L, c]` to start from and `step` is the relaxation s in (0, 1]; None takes 1 where alpha is
    linear in the slice and 0.2 elsewhere. The other arguments are as in `sliced_wasserstein`.
    """
    order, defining = check_order(order), Linear() if defining is None else defining
    x, y, x_weights, y_weights = check_arrays(x, y, x_weights, y_weights)
    slices = unit_slices(check_slices(slices, defining.num_coefficients(x.shape[1]), x))
    clouds = Clouds(defining.features(x), defining.features(y), x_weights, y_weights)
    slicer = Linear() if defining.linear else defining
    num_steps, step = check_positive("num_steps", num_steps), _check_step(step, defining)
    found = _ascend_compiled(lax.stop_gradient(clouds), slices, slicer, order, num_steps, step)
    return lax.stop_gradient(found)


def _mean_gap(clouds: Clouds, num: int) -> Array:
    """The difference of the means of the features, the best slice for a pure shift."""
    means = [
        jnp.mean(points, axis=0) if weights is None else weights @ points
        for points, weights in ((clouds.x, clouds.x_weights), (clouds.y, clouds.y_weights))
    ]
    gap = means[0] - means[1]
    return unit_slices(gap if gap.shape[0] == num else jnp.resize(gap, (num,)))


def max_sliced_wasserstein(
    x: Float[Array, "n d"] | np.ndarray,
    y: Float[Array, "m d"] | np.ndarray,
    *,
    key: Key[Array, ""],
    num_starts: int = 8,
    num_steps: int = 30,
    order: float = 2,
    x_weights: Float[Array, " n"] | np.ndarray | None = None,
    y_weights: Float[Array, " m"] | np.ndarray | None = None,
    defining: Defining | None = None,
    step: float | None = None,
) -> MaxSlice:
    r"""Return max-GSW_p^p, the largest value over the sphere, and where it is.

    .. math::

        \max_{|\theta| = 1} W_p^p(\alpha(\cdot, \theta)_\# \mu, \alpha(\cdot, \theta)_\# \nu)

    Ascent from `num_starts` slices, one of them the difference of the means. The maximum over all slices is a metric;
    what ascent finds is a lower bound of it. Its steps begin at `step` and are halved where they would not lead higher.
    The gradient in points and weights is taken at the slice found, as the
    envelope theorem allows. Arguments as in `ascend_slices`.
    """
    order, defining = check_order(order), Linear() if defining is None else defining
    x, y, x_weights, y_weights = check_arrays(x, y, x_weights, y_weights)
    num = defining.num_coefficients(x.shape[1])
    clouds = Clouds(defining.features(x), defining.features(y), x_weights, y_weights)
    slicer = Linear() if defining.linear else defining
    starts, _ = draw_slices(key, check_positive("num_starts", num_starts), num, sampling="orthogonal")
    # The difference of the means is the answer for a pure shift: ascent begins there too.
    starts = starts.astype(x.dtype).at[0].set(_mean_gap(lax.stop_gradient(clouds), num))
    num_steps, step = check_positive("num_steps", num_steps), _check_step(step, defining)
    found = lax.stop_gradient(_climb(lax.stop_gradient(clouds), starts, slicer, order, num_steps, step))
    costs = slice_costs(clouds, found, slicer, order)
    best = jnp.argmax(costs)
    return MaxSlice(costs[best], found[best])


def slice_overlap(slices: Float[Array, "l c"]) -> Float[Array, ""]:
    r"""Return the mean of :math:`\langle \theta_i, \theta_j \rangle^2` over pairs of unit slices: zero when orthogonal.

    Subtract it from the objective of a slicing head, or all its slices fall onto the same maximum.
    """
    units = unit_slices(slices)
    gram = units @ units.T
    # Pairs only: each slice overlaps with itself by one.
    num = slices.shape[0]
    return (jnp.sum(gram**2) - jnp.sum(jnp.diagonal(gram) ** 2)) / max(1, num * (num - 1))
