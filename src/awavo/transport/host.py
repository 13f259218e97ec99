r"""The same distances by NumPy, for calls outside jit on a CPU: its vectorised sort is several times that of XLA.

Values agree with the compiled ones to the precision of their type; `float64` stays `float64` whatever jax is set to.
Work goes through the slices in chunks that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Float

from awavo.transport.host_cells import sort_with_order, take_flat, ticks, uniform_cells, weighted_cells

__all__ = [
    "as_columns", "chunks_of_slices", "fits_host", "host_average", "host_costs", "host_mean", "host_slice_costs",
    "power_costs",
]  # fmt: skip

_LONG_SUM = 1 << 16  # terms up to which one pass may sum; longer sums need the care of `mean`
# Numbers held for each cloud at once: of one problem, fewer where cells are formed; of a group of problems.
_CHUNK, _CELL_CHUNK, _GROUP = 1 << 18, 1 << 15, 1 << 17


def fits_host(*values: object) -> bool:
    """Whether all values are known now and lie in this machine's memory, and jax computes on the CPU."""
    if not _computes_on_cpu():
        return False
    for value in values:
        if value is None or type(value) is np.ndarray:  # the usual cases
            continue
        if isinstance(value, Tracer):
            return False
        if isinstance(value, jax.Array) and any(device.platform != "cpu" for device in value.devices()):
            return False
    return True


@cache
def _computes_on_cpu() -> bool:
    # The default backend stays what it is once jax runs; asking for it each time is a tenth of a short call.
    return jax.default_backend() == "cpu"


