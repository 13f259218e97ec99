"""A bitonic sorting network in plain array operations, for processors whose compiler sorts slowly.

XLA's own sort on a CPU is a scalar one. A network of minima and maxima over whole rows is vectorised by the
compiler; it wins while a block of columns stays in the cache, and costs about a second of compilation.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

__all__ = ["MAX_LENGTH", "network_pays", "sort_rows_by_network"]

# Measured: beyond this length, or below this many rows, XLA's sort is faster; a block is to stay in the cache.
MAX_LENGTH = 1024
_MIN_ROWS = 48
_BLOCK_BYTES = 1 << 19


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
