"""What the variants of the sliced distance share: their arguments, checked, and slices drawn or given."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.transport.checks import check_measures, check_order, check_positive, check_slices, is_known, one_of
from awavo.transport.intervals import block_variance, check_confidence, half_width
from awavo.transport.line import root as take_root
from awavo.transport.programs import as_key
from awavo.transport.slices import block_length, default_sampling, draw_slices, is_circle
from awavo.types import Estimate

__all__ = ["Options", "Problem", "finish", "prepare"]


SLANT = 1e-3  # largest product of two rows of an orthonormal frame that is given


class Options(NamedTuple):
    """Arguments common to all variants, under our names and those of POT; as in `sliced_wasserstein`."""

    a: Any = None
    b: Any = None
    n_projections: Any = None
    key: Any = None
    num_slices: Any = None
    order: Any = None
    x_weights: Any = None
    y_weights: Any = None
    slices: Any = None
    confidence: Any = 0.95
    root: bool = False
    p: Any = None
    seed: Any = None


class Problem(NamedTuple):
    """Checked measures and slices."""

    x: Float[Array, "n d"]
    y: Float[Array, "m d"]
    x_weights: Float[Array, " n"] | None
    y_weights: Float[Array, " m"] | None
    slices: Float[Array, "l d"]
    block: int | None  # length of an independent block of slices; None where they were given
    order: float
    confidence: float | None
    root: bool


def prepare(x: object, y: object, options: Options, *, frames: int = 1) -> Problem:
    """Check everything and draw slices: `frames` orthonormal rows belong to one slice."""
    order = check_order(one_of(2, order=options.order, p=options.p))
    x_weights = one_of(None, x_weights=options.x_weights, a=options.a)
    y_weights = one_of(None, y_weights=options.y_weights, b=options.b)
    measures = check_measures(x, y, x_weights, y_weights)
    num = check_positive("num_slices", one_of(100, num_slices=options.num_slices, n_projections=options.n_projections))
    key, confidence = one_of(None, key=options.key, seed=options.seed), check_confidence(options.confidence)
    dim, given = measures[0].shape[1], options.slices
    if key is None and given is None:
        raise InputError("Neither key nor slices were given, expected one: pass key=jax.random.key(0), or seed=0.")
    if key is not None and given is not None:
        raise InputError("slices were given with a key, expected slices alone: drop the key (or seed).")
    block: int | None = None
    if given is not None:
        rows = check_slices(given, dim, measures[0], unit=True)
        if rows.shape[0] % frames:
            raise InputError(f"There are {rows.shape[0]} rows, expected {frames} orthonormal ones for each slice.")
        if frames > 1 and is_known(rows) and _slant(np.asarray(rows), frames) > SLANT:
            raise InputError(f"Rows of a slice are not orthogonal, expected {frames} orthonormal ones: take a QR.")
    elif frames > 1:
        block = 1
        rows = _frames(as_key(key), num, dim, frames).astype(measures[0].dtype)
    else:
        sampling = default_sampling(dim)
        block = block_length(sampling, num, dim, split=True)
        rows = draw_slices(as_key(key), num, dim, split=True)[0].astype(measures[0].dtype)
    return Problem(*measures, rows, block, order, confidence, options.root)


def _slant(rows: np.ndarray, size: int) -> float:
    """The largest product of two rows of one frame."""
    frames = rows.reshape(-1, size, rows.shape[1])
    return float(np.abs(frames @ frames.swapaxes(1, 2) * (1 - np.eye(size))).max())


def _frames(key: Array, num: int, dim: int, size: int) -> Float[Array, "rows d"]:
    """Independent orthonormal frames of `size` rows each."""
    if size > dim:
        raise InputError(f"Points have dimension {dim}, expected at least {size} for great circles: add a coordinate.")
    basis = jnp.linalg.qr(jax.random.normal(key, (num, dim, size)))[0]
    return basis.swapaxes(1, 2).reshape(num * size, dim)


def finish(
    problem: Problem, value: Array, influence: Float[Array, " l"] | None, name: str, count: int | None = None
) -> Estimate:
    """Return the estimate: `influence` are terms whose mean has the scatter of the value, None where it is exact."""
    count = problem.slices.shape[0] if count is None else count
    method = f"power {problem.order:g}, {name}"
    if influence is None or problem.block is None:
        found = Estimate(value, value, value, count, f"{method}, exact on its slices")
    else:
        circle = is_circle(None, problem.slices.shape[1])
        variance, freedom = block_variance(jax.lax.stop_gradient(influence), problem.block, circle=circle)
        half = half_width([(variance, freedom)], problem.confidence)
        if problem.confidence is not None:
            blocks, level = -(-influence.shape[0] // problem.block), f"{problem.confidence:.0%} t interval over"
            method += f", {level} {blocks} blocks of slices" if blocks > 1 else ", no interval from one block of slices"
        found = Estimate(value, jnp.maximum(value - half, 0), value + half, count, method)
    return take_root(found, problem.order) if problem.root else found