def chunks_of_slices(num_slices: int, num_points: int, chunk: int | None = None, *, cells: bool) -> Iterator[slice]:
    """Parts of the slices, each of about a cache full of numbers."""
    step = max(1, (_CELL_CHUNK if cells else _CHUNK) // num_points) if chunk is None else chunk
    step = -(-num_slices // -(-num_slices // step))  # as many parts, of equal size
    return (slice(start, start + step) for start in range(0, num_slices, step))


def power_costs(gap: np.ndarray, order: float) -> np.ndarray:
    """Return `|gap|^order`, in the memory of `gap`."""
    if order == 2:
        return np.multiply(gap, gap, out=gap)
    np.abs(gap, out=gap)
    return gap if order == 1 else np.power(gap, order, out=gap)


def _weighted(x: np.ndarray, y: np.ndarray, x_ticks: np.ndarray, y_ticks: np.ndarray, order: float) -> np.ndarray:
    x_order, y_order = sort_with_order(x), sort_with_order(y)
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
    if num_x == num_y:
        gap = _sorted_gap(x, y)
        if order == 2 and num_x <= _LONG_SUM:
            return np.vecdot(gap, gap) / gap.dtype.type(num_x)
        return power_costs(gap, order).mean(axis=-1)
    x.sort(axis=-1)
    y.sort(axis=-1)
    cells = uniform_cells(num_x, num_y)
    gap = x.take(cells.x_index, axis=-1)
    gap -= y.take(cells.y_index, axis=-1)
    return power_costs(gap, order) @ cells.mass.astype(x.dtype)


def _groups(x: np.ndarray, y: np.ndarray, num_slices: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Problems of a batch in groups whose projections stay in the cache; few of them, and single ones, as they are."""
    step = max(1, _GROUP // (num_slices * max(x.shape[-2], y.shape[-2])))
    if math.prod(x.shape[:-2]) <= step:
        return [(x, y)]
    x, y = (cloud.reshape(-1, *cloud.shape[-2:]) for cloud in (x, y))
    return [(x[start : start + step], y[start : start + step]) for start in range(0, len(x), step)]


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
    batch = x.shape[:-2]
    if x_weights is None and y_weights is None:
        groups = [(x, y)] if project else _groups(x, y, len(slices))
        found = [_slice_costs(*group, slices, None, None, order, project, chunk) for group in groups]
    elif not batch:
        return _slice_costs(x, y, slices, x_weights, y_weights, order, project, chunk)
    else:  # one problem after the other
        first, second = (
            None if w is None else np.broadcast_to(w, (*batch, w.shape[-1])) for w in (x_weights, y_weights)
        )
        found = []
        for i in np.ndindex(batch):
            a, b = None if first is None else first[i], None if second is None else second[i]
            found.append(_slice_costs(x[i], y[i], slices, a, b, order, project, chunk))
    return found[0] if len(found) == 1 else np.concatenate(found).reshape(*batch, -1)


def _slice_costs(
    x: np.ndarray, y: np.ndarray, slices: np.ndarray, x_weights: np.ndarray | None, y_weights: np.ndarray | None,
    order: float, project: Callable[[np.ndarray, np.ndarray], np.ndarray] | None, chunk: int | None,
) -> np.ndarray:  # fmt: skip
    project = _inner if project is None else project
    num_points = math.prod(x.shape[:-2]) * max(x.shape[-2], y.shape[-2])
    cells = x_weights is not None or y_weights is not None or x.shape[-2] != y.shape[-2]
    parts = [
        host_costs(project(x, slices[part]), project(y, slices[part]), x_weights, y_weights, order)
        for part in chunks_of_slices(len(slices), num_points, chunk, cells=cells)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def host_mean(costs: Float[np.ndarray, "*batch l"]) -> Float[np.ndarray, "*batch"] | np.floating:
    """Return the mean over slices, in the type of the costs."""
    return costs.dtype.type(np.add.reduce(costs, -1, np.float64) / costs.shape[-1])


def host_average(
    x: Float[np.ndarray, "*batch n k"],
    y: Float[np.ndarray, "*batch m k"],
    slices: Float[np.ndarray, "l c"],
    x_weights: Float[np.ndarray, "*#batch n"] | None,
    y_weights: Float[np.ndarray, "*#batch m"] | None,
    order: float,
    project: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    chunk: int | None = None,
) -> Float[np.ndarray, "*batch"] | np.floating:
    """Return the mean of `host_slice_costs`; plain ones are summed over points and slices at once."""
    weighted = x_weights is not None or y_weights is not None
    if weighted or x.shape != y.shape or order != 2 or project or chunk or x.shape[-2] > _LONG_SUM:
        return host_mean(host_slice_costs(x, y, slices, x_weights, y_weights, order, project, chunk))
    groups = _groups(x, y, len(slices))
    if len(groups) == 1:
        return _mean_square(x, y, slices)
    return np.concatenate([_mean_square(*group, slices) for group in groups]).reshape(x.shape[:-2])


def _mean_square(x: np.ndarray, y: np.ndarray, slices: np.ndarray) -> np.ndarray | np.floating:
    total = 0.0
    for part in chunks_of_slices(len(slices), math.prod(x.shape[:-1]), cells=False):
        rows = slices[part]
        gap = _sorted_gap(_inner(x, rows), _inner(y, rows)).reshape(*x.shape[:-2], -1)
        total = total + np.vecdot(gap, gap).astype(np.float64)
    return (total / (len(slices) * x.shape[-2])).astype(x.dtype)


def _sorted_gap(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Differences of the sorted rows, in the memory of both."""
    x.sort(axis=-1)
    y.sort(axis=-1)
    x -= y
    return x


def _inner(points: Float[np.ndarray, "*batch n k"], rows: Float[np.ndarray, "l k"]) -> Float[np.ndarray, "*batch l n"]:
    # A product for each problem of a batch: one for all would leave the rows to be sorted far apart in memory.
    return rows @ as_columns(points)


def as_columns(points: Float[np.ndarray, "*batch n k"]) -> Float[np.ndarray, "*batch k n"]:
    """Return the transposed points, for products with slices; for a batch a copy, as small products are faster so."""
    columns = points.swapaxes(-1, -2)
    return columns if points.ndim == 2 else np.ascontiguousarray(columns)
