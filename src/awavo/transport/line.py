r"""Optimal transport on the line: exact W_p^p for any p >= 1, weights and sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.transport.checks import check_order, check_points, check_weights, common_float
from awavo.transport.sorting import sort_pairs, sort_values, take_by_order
from awavo.transport.staircase import (
    pick,
    power_cost,
    staircase_cost,
    uniform_staircase,
    weight_term,
    weighted_staircase,
)
from awavo.types import Estimate

__all__ = ["line_costs", "root", "wasserstein_1d"]


def _weighted_costs(x, y, x_weights, y_weights, order: float) -> Float[Array, "*batch"]:
    """The general case: sort with the permutations, merge the cumulated weights, sum the cells."""
    x_weights, y_weights = _or_uniform(x_weights, x), _or_uniform(y_weights, y)
    (x, x_order), (y, y_order) = sort_pairs(x), sort_pairs(y)
    stairs = weighted_staircase(x_weights, x_order, y_weights, y_order)
    x_sorted = take_by_order(jnp.broadcast_to(x_weights, x.shape), x_order)
    y_sorted = take_by_order(jnp.broadcast_to(y_weights, y.shape), y_order)
    x_term = weight_term(order, x_sorted, x, pick(y, stairs.x_to_y))
    y_term = weight_term(order, y_sorted, y, pick(x, stairs.y_to_x))
    return staircase_cost(x, y, stairs, order) + x_term + y_term


def _or_uniform(weights: Float[Array, "*#b n"] | None, points: Float[Array, "*b n"]) -> Float[Array, "*#b n"]:
    num = points.shape[-1]
    return jnp.full((num,), 1.0 / num, points.dtype) if weights is None else weights.astype(points.dtype)


@partial(jax.jit, static_argnames="order")
def line_costs(
    x: Float[Array, "*batch n"],
    y: Float[Array, "*batch m"],
    x_weights: Float[Array, "*#batch n"] | None,
    y_weights: Float[Array, "*#batch m"] | None,
    order: float,
) -> Float[Array, "*batch"]:
    """`wasserstein_1d` without its checks: the compiled core that every sliced distance calls."""
    if x_weights is not None or y_weights is not None:
        return _weighted_costs(x, y, x_weights, y_weights, order)
    x, y = sort_values(x), sort_values(y)
    if x.shape == y.shape:  # equal weights, equal numbers: sorted points are partners
        return jnp.mean(power_cost(x - y, order), axis=-1)
    return staircase_cost(x, y, uniform_staircase(x.shape[-1], y.shape[-1]), order)


def wasserstein_1d(
    x: Float[Array, "*batch n"] | np.ndarray,
    y: Float[Array, "*batch m"] | np.ndarray,
    *,
    x_weights: Float[Array, "*#batch n"] | np.ndarray | None = None,
    y_weights: Float[Array, "*#batch m"] | np.ndarray | None = None,
    order: float = 2,
) -> Float[Array, "*batch"]:
    r"""Return the exact W_p^p of weighted samples on the line (its p-th root is `root(value, order)`).

    .. math::

        W_p^p(\mu, \nu) = \int_0^1 |F_\mu^{-1}(q) - F_\nu^{-1}(q)|^p \, dq,
        \qquad \mu = \sum_i a_i \delta_{x_i}, \quad \nu = \sum_j b_j \delta_{y_j}

    The gradient in the points is :math:`p \sum_j \gamma_{ij} |x_i - y_j|^{p-1} \mathrm{sgn}(x_i - y_j)` with the
    monotone coupling :math:`\gamma`; in the weights it is the Kantorovich potential minus its mean, a subgradient at
    every weight vector, ties included, whose entries sum to zero so that a step stays on the simplex.

    Args:
        x: Points of the first measure along the last axis; leading axes are a batch.
        y: Points of the second measure, with the same batch axes; the number of points may differ.
        x_weights: Weights of `x`, non-negative, of sum one; uniform when None.
        y_weights: Weights of `y`, likewise.
        order: The exponent p >= 1, a plain number.

    Returns:
        One value for each batch entry.

    Raises:
        InputError: For empty or non-finite points, weights that are no probability vector, other batch axes, or p < 1.
    """
    order = check_order(order)
    x, y = common_float(x, y)
    check_points("x", x, min_ndim=1)
    check_points("y", y, min_ndim=1, batch=x.shape[:-1])
    x_weights = check_weights("x_weights", x_weights, x.shape)
    y_weights = check_weights("y_weights", y_weights, y.shape)
    return line_costs(x, y, x_weights, y_weights, order)


def root(value: Any, order: float = 2) -> Any:
    """Return the distance `value ** (1 / order)` of a p-th power, with derivative zero where the value is zero.

    The plain root has an infinite slope there, which turns the gradient of a vanishing distance into NaN. An `Estimate`
    is rooted with its ends: the root is monotone, so the interval stays one.
    """
    if not isinstance(value, Estimate):
        return _root(value, order)
    if isinstance(value.value, np.ndarray | np.generic):
        value_, low, high = (np.maximum(part, 0) ** (1 / order) for part in value[:3])
    else:
        value_, low, high = (_root(part, order) for part in value[:3])
    return Estimate(value_, low, high, value.count, f"root of {value.method}")


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _root(value: Float[Array, "*any"], order: float) -> Float[Array, "*any"]:
    return value if order == 1 else jnp.maximum(value, 0) ** (1.0 / order)


@_root.defjvp
def _root_jvp(order, primals, tangents):
    value = primals[0]
    positive = value > 0
    distance = _root(value, order)
    # d value^(1/p) = distance / (p value), with a safe denominator in the branch not taken.
    slope = jnp.where(positive, distance / (order * jnp.where(positive, value, 1)), 0)
    return distance, slope * tangents[0]
