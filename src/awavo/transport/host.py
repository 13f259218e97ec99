r"""The same distances by NumPy, for calls outside jit on a CPU: its vectorised sort is several times that of XLA.

Values agree with the compiled ones to the precision of their type; `float64` stays `float64` whatever jax is set to.
Work goes through the slices in chunks that stay in the cache.

A coupling of sorted samples is a list of cells (i, j, mass). With the cumulated weights of both as integers, tagged by
their measure in the lowest bit, one sort merges them; counting tags gives i and j of every cell. At a tie x ends first,
as in `staircase`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int

__all__ = [
    "Cells", "chunks_of_slices", "fits_host", "host_costs", "host_slice_costs", "power_costs", "take_flat", "ticks",
    "uniform_cells", "weighted_cells",
]  # fmt: skip

_LEVEL_BITS = 52  # levels are multiples of 2^-52, as in `staircase`
_CHUNK, _CELL_CHUNK = 1 << 19, 1 << 14  # numbers held for each cloud at once; fewer where cells are formed


class Cells(NamedTuple):
    """Cells of couplings of sorted samples: which atoms they join, and how much mass."""

    x_index: Int[np.ndarray, "*l k"]
    y_index: Int[np.ndarray, "*l k"]
    mass: Float[np.ndarray, "*l k"]
    ends_x: np.ndarray | None = None  # cells at which an atom of x ends, in order; the others end one of y


def fits_host(*values: object) -> bool:
    """Whether all values are known now and lie in this machine's memory, and jax computes on the CPU."""
    if jax.default_backend() != "cpu":
        return False
    for value in values:
        if isinstance(value, Tracer):
            return False
        if isinstance(value, jax.Array) and any(device.platform != "cpu" for device in value.devices()):
            return False
    return True


