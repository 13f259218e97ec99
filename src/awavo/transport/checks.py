"""Checks of what callers hand in. Values are checked outside jit only (inside they are unknown); shapes always."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from awavo.errors import InputError

__all__ = [
    "check_arrays", "check_measures", "check_order", "check_points", "check_positive", "check_slices", "check_weights",
    "common_float", "host_float", "is_known", "one_of", "x64_enabled",
]  # fmt: skip

_SUM_TOLERANCE = 1e-3  # how far a sum of float32 weights, or the length of a slice, may be from one

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def is_known(x: object) -> bool:
    """Whether the values can be looked at now, that is, `x` is not being traced."""
    return not isinstance(x, Tracer)


def _all(test: Callable[..., Any], x: Any) -> bool:
    """Whether every known value passes, also while something else is being traced."""
    if isinstance(x, np.ndarray):
        return bool(np.all(test(x)))
    with jax.ensure_compile_time_eval():
        return bool(jnp.all(test(x)))


def _finite(x: Any) -> bool:
    if isinstance(x, np.ndarray) and math.isfinite(np.vdot(x, x)):  # one fast pass; squares may also overflow
        return True
    return _all(jnp.isfinite if not isinstance(x, np.ndarray) else np.isfinite, x)


def one_of(default: Any, **spellings: object) -> Any:
    """Return the one spelling of an argument that was given; two at once are refused."""
    given = None
    for name, value in spellings.items():
        if value is None:
            continue
        if given is not None:
            raise InputError(f"{given} and {name} were both given, expected one: they are names of the same thing.")
        given, default = name, value
    return default


def check_order(order: object) -> float:
    """Return the exponent as a number; it must be a plain one, at least 1."""
    order = order.item() if isinstance(order, np.integer | np.floating) else order
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


def common_float(*given: object) -> tuple[Array, ...]:
    """Return the arrays in one floating type of at least 32 bits; what jax cannot hold is narrowed with a warning."""
    arrays = tuple(a if isinstance(a, jax.Array) else _real("Points", a) for a in given)
    kind = jnp.result_type(*(np.float32 if a.dtype.kind in "iub" else a.dtype for a in arrays), np.float32)
    if not jnp.issubdtype(kind, jnp.floating):
        raise InputError(
            f"Points are of type {kind}, expected real numbers: convert them, complex ones to two coordinates."
        )
    if not x64_enabled() and _wide(given, arrays):
        warnings.warn(
            "Points in float64, or whole numbers above 2^24, are computed in float32 here: set jax_enable_x64, or pass "
            ".astype('float32').",
            UserWarning, stacklevel=4,
        )  # fmt: skip
    return tuple(_as_array(a, kind) for a in arrays)


def x64_enabled() -> bool:
    """Whether jax holds 64 bits here."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def host_float(*arrays: object) -> tuple[np.ndarray, ...]:
    """Return the arrays as numpy's, in float64 if one of them is so, else in float32."""
    found = [_real("Points", a) for a in arrays]
    return tuple(np.asarray(a, np.float64 if _wide(arrays, found) else np.float32) for a in found)


def _wide(given: Sequence[object], arrays: Sequence[Any]) -> bool:
    """Whether some points are of float64, or whole numbers that float32 has not got.

    Fractions without a type of their own, as in lists, are single precision as everywhere in jax.
    """
    return any(getattr(a, "dtype", None) == np.float64 for a in given) or any(
        isinstance(a, np.ndarray) and a.dtype.kind in "iu" and a.size and max(int(a.max()), -int(a.min())) > 1 << 24
        for a in arrays
    )


def _real(name: str, values: object) -> np.ndarray:
    try:
        found = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} are rows of different lengths, expected a table of numbers: repair them.") from None
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} are a masked array with masked values, expected all: keep the rows without a mask.")
    if found.dtype.kind not in "fiub" and found.dtype != jnp.bfloat16:
        raise InputError(
            f"{name} are of type {found.dtype}, expected real numbers: convert them, complex ones to two coordinates."
        )
    return found


def _as_array(x: object, kind: np.dtype) -> Array:
    """Convert; known values stay known, whatever else is being traced."""
    if not is_known(x):
        return jnp.asarray(x, kind)
    with jax.ensure_compile_time_eval():
        return jnp.asarray(x, kind)


def check_points(name: str, x: Array | np.ndarray, *, min_ndim: int, batch: tuple[int, ...] | None = None) -> None:
    """Refuse empty, non-finite or wrongly shaped points."""
    if x.ndim < min_ndim:
        raise InputError(f"{name} has shape {x.shape}, expected at least {min_ndim} axes: reshape it.")
    if 0 in x.shape:
        raise InputError(f"{name} has shape {x.shape}, expected at least one point: an empty measure has no distance.")
    if batch is not None and x.shape[:-1] != batch:
        raise InputError(f"{name} has batch axes {x.shape[:-1]}, expected {batch}: broadcast both to the same batch.")
    if is_known(x) and not _finite(x):
        raise InputError(f"{name} holds NaN or infinite values, expected finite points: drop or repair these samples.")


