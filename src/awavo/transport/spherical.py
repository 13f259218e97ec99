r"""Sliced transport on the sphere: points are projected onto great circles (Bonet et al., 2023).

On a circle of circumference one the coupling may turn by any amount. With quantile functions extended by
:math:`F^{-1}(t + 1) = F^{-1}(t) + 1`,

.. math::  W_p^p = \min_{s} \int_0^1 |F^{-1}(t) - G^{-1}(t - s)|^p dt,

which is convex in s. Uniform samples of equal size need whole steps only, found by bisection; otherwise s is found by
the golden section.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.transport.checks import is_known
from awavo.transport.problem import Options, finish, prepare
from awavo.transport.sorting import sort_pairs, sort_values, take_by_order
from awavo.transport.staircase import power_cost
from awavo.types import Estimate

__all__ = ["circle_costs", "spherical_sliced_wasserstein"]

_STEPS = 40  # of the golden section: 2 * 0.618^40 is below 1e-8


def _equal(x: Float[Array, "l n"], y: Float[Array, "l n"], order: float) -> Float[Array, " l"]:
    """Uniform samples of one size, sorted: partners are `shift` places apart."""
    num = x.shape[-1]

    def cost(shift: Array, x: Array, y: Array) -> Array:
        place = jnp.arange(num) + shift[:, None]
        partner = jnp.take_along_axis(y, place % num, axis=-1) + place // num
        return jnp.mean(power_cost(x - partner, order), axis=-1)

    held = lax.stop_gradient((x, y))

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends  # the first shift from which the cost does not fall any more lies in [low, high]
        middle = (low + high) // 2
        falls = cost(middle + 1, *held) < cost(middle, *held)
        return jnp.where(falls, middle + 1, low), jnp.where(falls, high, middle)

    start = jnp.full(x.shape[:1], num, jnp.int32)
    low, _ = lax.fori_loop(0, int(np.ceil(np.log2(2 * num + 1))) + 1, halve, (-start, start))
    return cost(low, x, y)


def _cost_at(turn: Array, x: Array, y: Array, x_levels: Array, y_levels: Array, order: float) -> Array:
    """The cost of one pair of sorted samples, turned: cells end at the levels of both."""
    ends = jnp.sort(jnp.concatenate([x_levels, jnp.mod(y_levels + turn, 1.0)]))
    ends = ends.at[-1].set(1.0)
    mass = jnp.diff(ends, prepend=0.0)
    middle = ends - mass / 2
    behind = middle - turn
    rounds = jnp.floor(behind)
    i = jnp.minimum(jnp.searchsorted(x_levels, middle), x.shape[0] - 1)
    j = jnp.minimum(jnp.searchsorted(y_levels, behind - rounds), y.shape[0] - 1)
    return jnp.sum(lax.stop_gradient(mass) * power_cost(x[i] - y[j] - rounds, order))


def _general(x: Array, y: Array, x_levels: Array, y_levels: Array, order: float) -> Array:
    held = lax.stop_gradient((x, y, x_levels, y_levels))
    golden = (5**0.5 - 1) / 2

    def narrow(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        left, right = high - golden * (high - low), low + golden * (high - low)
        fall = _cost_at(left, *held, order) > _cost_at(right, *held, order)
        return jnp.where(fall, left, low), jnp.where(fall, high, right)

    low, high = lax.fori_loop(0, _STEPS, narrow, (jnp.full((), -1.0, x.dtype), jnp.full((), 1.0, x.dtype)))
    return _cost_at((low + high) / 2, x, y, *held[2:], order)


@partial(jax.jit, static_argnames="order")
def circle_costs(
    x: Float[Array, "l n"],
    y: Float[Array, "l m"],
    x_weights: Float[Array, " n"] | None,
    y_weights: Float[Array, " m"] | None,
    *,
    order: float,
) -> Float[Array, " l"]:
    """Return W_p^p on the circle of circumference one, for rows of points in [0, 1); differentiable in the points."""
    if x_weights is None and y_weights is None and x.shape == y.shape:
        return _equal(sort_values(x), sort_values(y), order)

    def sorted_levels(points: Array, weights: Array | None) -> tuple[Array, Array]:
        points, places = sort_pairs(points)
        weights = jnp.full(points.shape[-1:], 1 / points.shape[-1], points.dtype) if weights is None else weights
        levels = jnp.cumsum(take_by_order(jnp.broadcast_to(weights, points.shape), places), axis=-1)
        return points, lax.stop_gradient((levels / levels[:, -1:]).at[:, -1].set(1.0))

    (x, x_levels), (y, y_levels) = sorted_levels(x, x_weights), sorted_levels(y, y_weights)
    return jax.vmap(partial(_general, order=order))(x, y, x_levels, y_levels)


def _angles(points: Float[Array, "n d"], frames: Float[Array, "l 2 d"]) -> Float[Array, "l n"]:
    """Places of the points on each great circle, in [0, 1)."""
    plane = jnp.einsum("lkd,nd->lkn", frames, points)
    return jnp.mod(jnp.arctan2(plane[:, 1], plane[:, 0]) / (2 * jnp.pi), 1.0)


def spherical_sliced_wasserstein(x: object, y: object, options: Options) -> Estimate:
    r"""Return the spherical sliced distance to the power p, in units of the circumference as in POT.

    Points are unit vectors; a given slice is two orthonormal rows, a drawn one a uniform great circle. The gradient in
    the points holds the coupling; the weights have none.
    """
    problem = prepare(x, y, options, frames=2)
    for name, cloud in (("x", problem.x), ("y", problem.y)):
        if is_known(cloud):
            lengths = np.linalg.norm(np.asarray(cloud, np.float64), axis=1)
            if np.max(np.abs(lengths - 1)) > 1e-3:
                worst = lengths[np.argmax(np.abs(lengths - 1))]
                raise InputError(f"A point of {name} has length {worst:.4g}, expected 1: divide points by their norm.")
    frames = problem.slices.reshape(-1, 2, problem.slices.shape[1])
    x_angles, y_angles = _angles(problem.x, frames), _angles(problem.y, frames)
    costs = circle_costs(x_angles, y_angles, problem.x_weights, problem.y_weights, order=problem.order)
    return finish(problem, jnp.mean(costs), costs, "great circles", frames.shape[0])
