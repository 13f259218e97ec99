r"""Sliced partial transport: points may stay without a partner, for a price (Bai et al., 2023).

On the line, with x and y sorted, the best matching of points of equal mass never crosses. With c the cost of a pair
and :math:`\lambda` the price of a point left alone, the least cost of the first i and j points is

.. math::  D_{ij} = \min(D_{i-1,j} + \lambda,\ D_{i,j-1} + \lambda,\ D_{i-1,j-1} + c(x_i, y_j)).

The second term makes a row depend on itself; it is a running minimum of :math:`D_{ij} - \lambda j`.
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
from awavo.transport.defining import Linear
from awavo.transport.problem import Options, finish, prepare
from awavo.transport.sorting import sort_values
from awavo.transport.staircase import power_cost
from awavo.types import Estimate

__all__ = ["partial_line_costs", "partial_sliced_wasserstein"]


@partial(jax.jit, static_argnames="order")
def partial_line_costs(
    x: Float[Array, "l n"], y: Float[Array, "l m"], penalty: Float[Array, ""], *, order: float
) -> Float[Array, " l"]:
    """Return the least cost of every row, for points of mass 1 / max(n, m); differentiable in points and penalty."""
    x, y = sort_values(x), sort_values(y)
    # A price that no pair reaches leaves just those alone that have no partner; the digits are for the pairs.
    widest = jnp.maximum(x[:, -1] - y[:, 0], y[:, -1] - x[:, 0])[:, None]
    price = jnp.minimum(penalty, lax.stop_gradient(power_cost(widest, order)))
    alone = price * jnp.arange(y.shape[1] + 1, dtype=x.dtype)

    @jax.checkpoint
    def row(above: Array, point: Array) -> tuple[Array, None]:
        paired = above[:, :-1] + power_cost(point[:, None] - y, order)
        best = jnp.minimum(above[:, 1:] + price, paired)
        best = jnp.concatenate([above[:, :1] + price, best], axis=1)
        return lax.cummin(best - alone, axis=1) + alone, None

    last, _ = lax.scan(row, alone, x.T)
    over = abs(x.shape[1] - y.shape[1]) * (penalty - price[:, 0])
    return (last[:, -1] + over) / max(x.shape[1], y.shape[1])


def _is_price(penalty: object) -> bool:
    try:
        return 0 < float(penalty) < np.inf  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return False


def partial_sliced_wasserstein(x: object, y: object, options: Options, *, penalty: float = 1.0) -> Estimate:
    r"""Return the sliced partial distance to the power p.

    Every point has mass 1 / max(n, m) and is carried at the price of its distance to the power p, or left alone at
    `penalty`, in the same units; a pair further apart than :math:`(2 \lambda)^{1/p}` is never made. Weights are
    refused. The work is n m for each slice.
    """
    problem = prepare(x, y, options)
    if problem.x_weights is not None or problem.y_weights is not None:
        raise InputError("Partial transport was given weights, expected points of equal mass: resample by the weights.")
    if is_known(penalty) and not _is_price(penalty):
        raise InputError(
            f"penalty is {penalty!r}, expected a finite number > 0: the price of a point left alone, a power p."
        )
    rows = [Linear().project(cloud, problem.slices) for cloud in (problem.x, problem.y)]
    costs = partial_line_costs(*rows, jnp.asarray(penalty, problem.x.dtype), order=problem.order)
    return finish(problem, jnp.mean(costs), costs, f"partial, {penalty:g} for a point left alone")