def check_weights(name: str, weights: object | None, shape: tuple[int, ...], *, host: bool = False) -> Any:
    """Return the weights as an array, refusing what is no probability vector over the last axis of `shape`."""
    if weights is None:
        return None
    found = weights if isinstance(weights, jax.Array) else _real(name, weights)
    found = np.asarray(found) if host else jnp.asarray(found)
    if found.shape not in (shape, shape[-1:]):
        raise InputError(f"{name} has shape {found.shape}, expected {shape[-1:]}: one weight for each point.")
    if is_known(found):
        if not _all(lambda w: abs(w) < np.inf, found) or not _all(lambda w: w >= 0, found):
            raise InputError(f"{name} holds negative or non-finite values, expected weights >= 0: clip or repair them.")
        totals = np.asarray(found, np.float64).sum(axis=-1).ravel()
        worst = totals[np.argmax(np.abs(totals - 1))]
        if abs(worst - 1) > _SUM_TOLERANCE:
            raise InputError(f"{name} sums to {worst:.6g}, expected 1: divide the weights by their sum.")
    return found


def _usual(x: Any, y: Any, batch: bool) -> bool:
    """Whether both are clouds of one shape and type that no check below would touch: the fast way for most calls.

    One pass finds out: a product with NaN is NaN, one with infinity is infinite or NaN, and so is their sum.
    """
    return (
        type(x) is type(y) is np.ndarray
        and x.dtype == y.dtype
        and x.dtype in _FLOATS
        and x.shape == y.shape
        and (x.ndim == 2 or (batch and x.ndim > 2))
        and x.size > 0
        and math.isfinite(np.vdot(x, y))
    )


def check_measures(
    x: object, y: object, x_weights: object | None, y_weights: object | None, *, host: bool = False, batch: bool = False
) -> tuple[Any, Any, Any, Any]:
    """Return two point clouds `[n, d]`, `[m, d]` and their weights, checked, in one floating type.

    With `host` they are numpy's arrays, else jax's; with `batch` there may be leading axes, the same for both clouds.
    """
    if host and x_weights is None and y_weights is None and _usual(x, y, batch):
        return x, y, None, None
    x, y = host_float(x, y) if host else common_float(x, y)
    for name, cloud in (("x", x), ("y", y)):
        if cloud.ndim < 2 or (cloud.ndim > 2 and not batch):
            raise InputError(f"{name} has shape {cloud.shape}, expected (points, dimension): vmap over further axes.")
        check_points(name, cloud, min_ndim=2)
    if x.shape[:-2] != y.shape[:-2]:
        raise InputError(f"x has batch axes {x.shape[:-2]} and y {y.shape[:-2]}, expected the same: broadcast them.")
    if x.shape[-1] != y.shape[-1]:
        raise InputError(
            f"x has dimension {x.shape[-1]} and y {y.shape[-1]}, expected the same: both live in one space."
        )
    first = check_weights("x_weights (a)", x_weights, x.shape[:-1], host=host)
    second = check_weights("y_weights (b)", y_weights, y.shape[:-1], host=host)
    first = None if first is None else first.astype(x.dtype)
    second = None if second is None else second.astype(x.dtype)
    return x, y, first, second


def check_arrays(
    x: object, y: object, x_weights: object | None, y_weights: object | None
) -> tuple[Array, Array, Array | None, Array | None]:
    """`check_measures` for jax's arrays and one problem."""
    return check_measures(x, y, x_weights, y_weights)


def check_slices(slices: object, dim: int, like: Any, *, unit: bool = False) -> Any:
    """Return slices `[L, dim]` in the type of `like`, refusing wrong shapes and non-finite values.

    With `unit` known ones must be of length one: else their distance would be scaled without a word.
    """
    found = (
        _real("Slices", slices).astype(like.dtype, copy=False) if isinstance(like, np.ndarray) else jnp.asarray(slices)
    )
    if found.ndim != 2 or found.shape[0] == 0 or found.shape[1] != dim:
        raise InputError(f"slices have shape {found.shape}, expected (slices, {dim}): one row of {dim} for each slice.")
    if unit and isinstance(found, np.ndarray):
        excess = _excess(found)
        if np.vdot(excess, excess) <= _SUM_TOLERANCE**2:  # then every row is finite and of length one
            return found
    if is_known(found) and not _finite(found):
        raise InputError("slices hold NaN or infinite values, expected finite rows: check what produced them.")
    found = found.astype(like.dtype)
    if unit and is_known(found):
        excess = _excess(np.asarray(found))
        worst = excess[np.argmax(np.abs(excess))]
        if abs(worst) > 2 * _SUM_TOLERANCE:
            raise InputError(f"A slice has length {(worst + 1) ** 0.5:.4g}, expected 1: pass unit_slices(slices).")
    return found


def _excess(rows: np.ndarray) -> np.ndarray:
    """Squares of the lengths of rows, less one."""
    return np.vecdot(rows, rows) - 1
