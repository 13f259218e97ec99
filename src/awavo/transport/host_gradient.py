r"""Values of sliced distances with their gradients by NumPy, for calls outside jit on a CPU.

With the cells (i, j, mass) of every slice, :math:`\partial W_p^p / \partial x_i = p \sum_j m_{ij} |x_i - y_j|^{p-1}
\mathrm{sgn}(x_i - y_j)`; the derivative in a weight is the centred Kantorovich potential, solved along the cells.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from awavo.transport.host import as_columns, chunks_of_slices, host_costs, power_costs
from awavo.transport.host_cells import sort_with_order, take_flat, ticks, uniform_cells, weighted_cells

__all__ = ["HostGradient", "host_gradient"]


class HostGradient(NamedTuple):
    """Terms of the average, and its gradient in what was asked for."""

    costs: Float[np.ndarray, "*batch l"]
    x: Float[np.ndarray, "*batch n d"] | None
    y: Float[np.ndarray, "*batch m d"] | None
    x_weights: Float[np.ndarray, " n"] | None
    y_weights: Float[np.ndarray, " m"] | None


def _slope(gap: np.ndarray, order: float) -> np.ndarray:
    """Derivative of `|gap|^order`."""
    if order == 2:
        return 2 * gap
    return np.sign(gap) if order == 1 else order * np.sign(gap) * np.abs(gap) ** (order - 1)


def _flat(order: Int[np.ndarray, "*batch n"]) -> Int[np.ndarray, "*batch n"]:
    """Permutations of rows as flat indices."""
    rows = order.reshape(-1, order.shape[-1])
    return (rows + np.arange(len(rows))[:, None] * rows.shape[1]).reshape(order.shape)


def _sort(x: np.ndarray, ordered: bool) -> np.ndarray | None:
    """Sort rows in place; return their permutations as flat indices where those are wanted."""
    if ordered:
        return _flat(sort_with_order(x))
    x.sort(axis=-1)
    return None


def _put(values: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Undo a permutation of rows."""
    out = np.empty_like(values)
    out.ravel()[flat.ravel()] = values.ravel()
    return out


