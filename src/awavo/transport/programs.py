"""The two ways a sliced average is computed: compiled programs, and NumPy for known arrays on a CPU.

Calls outside jit run one compiled program for each shape and set of options.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.errors import InputError
from awavo.transport.average import Clouds, slice_average
from awavo.transport.checks import x64_enabled
from awavo.transport.defining import Defining, Linear, Polynomial, host_monomials
from awavo.transport.intervals import block_variance, half_width, surrogate_costs, surrogate_mean
from awavo.transport.population import debiased_costs, point_variance
from awavo.transport.slices import draw_slices, is_circle

__all__ = ["Drawing", "Measures", "as_key", "drawn_on_host", "estimate", "on_host", "on_slices", "slicer"]

LARGEST_SEED = 2**32 - 1  # of larger ones jax takes the lower bits without a word

# Points and weights of both, checked.
Measures: TypeAlias = tuple[Any, Any, Any, Any]


class Drawing(NamedTuple):
    """How slices are drawn."""

    num_slices: int
    dim: int
    sampling: str
    split: bool


def as_key(key: Any) -> Key[Array, ""]:
    """Return a random key, also from a seed; two seeds never give the same one."""
    if _is_seed(key):
        return jax.random.key(key)
    if isinstance(key, jax.Array) and key.shape == (() if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else (2,)):
        return key
    told = f"keys of shape {key.shape}" if isinstance(key, jax.Array) else repr(key)[:80]
    raise InputError(f"seed or key is {told}, expected a whole number from 0 to {LARGEST_SEED} or one jax.random.key.")


def _is_seed(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= int(key) <= LARGEST_SEED


def slicer(defining: Defining) -> Defining:
    """What acts on features: a plain linear slice wherever alpha is linear, so that compiled programs are shared."""
    return Linear() if defining.linear else defining


def _clouds(x: Array, y: Array, x_weights: Array | None, y_weights: Array | None, defining: Defining) -> Clouds:
    return Clouds(defining.features(x), defining.features(y), x_weights, y_weights)


def _over_batch(call: Callable, measures: Measures) -> Any:
    """Map over leading axes of the points; weights without them are shared."""
    x, y, x_weights, y_weights = measures
    if x.ndim == 2:
        return call(measures)
    axes = tuple(None if w is None or w.ndim == 1 else 0 for w in (x_weights, y_weights))
    return jax.vmap(lambda *parts: _over_batch(call, parts), (0, 0, *axes))(x, y, x_weights, y_weights)


@partial(jax.jit, static_argnames=("defining", "order", "chunk"))
def on_slices(
    measures: Measures, slices: Array, weights: Array | None, *, defining: Defining, order: float, chunk: int | None
) -> Float[Array, "*batch"]:
    """The average on given slices."""

    def one(measures: Measures) -> Array:
        clouds = _clouds(*measures, defining)
        return slice_average(clouds, slices, weights, defining=slicer(defining), order=order, chunk=chunk)[0]

    return _over_batch(one, measures)


@partial(jax.jit, static_argnums=1)
def _draw(key: Key[Array, ""], drawing: Drawing) -> Array:
    num_slices, dim, sampling, split = drawing
    return draw_slices(jax.random.split(key)[0], num_slices, dim, sampling=sampling, split=split)[0]


@partial(
    jax.jit,
    static_argnames=(
        "drawing", "block", "defining", "order", "control_variate", "confidence", "chunk", "population",
    ),
)  # fmt: skip
def estimate(
    key: Key[Array, ""], measures: Measures, slices: Array | None = None, *, drawing: Drawing, block: int,
    defining: Defining, order: float, control_variate: bool, confidence: float | None, chunk: int | None,
    population: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The mean over slices, drawn unless given, and the ends of its interval."""
    scale = defining.coefficient_scale(measures[0].shape[-1])
    draw_key, cheap_key = jax.random.split(key)
    rows = slices
    if rows is None:
        num_slices, dim, sampling, split = drawing
        rows, _ = draw_slices(draw_key, num_slices, dim, sampling=sampling, split=split)
        rows = rows.astype(measures[0].dtype)
        rows = rows if scale is None else rows * scale.astype(rows.dtype)

    def one(measures: Measures) -> tuple[Array, Array, Array]:
        clouds = _clouds(*measures, defining)
        parts: list[tuple[Array, float]] = []
        # Expensive slices are averaged; the surrogate, known from many cheap ones, takes out most of their scatter.
        if population:
            costs = debiased_costs(jax.random.fold_in(cheap_key, 1), clouds, rows, slicer(defining), order)
            value = jnp.mean(costs)
            parts.append(point_variance(clouds, rows, slicer(defining), order, block))
        else:
            value, costs = slice_average(clouds, rows, None, defining=slicer(defining), order=order, chunk=chunk)
        if control_variate:
            mean, spread, freedom = surrogate_mean(cheap_key, clouds, drawing.dim, drawing.sampling, scale)
            parts.append((spread, freedom))
            cheap = surrogate_costs(clouds, rows)
            value, costs = value + mean - jnp.mean(cheap), costs - lax.stop_gradient(cheap)
        if slices is None:
            parts.append(block_variance(costs, block, circle=is_circle(drawing.sampling, drawing.dim)))
        half = lax.stop_gradient(half_width(parts, confidence))
        # A debiased value may be below zero; what it estimates is not.
        return value, jnp.maximum(value - half, 0), jnp.maximum(value + half, 0)

    return _over_batch(one, measures)


