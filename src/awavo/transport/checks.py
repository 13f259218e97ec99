"""Checks of what callers hand in. Values are checked outside jit only (inside they are unknown); shapes always."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from awavo.errors import InputError

__all__ = [
    "check_measures", "check_order", "check_points", "check_positive", "check_slices", "check_weights", "common_float",
    "is_known",
]  # fmt: skip

_SUM_TOLERANCE = 1e-3  # how far a sum of float32 weights may be from one


def is_known(x: object) -> bool:
    """Whether the values can be looked at now, that is, `x` is not being traced."""
    return not isinstance(x, Tracer)


def _all(test: Callable[[Array], Array], x: Array) -> bool:
    """Whether every known value passes, also while something else is being traced."""
    with jax.ensure_compile_time_eval():
        return bool(jnp.all(test(x)))


def check_order(order: object) -> float:
    """Return the exponent as a number; it must be a plain one, at least 1."""
    if isinstance(order, bool) or not isinstance(order, int | float):
        raise InputError(
            f"order is {type(order).__name__}, expected a plain number >= 1: pass it statically, outside jit."
        )
    if not (order >= 1 and math.isfinite(order)):
        raise InputError(f"order is {order}, expected a finite number >= 1: below 1 the power is no distance.")
    return order


def check_positive(name: str, value: object) -> int:
    """Return a count, which must be a plain integer of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {value!r}, expected a whole number >= 1: pass it statically, outside jit.")
    return int(value)


def common_float(*arrays: object) -> tuple[Array, ...]:
    """Return the arrays in one floating type of at least 32 bits."""
    kind = jnp.result_type(*(jnp.asarray(a).dtype for a in arrays), np.float32)
    if not jnp.issubdtype(kind, jnp.floating):
        raise InputError(
            f"Points are of type {kind}, expected real numbers: pass real and imaginary parts as coordinates."
        )
    return tuple(_as_array(a, kind) for a in arrays)


def _as_array(x: object, kind: np.dtype) -> Array:
    """Convert; known values stay known, whatever else is being traced."""
    if not is_known(x):
        return jnp.asarray(x, kind)
    with jax.ensure_compile_time_eval():
        return jnp.asarray(x, kind)


def check_points(name: str, x: Array, *, min_ndim: int, batch: tuple[int, ...] | None = None) -> None:
    """Refuse empty, non-finite or wrongly shaped points."""
    if x.ndim < min_ndim:
        raise InputError(f"{name} has shape {x.shape}, expected at least {min_ndim} axes: reshape it.")
    if 0 in x.shape:
        raise InputError(f"{name} has shape {x.shape}, expected at least one point: an empty measure has no distance.")
    if batch is not None and x.shape[:-1] != batch:
        raise InputError(f"{name} has batch axes {x.shape[:-1]}, expected {batch}: broadcast both to the same batch.")
    if is_known(x) and not _all(jnp.isfinite, x):
        raise InputError(f"{name} holds NaN or infinite values, expected finite points: drop or repair these samples.")


def check_weights(name: str, weights: object | None, shape: tuple[int, ...]) -> Array | None:
    """Return the weights as an array, refusing what is no probability vector over the last axis of `shape`."""
    if weights is None:
        return None
    weights = jnp.asarray(weights)
    if weights.shape not in (shape, shape[-1:]):
        raise InputError(f"{name} has shape {weights.shape}, expected {shape[-1:]}: one weight for each point.")
    if is_known(weights):
        if not _all(lambda w: jnp.isfinite(w) & (w >= 0), weights):
            raise InputError(f"{name} holds negative or non-finite values, expected weights >= 0: clip or repair them.")
        totals = np.asarray(weights, np.float64).sum(axis=-1).ravel()
        worst = totals[np.argmax(np.abs(totals - 1))]
        if abs(worst - 1) > _SUM_TOLERANCE:
            raise InputError(f"{name} sums to {worst:.6g}, expected 1: divide the weights by their sum.")
    return weights


def check_measures(
    x: object, y: object, x_weights: object | None, y_weights: object | None
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return two point clouds `[n, d]`, `[m, d]` and their weights, checked, in one floating type."""
    x, y = common_float(x, y)
    for name, cloud in (("x", x), ("y", y)):
        if cloud.ndim != 2:
            raise InputError(f"{name} has shape {cloud.shape}, expected (points, dimension): vmap over further axes.")
        check_points(name, cloud, min_ndim=2)
    if x.shape[1] != y.shape[1]:
        raise InputError(f"x has dimension {x.shape[1]} and y {y.shape[1]}, expected the same: both live in one space.")
    first = check_weights("x_weights", x_weights, x.shape[:1])
    second = check_weights("y_weights", y_weights, y.shape[:1])
    first = None if first is None else first.astype(x.dtype)
    second = None if second is None else second.astype(x.dtype)
    return x, y, first, second


def check_slices(slices: object, dim: int, like: Array) -> Array:
    """Return slices `[L, dim]` in the type of `like`, refusing wrong shapes and non-finite values."""
    slices = jnp.asarray(slices)
    if slices.ndim != 2 or slices.shape[0] == 0 or slices.shape[1] != dim:
        raise InputError(
            f"slices have shape {slices.shape}, expected (slices, {dim}): one row of {dim} for each slice."
        )
    if is_known(slices) and not _all(jnp.isfinite, slices):
        raise InputError("slices hold NaN or infinite values, expected finite rows: check what produced them.")
    return slices.astype(like.dtype)
