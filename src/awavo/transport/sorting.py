"""Sorting along the last axis, with the permutation and its derivative, at the speed each platform allows.

Floats are compared as integers: `key(x) = bits(x)` for x >= 0 and `bits(x) ^ 0x7f...f` otherwise is increasing in x,
and integer keys take the fast path of every compiler. On a CPU the permutation rides in the low bits of the key, so one
integer sort gives both; elsewhere it is the payload of a key-value sort.

XLA's own sort on a CPU is a scalar one. A bitonic network of minima and maxima over whole rows is vectorised by the
compiler; it wins while a block of columns stays in the cache, and costs about a second of compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

__all__ = ["MAX_LENGTH", "network_pays", "sort_pairs", "sort_rows_by_network", "sort_values", "take_by_order"]

# Measured: beyond this length, or below this many rows, XLA's sort beats the network; a block is to stay in the cache.
MAX_LENGTH = 1024
_MIN_ROWS = 48
_BLOCK_BYTES = 1 << 19


def _float_to_key(x: Float[Array, "*batch n"]) -> Int[Array, "*batch n"]:
    kind = jnp.int32 if x.dtype.itemsize == 4 else jnp.int64
    bits = lax.bitcast_convert_type(x, kind)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)


def _key_to_float(key: Int[Array, "*batch n"], dtype: jnp.dtype) -> Float[Array, "*batch n"]:
    return lax.bitcast_convert_type(jnp.where(key < 0, key ^ jnp.iinfo(key.dtype).max, key), dtype)


def _sort_rows_on_cpu(keys: Int[Array, "rows n"]) -> Int[Array, "rows n"]:
    if network_pays(*keys.shape):
        return sort_rows_by_network(keys)
    return lax.sort(keys, is_stable=True)  # XLA's merge sort beats its quicksort on random keys


def _pairs_on_cpu(x: Float[Array, "rows n"]) -> tuple[Float[Array, "rows n"], Int[Array, "rows n"]]:
    """Sort `key << 32 | index`; a 64-bit float gives its lowest bits to the index and is fetched again."""
    with jax.enable_x64(True):
        index = lax.broadcasted_iota(jnp.int64, x.shape, 1)
        key = _float_to_key(x)
        if x.dtype.itemsize == 4:
            packed = _sort_rows_on_cpu((key.astype(jnp.int64) << 32) | index)
            order = packed.astype(jnp.int32)
            return _key_to_float((packed >> 32).astype(jnp.int32), x.dtype), order
        mask = (1 << (x.shape[1] - 1).bit_length()) - 1  # as many bits as an index needs
        order = (_sort_rows_on_cpu((key & ~mask) | index) & mask).astype(jnp.int32)
        return jnp.take_along_axis(x, order, axis=1, mode="promise_in_bounds"), order


def _pairs_elsewhere(x: Float[Array, "rows n"]) -> tuple[Float[Array, "rows n"], Int[Array, "rows n"]]:
    index = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    key, order = lax.sort((_float_to_key(x), index), num_keys=1, is_stable=False)
    return _key_to_float(key, x.dtype), order


def _values_on_cpu(x: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    return _key_to_float(_sort_rows_on_cpu(_float_to_key(x)), x.dtype)


def _values_elsewhere(x: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    return _key_to_float(lax.sort(_float_to_key(x), is_stable=False), x.dtype)


def _fold_batches(on_cpu: Callable, elsewhere: Callable) -> Callable:
    """Run on `[rows, n]` whatever the batch axes are, so that a vmapped problem is one wide sort."""

    @custom_vmap
    def run(x):
        rows = x.reshape(-1, x.shape[-1])
        result = lax.platform_dependent(rows, cpu=on_cpu, default=elsewhere)
        return jax.tree.map(lambda leaf: leaf.reshape(x.shape), result)

    @run.def_vmap
    def rule(axis_size, in_batched, x):
        result = run(x)
        return result, jax.tree.map(lambda _: True, result)

    return run


_values = _fold_batches(_values_on_cpu, _values_elsewhere)
_pairs = _fold_batches(_pairs_on_cpu, _pairs_elsewhere)


def take_by_order(x: Float[Array, "*batch n"], order: Int[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Return `x[order]` along the last axis, for permutations: the transpose is a scatter without collisions."""
    rows = x.reshape(-1, x.shape[-1])
    flat = order.reshape(rows.shape)
    if x.size >= np.iinfo(np.int32).max:
        return jnp.take_along_axis(rows, flat, axis=1, mode="promise_in_bounds").reshape(x.shape)
    # One flat gather: its indices are unique, so the transpose needs no atomic adds.
    flat = flat + rows.shape[1] * lax.broadcasted_iota(jnp.int32, rows.shape, 0)
    return rows.reshape(-1).at[flat].get(mode="promise_in_bounds", unique_indices=True).reshape(x.shape)