@lru_cache(maxsize=32)
def _drawn_from_seed(seed: int, drawing: Drawing) -> np.ndarray:
    return np.asarray(_draw(jax.random.key(seed), drawing))


def drawn_on_host(key: Any, drawing: Drawing, defining: Defining, like: np.ndarray) -> np.ndarray:
    """The slices that `estimate` draws, as numpy's; those of a seed are remembered."""
    small = drawing.num_slices * drawing.dim <= 1 << 18
    known = small and _is_seed(key)
    rows = _drawn_from_seed(int(key), drawing) if known else np.asarray(_draw(as_key(key), drawing))
    if like.dtype == np.float64:  # unit length to the digits of the type
        rows = rows.astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scale = defining.coefficient_scale(like.shape[-1])
    return rows if scale is None else (rows * scale).astype(like.dtype)


_features = jax.jit(lambda points, defining: defining.features(points), static_argnames="defining")
_project = jax.jit(lambda points, rows, defining: defining.project(points, rows), static_argnames="defining")


def on_host(
    call: Callable, measures: Measures, slices: np.ndarray, defining: Defining, order: float, chunk: int | None
) -> Any:
    """`host_slice_costs` or `host_average`; only defining functions other than the linear one ask jax, for images."""
    x, y, x_weights, y_weights = measures
    if type(defining) is Linear:
        return call(x, y, slices, x_weights, y_weights, order, None, chunk)
    if type(defining) is Polynomial and defining.linear:
        x, y = (host_monomials(points, defining.degree) for points in (x, y))
        return call(x, y, slices, x_weights, y_weights, order, None, chunk)
    with jax.enable_x64(x.dtype == np.float64 or x64_enabled()):
        x, y = [
            np.asarray(_features(points.reshape(-1, points.shape[-1]), defining)).reshape(*points.shape[:-1], -1)
            for points in (x, y)
        ]

        def project(points: np.ndarray, rows: np.ndarray) -> np.ndarray:
            flat = np.asarray(_project(points.reshape(-1, points.shape[-1]), rows, defining))
            image = flat.reshape(len(rows), *points.shape[:-1])
            return np.ascontiguousarray(np.moveaxis(image, 0, -2)).copy()

        return call(x, y, slices, x_weights, y_weights, order, None if defining.linear else project, chunk)