def chunks_of_slices(num_slices: int, num_points: int, chunk: int | None = None, *, cells: bool) -> Iterator[slice]:
    """Parts of the slices, each of about a cache full of numbers."""
    step = max(1, (_CELL_CHUNK if cells else _CHUNK) // num_points) if chunk is None else chunk
    return (slice(start, start + step) for start in range(0, num_slices, step))


def power_costs(gap: np.ndarray, order: float) -> np.ndarray:
    """Return `|gap|^order`, in the memory of `gap`."""
    if order == 2:
        return np.multiply(gap, gap, out=gap)
    np.abs(gap, out=gap)
    return gap if order == 1 else np.power(gap, order, out=gap)


@lru_cache(maxsize=16)
def uniform_cells(num_x: int, num_y: int) -> Cells:
    """Cells for uniform weights 1/n and 1/m, in exact integers of unit 1/(n m)."""
    levels = np.union1d(np.arange(1, num_x + 1) * num_y, np.arange(1, num_y + 1) * num_x)
    starts = np.concatenate([[0], levels[:-1]])
    return Cells(starts // num_y, starts // num_x, (levels - starts) / (num_x * num_y))


def ticks(weights: np.ndarray) -> Int[np.ndarray, " n"]:
    """Weights as integers of unit 2^-52: their sums are exact in any order."""
    weights = np.asarray(weights, np.float64)
    return np.round(weights / weights.sum() * 2.0**_LEVEL_BITS).astype(np.int64)


def _fill_levels(
    merged: Int[np.ndarray, "l n"], shares: Int[np.ndarray, " n"], order: Int[np.ndarray, "l n"], tag: int
) -> None:
    """Write cumulated weights, tagged, in the bits that `merged` has."""
    levels = np.cumsum(shares.take(order, mode="clip"), axis=1)
    # Rounded shares may miss one by a few ticks: the last level is one exactly.
    np.minimum(levels, 1 << _LEVEL_BITS, out=levels)
    levels[:, -1] = 1 << _LEVEL_BITS
    np.right_shift(levels, _LEVEL_BITS - _level_bits(merged.dtype), out=merged, casting="unsafe")
    merged <<= 1
    merged |= tag


def _level_bits(kind: np.dtype) -> int:
    """Bits of a level beside its tag: single precision does not see what lies below 2^-29."""
    return 29 if kind.itemsize == 4 else _LEVEL_BITS


def weighted_cells(
    x_ticks: Int[np.ndarray, " n"],
    x_order: Int[np.ndarray, "l n"],
    y_ticks: Int[np.ndarray, " m"],
    y_order: Int[np.ndarray, "l m"],
    kind: np.dtype,
) -> Cells:
    """Cells for any weights; indices are flat, row after row.

    Cells without mass are kept, so that all slices have n + m of them; such a cell may name the atom behind the last.
    """
    (rows, num_x), num_y = x_order.shape, y_order.shape[1]
    merged = np.empty((rows, num_x + num_y), np.int32 if kind.itemsize == 4 else np.int64)
    _fill_levels(merged[:, :num_x], x_ticks, x_order, 0)
    _fill_levels(merged[:, num_x:], y_ticks, y_order, 1)
    merged.sort(axis=1)
    of_y = merged & 1
    merged >>= 1
    y_index = np.cumsum(of_y, axis=1, dtype=np.int64)
    y_index -= of_y
    row = np.arange(rows)[:, None]
    x_index = np.arange(num_x + num_y) + row * num_x - y_index
    y_index += row * num_y
    mass = np.empty(merged.shape, kind)
    mass[:, 0] = merged[:, 0]
    np.subtract(merged[:, 1:], merged[:, :-1], out=mass[:, 1:], casting="unsafe")
    mass *= 2.0 ** -_level_bits(merged.dtype)
    return Cells(x_index, y_index, mass, of_y == 0)


def take_flat(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the values at flat indices; one behind the last gives the last."""
    return values.ravel().take(index, mode="clip")


def _weighted(x: np.ndarray, y: np.ndarray, x_ticks: np.ndarray, y_ticks: np.ndarray, order: float) -> np.ndarray:
    x_order, y_order = x.argsort(axis=1), y.argsort(axis=1)
    x.sort(axis=1)  # again, but faster than a gather
    y.sort(axis=1)
    cells = weighted_cells(x_ticks, x_order, y_ticks, y_order, x.dtype)
    gap = take_flat(x, cells.x_index)
    gap -= take_flat(y, cells.y_index)
    costs = power_costs(gap, order)
    costs *= cells.mass
    return costs.sum(axis=1)


def host_costs(
    x: Float[np.ndarray, "*batch l n"],
    y: Float[np.ndarray, "*batch l m"],
    x_weights: Float[np.ndarray, " n"] | None,
    y_weights: Float[np.ndarray, " m"] | None,
    order: float,
) -> Float[np.ndarray, "*batch l"]:
    """Return W_p^p of every row of projected points, in whose memory it works. Weights are for a batch of one only."""
    num_x, num_y = x.shape[-1], y.shape[-1]
    if x_weights is not None or y_weights is not None:
        x_ticks = ticks(np.ones(num_x) if x_weights is None else x_weights)
        y_ticks = ticks(np.ones(num_y) if y_weights is None else y_weights)
        return _weighted(x, y, x_ticks, y_ticks, order).astype(x.dtype)
    x.sort(axis=-1)
    y.sort(axis=-1)
    if num_x == num_y:
        x -= y
        if order == 2 and num_x <= 1 << 16:  # one pass; longer sums need the care of `mean`
            return np.vecdot(x, x) / x.dtype.type(num_x)
        return power_costs(x, order).mean(axis=-1)
    cells = uniform_cells(num_x, num_y)
    gap = x.take(cells.x_index, axis=-1)
    gap -= y.take(cells.y_index, axis=-1)
    return power_costs(gap, order) @ cells.mass.astype(x.dtype)


def host_slice_costs(
    x: Float[np.ndarray, "*batch n k"],
    y: Float[np.ndarray, "*batch m k"],
    slices: Float[np.ndarray, "l c"],
    x_weights: Float[np.ndarray, "*#batch n"] | None,
    y_weights: Float[np.ndarray, "*#batch m"] | None,
    order: float,
    project: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    chunk: int | None = None,
) -> Float[np.ndarray, "*batch l"]:
    """Return W_p^p for every slice; `project(points, rows)` gives new arrays, of inner products when None."""
    project = _inner if project is None else project
    weighted = x_weights is not None or y_weights is not None
    if weighted and x.ndim > 2:  # one problem after the other
        batch = x.shape[:-2]
        first, second = (
            None if w is None else np.broadcast_to(w, (*batch, w.shape[-1])) for w in (x_weights, y_weights)
        )
        found = []
        for i in np.ndindex(batch):
            a, b = None if first is None else first[i], None if second is None else second[i]
            found.append(host_slice_costs(x[i], y[i], slices, a, b, order, project, chunk))
        return np.stack(found).reshape(*batch, -1)
    num_points = math.prod(x.shape[:-2]) * max(x.shape[-2], y.shape[-2])
    cells = weighted or x.shape[-2] != y.shape[-2]
    parts = [
        host_costs(project(x, slices[part]), project(y, slices[part]), x_weights, y_weights, order)
        for part in chunks_of_slices(len(slices), num_points, chunk, cells=cells)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _inner(points: Float[np.ndarray, "*batch n k"], rows: Float[np.ndarray, "l k"]) -> Float[np.ndarray, "*batch l n"]:
    # A product for each problem of a batch: one for all would leave the rows to be sorted far apart in memory.
    return rows @ points.swapaxes(-1, -2)
