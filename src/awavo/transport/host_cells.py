r"""Couplings of sorted samples by NumPy, and the sort that gives them.

A coupling is a list of cells (i, j, mass). With the cumulated weights of both as integers, tagged by their measure in
the lowest bit, one sort merges them; counting tags gives i and j of every cell. At a tie x ends first, as in
`staircase`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Cells", "sort_with_order", "take_flat", "ticks", "uniform_cells", "weighted_cells"]

_LEVEL_BITS = 52  # levels are multiples of 2^-52, as in `staircase`
_INDEX_BITS = 29  # of a double beyond those of a float


class Cells(NamedTuple):
    """Cells of couplings of sorted samples: which atoms they join, and how much mass."""

    x_index: Int[np.ndarray, "*l k"]
    y_index: Int[np.ndarray, "*l k"]
    mass: Float[np.ndarray, "*l k"]
    ends_x: np.ndarray | None = None  # cells at which an atom of x ends, in order; the others end one of y


def sort_with_order(x: Float[np.ndarray, "*batch n"]) -> Int[np.ndarray, "*batch n"]:
    """Sort the last axis in place and return the permutation."""
    num = x.shape[-1]
    if x.dtype != np.float32 or num >= 1 << (_INDEX_BITS - 1):
        order = x.argsort(axis=-1)
        x.sort(axis=-1)  # again, but faster than a gather
        return order
    # With the index in the bits that a double has beyond those of a float, one sort of numbers gives both.
    packed = x.astype(np.float64)
    bits = packed.view(np.int64)
    bits |= np.arange(num)
    packed.sort(axis=-1)
    np.copyto(x, packed, casting="same_kind")  # rounds the index away
    bits &= (1 << _INDEX_BITS) - 1
    return bits


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
    """Write cumulated weights, tagged."""
    levels = np.cumsum(shares.take(order, mode="clip"), axis=1)
    # Rounded shares may miss one by a few ticks: the last level is one exactly.
    np.minimum(levels, 1 << _LEVEL_BITS, out=levels)
    levels[:, -1] = 1 << _LEVEL_BITS
    np.left_shift(levels, 1, out=merged)
    merged |= tag


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
    merged = np.empty((rows, num_x + num_y), np.int64)
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
    mass *= 2.0**-_LEVEL_BITS
    return Cells(x_index, y_index, mass, of_y == 0)


def take_flat(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the values at flat indices; one behind the last gives the last."""
    return values.ravel().take(index, mode="clip")