@jax.custom_jvp
def sort_pairs(x: Float[Array, "*batch n"]) -> tuple[Float[Array, "*batch n"], Int[Array, "*batch n"]]:
    """Return `(sorted, order)` with `sorted = x[order]` along the last axis.

    The derivative is the one of the gather, `d sorted = (d x)[order]`, in both modes and to any order.
    """
    return _pairs(x)


@sort_pairs.defjvp
def _sort_pairs_jvp(primals, tangents) -> Any:
    values, order = sort_pairs(primals[0])
    return (values, order), (take_by_order(tangents[0], order), np.zeros(order.shape, jax.dtypes.float0))


@jax.custom_jvp
def sort_values(x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Sort along the last axis; the permutation is found only when a derivative asks for it."""
    return _values(x)


@sort_values.defjvp
def _sort_values_jvp(primals, tangents):
    (values, _), (moved, _) = jax.jvp(sort_pairs, primals, tangents)
    return values, moved


def network_pays(num_rows: int, length: int) -> bool:
    """Whether the network is faster than XLA's sort for `num_rows` sequences of `length` keys (measured)."""
    return num_rows >= _MIN_ROWS and 1 < length <= MAX_LENGTH


def _merge_halves(keys: Int[Array, "n w"], size: int) -> Int[Array, "n w"]:
    """Compare element i with element size - 1 - i of every run of `size`: two sorted halves become bitonic."""
    num, width = keys.shape
    halves = keys.reshape(num // size, 2, size // 2, width)
    low, high = halves[:, 0], halves[:, 1, ::-1]
    pair = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)[:, ::-1]], axis=1)
    return pair.reshape(num, width)


def _exchange(keys: Int[Array, "n w"], distance: int) -> Int[Array, "n w"]:
    """Order every pair of elements that lie `distance` apart."""
    num, width = keys.shape
    halves = keys.reshape(num // (2 * distance), 2, distance, width)
    low, high = halves[:, 0], halves[:, 1]
    return jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], axis=1).reshape(num, width)


def _sort_columns(keys: Int[Array, "n w"]) -> Int[Array, "n w"]:
    """Sort each column; the number of rows is a power of two."""
    size = 2
    while size <= keys.shape[0]:
        keys = _merge_halves(keys, size)
        distance = size // 4
        while distance:
            keys = _exchange(keys, distance)
            distance //= 2
        size *= 2
    return keys


def sort_rows_by_network(keys: Int[Array, "rows n"]) -> Int[Array, "rows n"]:
    """Sort integer keys along the last axis, block by block of rows that fit into the cache."""
    num_rows, length = keys.shape
    padded = 1 << (length - 1).bit_length()
    width = max(_MIN_ROWS, _BLOCK_BYTES // (padded * keys.dtype.itemsize))
    num_blocks = -(-num_rows // width)
    width = -(-num_rows // num_blocks)
    fill = ((0, num_blocks * width - num_rows), (0, padded - length))
    blocks = jnp.pad(keys, fill, constant_values=jnp.iinfo(keys.dtype).max)
    blocks = blocks.reshape(num_blocks, width, padded).swapaxes(1, 2)
    blocks = _sort_columns(blocks[0])[None] if num_blocks == 1 else lax.map(_sort_columns, blocks)
    return blocks.swapaxes(1, 2).reshape(num_blocks * width, padded)[:num_rows, :length]