def _sum_by_atom(values: np.ndarray, starts: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add up the cells of every atom, which lie side by side; `starts` are the first of each, as flat indices."""
    return np.add.reduceat(values.ravel(), starts.ravel()).reshape(shape)


def _starts(ends: Int[np.ndarray, "l n"], num_cells: int) -> Int[np.ndarray, "l n"]:
    """First cells of atoms, from their last ones, as flat indices of rows of cells."""
    starts = np.empty_like(ends)
    starts[:, 0] = np.arange(len(ends)) * num_cells
    np.add(ends[:, :-1], 1, out=starts[:, 1:])
    return starts


class _UniformRows(NamedTuple):
    """The cells of uniform weights for many rows, as flat indices, with the first cell of every atom."""

    x_index: np.ndarray
    y_index: np.ndarray
    mass: np.ndarray
    x_starts: np.ndarray
    y_starts: np.ndarray


@lru_cache(maxsize=8)
def _uniform_rows(num_rows: int, num_x: int, num_y: int) -> _UniformRows:
    cells = uniform_cells(num_x, num_y)
    row = np.arange(num_rows)[:, None]
    starts = [np.flatnonzero(np.diff(index, prepend=-1)) + row * len(index) for index in (cells.x_index, cells.y_index)]
    return _UniformRows(cells.x_index + row * num_x, cells.y_index + row * num_y, cells.mass, *starts)


def _potential(
    own: np.ndarray, other: np.ndarray, partner: Int[np.ndarray, "l n"], order: float
) -> Float[np.ndarray, "l n"]:
    """Centred potential of sorted atoms; `partner` is where in `other` each of them ends, as flat indices."""
    bend = take_flat(other, partner[:, :-1])
    rise = power_costs(own[:, 1:] - bend, order) - power_costs(own[:, :-1] - bend, order)
    potential = np.zeros(own.shape)
    np.cumsum(rise, axis=1, out=potential[:, 1:])
    potential -= potential.mean(axis=1, keepdims=True)
    return potential.astype(own.dtype)


def _points_part(
    x: np.ndarray, y: np.ndarray, order: float, wanted: frozenset[str]
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Costs and gradients in the projected points, uniform weights."""
    shape_x, shape_y = x.shape, y.shape
    x_flat, y_flat = _sort(x, "x" in wanted), _sort(y, "y" in wanted)
    if shape_x == shape_y:
        x -= y
        slope = _slope(x, order)
        slope /= shape_x[-1]
        costs = power_costs(x, order).mean(axis=-1)
        x_grad = None if x_flat is None else _put(slope, x_flat)
        return costs, x_grad, None if y_flat is None else -_put(slope, y_flat)
    rows_x, rows_y = x.reshape(-1, shape_x[-1]), y.reshape(-1, shape_y[-1])
    cells = _uniform_rows(len(rows_x), shape_x[-1], shape_y[-1])
    gap = take_flat(rows_x, cells.x_index)
    gap -= take_flat(rows_y, cells.y_index)
    mass = cells.mass.astype(x.dtype)
    slope = _slope(gap, order)
    slope *= mass
    costs = (power_costs(gap, order) @ mass).reshape(shape_x[:-1])
    x_grad = None if x_flat is None else _put(_sum_by_atom(slope, cells.x_starts, rows_x.shape), x_flat)
    y_grad = None if y_flat is None else -_put(_sum_by_atom(slope, cells.y_starts, rows_y.shape), y_flat)
    return (
        costs,
        None if x_grad is None else x_grad.reshape(shape_x),
        None if y_grad is None else y_grad.reshape(shape_y),
    )


def _weighted_part(
    x: np.ndarray, y: np.ndarray, x_ticks: np.ndarray, y_ticks: np.ndarray, order: float, wanted: frozenset[str]
) -> tuple[np.ndarray, ...]:
    """Costs and gradients in the projected points and in the weights of every slice."""
    x_order, y_order = sort_with_order(x), sort_with_order(y)
    cells = weighted_cells(x_ticks, x_order, y_ticks, y_order, x.dtype)
    gap = take_flat(x, cells.x_index)
    gap -= take_flat(y, cells.y_index)
    slope = _slope(gap, order)
    slope *= cells.mass
    costs = power_costs(gap, order)
    costs *= cells.mass
    assert cells.ends_x is not None
    none, num_cells = np.zeros(0), cells.mass.shape[1]
    x_ends, x_flat = np.flatnonzero(cells.ends_x).reshape(x.shape), _flat(x_order)

    def y_ends() -> np.ndarray:
        assert cells.ends_x is not None
        return np.flatnonzero(~cells.ends_x).reshape(y.shape)

    found = {
        "x": lambda: _put(_sum_by_atom(slope, _starts(x_ends, num_cells), x.shape), x_flat),
        "y": lambda: -_put(_sum_by_atom(slope, _starts(y_ends(), num_cells), y.shape), _flat(y_order)),
        "x_weights": lambda: _put(_potential(x, y, take_flat(cells.y_index, x_ends), order), x_flat),
        "y_weights": lambda: _put(_potential(y, x, take_flat(cells.x_index, y_ends()), order), _flat(y_order)),
    }
    return costs.sum(axis=1), *(found[name]() if name in wanted else none for name in found)


def host_gradient(
    x: Float[np.ndarray, "*batch n d"],
    y: Float[np.ndarray, "*batch m d"],
    slices: Float[np.ndarray, "l d"],
    x_weights: Float[np.ndarray, " n"] | None,
    y_weights: Float[np.ndarray, " m"] | None,
    order: float,
    wanted: frozenset[str],
    chunk: int | None = None,
) -> HostGradient:
    """Return W_p^p for every slice and the gradient of their average; weights are for a batch of one only."""
    num_x, num_y, num = x.shape[-2], y.shape[-2], len(slices)
    weighted = x_weights is not None or y_weights is not None or bool(wanted & {"x_weights", "y_weights"})
    x_ticks = ticks(np.ones(num_x) if x_weights is None else x_weights)
    y_ticks = ticks(np.ones(num_y) if y_weights is None else y_weights)
    x_rows, y_rows = as_columns(x), as_columns(y)
    costs: list[np.ndarray] = []
    total = {"x": np.zeros_like(x), "y": np.zeros_like(y)}
    total |= {"x_weights": np.zeros(num_x, x.dtype), "y_weights": np.zeros(num_y, x.dtype)}
    batch = math.prod(x.shape[:-2])
    cells = weighted or num_x != num_y
    for part in chunks_of_slices(num, batch * max(num_x, num_y), chunk, cells=cells):
        rows = slices[part]
        x_part, y_part = rows @ x_rows, rows @ y_rows
        if not wanted:
            costs.append(host_costs(x_part, y_part, x_weights, y_weights, order))
            continue
        if weighted:
            cost, x_grad, y_grad, x_potential, y_potential = _weighted_part(
                x_part, y_part, x_ticks, y_ticks, order, wanted
            )
        else:
            cost, x_grad, y_grad = _points_part(x_part, y_part, order, wanted)
            x_potential = y_potential = None
        costs.append(cost)
        for name, value in (("x", x_grad), ("y", y_grad)):
            if name in wanted and value is not None:
                total[name] += (value.swapaxes(-1, -2) @ rows) / num
        for name, value in (("x_weights", x_potential), ("y_weights", y_potential)):
            if name in wanted and value is not None:
                total[name] += value.sum(axis=0) / num
    return HostGradient(np.concatenate(costs, axis=-1), *(total[k] if k in wanted else None for k in total))
