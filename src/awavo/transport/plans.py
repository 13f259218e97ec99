r"""Transport plans from slices: couplings on the line carried back to the space.

The coupling of every slice is a coupling of the two measures. The cheapest of them in the space bounds W_p^p from above
(min-SWGG, Mahey et al., 2023); their average is the expected sliced plan (Liu et al., 2024).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.errors import InputError, did_you_mean
from awavo.transport.defining import Linear
from awavo.transport.problem import Options, Problem, finish, prepare
from awavo.transport.sorting import sort_pairs
from awavo.transport.staircase import weighted_staircase
from awavo.types import Estimate

__all__ = ["SlicedPlan", "sliced_plan"]

_KINDS = ("min", "expected")


class SlicedPlan(NamedTuple):
    """A coupling as cells: `mass[k]` goes from point `rows[k]` of x to point `cols[k]` of y; cells may repeat."""

    estimate: Estimate  # cost of the plan in the space, sum of mass |x - y|^p
    rows: Int[Array, " k"]
    cols: Int[Array, " k"]
    mass: Float[Array, " k"]
    slices: Float[Array, "l d"]  # those the plan rests on

    def dense(self, num_x: int, num_y: int) -> Float[Array, "n m"]:
        """Return the plan as a matrix."""
        return jnp.zeros((num_x, num_y), self.mass.dtype).at[self.rows, self.cols].add(self.mass)


@partial(jax.jit, static_argnames="order")
def _lift(x, y, x_weights, y_weights, slices, *, order: float):
    """Cells of every slice, and what they cost in the space."""
    x_places, y_places = (sort_pairs(Linear().project(cloud, slices))[1] for cloud in (x, y))
    stairs = weighted_staircase(x_weights, x_places, y_weights, y_places)

    def take(places: Array, index: Array) -> Array:
        return jnp.take_along_axis(places, index, axis=-1)

    rows = jnp.concatenate([x_places, take(x_places, jnp.asarray(stairs.y_to_x))], axis=1)
    cols = jnp.concatenate([take(y_places, jnp.asarray(stairs.x_to_y)), y_places], axis=1)
    mass = jnp.concatenate([stairs.x_mass, stairs.y_mass], axis=1)

    def cost(rows: Array, cols: Array, mass: Array) -> Array:
        squares = jnp.sum((x[rows] - y[cols]) ** 2, axis=-1)
        apart = squares > 0
        costs = jnp.where(apart, jnp.where(apart, squares, 1) ** (order / 2), 0) if order != 2 else squares
        return jnp.sum(mass * costs)

    return rows, cols, mass, jax.lax.map(lambda cells: cost(*cells), (rows, cols, mass))


def sliced_plan(x: object, y: object, kind: str = "min", **options: Any) -> SlicedPlan:
    r"""Return a transport plan between two clouds from their slices, for any weights and sizes.

    `kind` is `min`, the plan of the slice whose coupling is cheapest in the space, or `expected`, the average of all.
    Its cost :math:`\sum_k m_k |x_{i_k} - y_{j_k}|^p` is an upper bound of W_p^p; it is differentiable in the points
    with the coupling held. `options` are `key`, `num_slices`, `order`, weights and their other names, as in
    `sliced_wasserstein`. For clouds with few points: the expected plan has L (n + m) cells.
    """
    if kind not in _KINDS:
        raise InputError(f"There is no plan '{kind}'.{did_you_mean(kind, _KINDS)}")
    problem: Problem = prepare(x, y, Options(**options))
    weights = [
        jnp.full(cloud.shape[:1], 1 / cloud.shape[0], cloud.dtype) if given is None else given
        for cloud, given in ((problem.x, problem.x_weights), (problem.y, problem.y_weights))
    ]
    rows, cols, mass, costs = _lift(problem.x, problem.y, *weights, problem.slices, order=problem.order)
    if kind == "min":
        best = jnp.argmin(costs)
        estimate = finish(problem, costs[best], None, "cost of the cheapest sliced plan")
        return SlicedPlan(estimate, rows[best], cols[best], mass[best], problem.slices[best][None])
    estimate = finish(problem, jnp.mean(costs), costs, "cost of the expected sliced plan")
    return SlicedPlan(estimate, rows.ravel(), cols.ravel(), mass.ravel() / mass.shape[0], problem.slices)
