r"""The optimal coupling of two weighted samples on the line, as a staircase of cells.

With both samples sorted and `u_i`, `v_j` their cumulated weights, the monotone coupling visits n + m cells: atom i of x
ends at level u_i inside the y atom `x_to_y[i] = #{j : v_j < u_i}`, and atom j of y ends at v_j inside the x atom
`y_to_x[j] = #{i : u_i <= v_j}`. At a tie x ends first (the north-west order), so that neighbouring cells always share
an atom: the Kantorovich potentials solved along the cells are then dual feasible even where cells carry no mass.

    W_p^p   = sum_i x_mass_i |x_i - y[x_to_y_i]|^p + sum_j y_mass_j |x[y_to_x_j] - y_j|^p
    phi_i   = phi_(i-1) + |x_i - y[x_to_y_(i-1)]|^p - |x_(i-1) - y[x_to_y_(i-1)]|^p
    d W_p^p / d a_i = phi_i - mean(phi)
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

__all__ = [
    "Staircase", "pick", "power_cost", "staircase_cost", "uniform_staircase", "weight_term", "weighted_staircase",
]  # fmt: skip

_LEVEL_BITS = 52  # levels are multiples of 2^-52: their sums are exact in 64 bits


class Staircase(NamedTuple):
    """Cells of the coupling: the partner of each atom where it ends, and the mass of that cell."""

    x_to_y: Int[Array, "*batch n"] | np.ndarray
    y_to_x: Int[Array, "*batch m"] | np.ndarray
    x_mass: Float[Array, "*batch n"] | np.ndarray
    y_mass: Float[Array, "*batch m"] | np.ndarray


def uniform_staircase(num_x: int, num_y: int) -> Staircase:
    """Cells for uniform weights 1/n and 1/m, in exact integers of unit 1/(n m), known before any sample is."""
    x_level = np.arange(1, num_x + 1, dtype=np.int64) * num_y
    y_level = np.arange(1, num_y + 1, dtype=np.int64) * num_x
    x_to_y = (x_level - 1) // num_x
    y_to_x = y_level // num_y
    x_mass = x_level - np.maximum(x_level - num_y, x_to_y * num_x)
    y_mass = y_level - np.maximum(y_level - num_x, y_to_x * num_y)
    unit = 1.0 / (num_x * num_y)
    clip = np.minimum(y_to_x, num_x - 1).astype(np.int32)
    return Staircase(x_to_y.astype(np.int32), clip, x_mass * unit, y_mass * unit)


def _levels(weights: Float[Array, "*#batch n"], order: Int[Array, "*batch n"]) -> Int[Array, "*batch n"]:
    """Cumulated weights in fixed point: sums of integers are exact, whatever the order of the atoms."""
    weights = weights.astype(jnp.float64)
    share = weights / jnp.sum(weights, axis=-1, keepdims=True)
    ticks = jnp.round(share * 2.0**_LEVEL_BITS).astype(jnp.int64)
    ticks = jnp.take_along_axis(jnp.broadcast_to(ticks, order.shape), order, axis=-1, mode="promise_in_bounds")
    # Rounded shares may miss one by a few ticks: the last level is one exactly.
    levels = jnp.minimum(jnp.cumsum(ticks, axis=-1), 1 << _LEVEL_BITS)
    return levels.at[..., -1].set(1 << _LEVEL_BITS)


def _count_below(
    levels: Int[Array, "*batch m"], query: Int[Array, "*batch n"], *, or_equal: bool
) -> Int[Array, "*batch n"]:
    """Number of `levels` below each `query`, by bisection."""
    num = levels.shape[-1]

    def halve(step: Array, found: Array) -> Array:
        reach = found + (1 << (num.bit_length() - 1) >> step)  # try the next lower bit of the count
        level = jnp.take_along_axis(levels, jnp.minimum(reach, num) - 1, axis=-1, mode="promise_in_bounds")
        below = level <= query if or_equal else level < query
        return jnp.where((reach <= num) & below, reach, found)

    return lax.fori_loop(0, num.bit_length(), halve, jnp.zeros(query.shape, jnp.int32))


def _cell_mass(own: Int[Array, "*batch n"], other: Int[Array, "*batch m"], count: Int[Array, "*batch n"]) -> Array:
    """Mass between the end of each atom and the last level before it, of either measure."""
    start = jnp.zeros((*own.shape[:-1], 1), own.dtype)
    before_own = jnp.concatenate([start, own[..., :-1]], axis=-1)
    before_other = jnp.take_along_axis(jnp.concatenate([start, other], axis=-1), count, axis=-1, mode="clip")
    return (own - jnp.maximum(before_own, before_other)) * 2.0**-_LEVEL_BITS


def weighted_staircase(
    x_weights: Float[Array, "*#batch n"],
    x_order: Int[Array, "*batch n"],
    y_weights: Float[Array, "*#batch m"],
    y_order: Int[Array, "*batch m"],
) -> Staircase:
    """Cells for any weights. They are constants to differentiation: `weight_term` carries the derivative."""
    dtype = x_weights.dtype
    x_weights, y_weights = lax.stop_gradient((x_weights, y_weights))
    with jax.enable_x64(True):
        x_level, y_level = _levels(x_weights, x_order), _levels(y_weights, y_order)
        x_to_y = _count_below(y_level, x_level, or_equal=False)
        y_to_x = _count_below(x_level, y_level, or_equal=True)
        x_mass = _cell_mass(x_level, y_level, x_to_y).astype(dtype)
        y_mass = _cell_mass(y_level, x_level, y_to_x).astype(dtype)
        return Staircase(x_to_y, jnp.minimum(y_to_x, x_level.shape[-1] - 1), x_mass, y_mass)


def pick(values: Float[Array, "*batch n"], index: Int[Array, "*batch k"] | np.ndarray) -> Float[Array, "*batch k"]:
    """Return `values[index]` along the last axis, for an index that is static or one per batch row."""
    if isinstance(index, np.ndarray):
        return values.at[..., index].get(mode="promise_in_bounds", indices_are_sorted=True)
    return jnp.take_along_axis(values, index, axis=-1, mode="promise_in_bounds")


def power_cost(gap: Float[Array, "*any"], order: float) -> Float[Array, "*any"]:
    """Return `|gap|^order`, with derivative zero where the gap is zero."""
    if order == 2:
        return jnp.square(gap)
    return jnp.abs(gap) if order == 1 else jnp.abs(gap) ** order


def staircase_cost(
    x: Float[Array, "*batch n"], y: Float[Array, "*batch m"], stairs: Staircase, order: float
) -> Float[Array, "*batch"]:
    """Return W_p^p of two sorted samples from the cells of their coupling."""
    x_cells = power_cost(x - pick(y, stairs.x_to_y), order)
    y_cells = power_cost(pick(x, stairs.y_to_x) - y, order)
    x_mass, y_mass = jnp.asarray(stairs.x_mass, x.dtype), jnp.asarray(stairs.y_mass, x.dtype)
    return jnp.sum(x_mass * x_cells, axis=-1) + jnp.sum(y_mass * y_cells, axis=-1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def weight_term(
    order: float,
    weights: Float[Array, "*batch n"],
    points: Float[Array, "*batch n"],
    partners: Float[Array, "*batch n"],
) -> Float[Array, "*batch"]:
    """Return zero, whose derivative in the sorted `weights` is the centred Kantorovich potential.

    `partners` are the points of the other measure at which each atom ends.
    """
    return _batched_zero(weights, points)


def _batched_zero(weights: Float[Array, "*batch n"], points: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """Zero that depends on the inputs: a constant has no batch axis under vmap, which the rule needs."""
    return 0 * (weights[..., 0] + points[..., 0])


@partial(weight_term.defjvp, symbolic_zeros=True)
def _weight_term_jvp(order, primals, tangents):
    weights, points, partners = primals
    zero = _batched_zero(weights, points)
    if isinstance(tangents[0], SymbolicZero):
        return zero, zero
    # The potential rises along the cells: neighbours share the partner at which the first of them ends.
    bend = partners[..., :-1]
    rise = power_cost(points[..., 1:] - bend, order) - power_cost(points[..., :-1] - bend, order)
    potential = jnp.concatenate([jnp.zeros_like(points[..., :1]), jnp.cumsum(rise, axis=-1)], axis=-1)
    centred = potential - jnp.mean(potential, axis=-1, keepdims=True)
    return zero, jnp.sum(centred * tangents[0], axis=-1)
