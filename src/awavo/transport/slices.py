r"""Samplings of slices: how directions are drawn so that few of them are enough.

A slice is a row of a matrix `[L, c]`. Whole orthonormal blocks integrate every quadratic form exactly
(:math:`\sum_i \theta_i^\top A \theta_i = \mathrm{tr} A`), spirals are nearly equidistributed; both are randomly
rotated, so the average over slices has no bias and independent blocks give its error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.errors import InputError, did_you_mean
from awavo.transport.checks import check_positive
from awavo.transport.defining import monomial_weights
from awavo.transport.line import root

__all__ = [
    "SliceBank", "draw_slices", "iid_slices", "is_circle", "kostlan_slices", "mix_slices", "orthogonal_slices",
    "spiral_slices", "unit_slices",
]  # fmt: skip

_SAMPLINGS = ("iid", "orthogonal", "spiral")
_SPIRAL_BLOCKS = 4  # rotated lattices, whose spread gives the interval
_MIN_WHOLE_BLOCKS, _SMALL_BLOCKS = 4, 20  # orthonormal blocks, likewise
_MAX_GRAM_SCHMIDT = 20  # dimension up to which many matrices are made orthonormal side by side


class SliceBank(NamedTuple):
    """Slices `[L, c]` and the weight of each in the average; the weights sum to one."""

    slices: Float[Array, "l c"]
    weights: Float[Array, " l"]


def unit_slices(raw: Float[Array, "*batch c"]) -> Float[Array, "*batch c"]:
    """Return the rows scaled to length one; a zero row stays zero, with a finite derivative."""
    length: Array = root(jnp.sum(raw**2, axis=-1, keepdims=True), 2)
    return raw / jnp.where(length > 0, length, 1)


def iid_slices(key: Key[Array, ""], num_slices: int, dim: int) -> Float[Array, "l c"]:
    """Return independent directions, uniform on the sphere."""
    return unit_slices(jax.random.normal(key, (num_slices, dim)))


def _orthonormal_rows(matrices: Float[Array, "b c c"]) -> Float[Array, "b c c"]:
    """Gram-Schmidt on the rows of many small matrices at once, twice for the digits, vectorised over matrices."""
    dim = matrices.shape[1]

    def orthogonalise(i: Array, rows: Array) -> Array:
        row = lax.dynamic_index_in_dim(rows, i, 0, keepdims=False)
        before = (jnp.arange(dim) < i)[:, None]
        for _ in range(2):
            overlap = jnp.where(before, jnp.sum(rows * row, axis=1), 0)
            row = row - jnp.sum(overlap[:, None] * rows, axis=0)
        return lax.dynamic_update_index_in_dim(rows, row / jnp.sqrt(jnp.sum(row**2, axis=0)), i, 0)

    return jnp.moveaxis(lax.fori_loop(0, dim, orthogonalise, jnp.moveaxis(matrices, 0, -1)), -1, 0)


def _rotations(key: Key[Array, ""], num: int, dim: int, rows: int | None = None) -> Float[Array, "b r c"]:
    """Uniform (Haar) orthogonal matrices, or at least their first `rows`: Gaussian ones made orthonormal."""
    if rows is not None and 2 * rows <= dim and dim > _MAX_GRAM_SCHMIDT:  # a few rows need no whole matrix
        basis, upper = jnp.linalg.qr(jax.random.normal(key, (num, dim, rows)))
        return (basis * _signs(upper)[:, None, :]).swapaxes(1, 2)
    gaussian = jax.random.normal(key, (num, dim, dim))
    if dim <= _MAX_GRAM_SCHMIDT:
        return _orthonormal_rows(gaussian)
    basis, upper = jnp.linalg.qr(gaussian)
    return basis * _signs(upper)[:, None, :]


def _signs(upper: Float[Array, "b r r"]) -> Float[Array, "b r"]:
    """Signs of the diagonals, which QR leaves open: only with positive ones is its basis uniform."""
    return jnp.where(jnp.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)


def orthogonal_slices(key: Key[Array, ""], num_slices: int, dim: int, block: int | None = None) -> Float[Array, "l c"]:
    """Return independent blocks of `block` orthonormal directions each (all `dim` of a basis by default)."""
    block = dim if block is None else min(block, dim)
    num_blocks = -(-num_slices // block)
    if block == 1:
        return iid_slices(key, num_slices, dim)
    rows = _rotations(key, num_blocks, dim, block)[:, :block]
    return rows.reshape(num_blocks * block, dim)[:num_slices]


def spiral_slices(key: Key[Array, ""], num_slices: int, dim: int = 3, block: int | None = None) -> Float[Array, "l c"]:
    """Return independently rotated lattices of `block` points: a spiral on the sphere (d = 3), even angles (d = 2).

    What is left for the last one is a whole lattice too, of fewer points.
    """
    if dim not in (2, 3):
        raise InputError(f"The spiral is for dimension 2 and 3, not {dim}: take sampling='orthogonal'.")
    block = num_slices if block is None else block
    num_blocks = -(-num_slices // block)
    rotations = _rotations(key, num_blocks, dim)
    whole = num_slices // block
    turned = jnp.einsum("kc,bcd->bkd", _lattice(block, dim), rotations[:whole]).reshape(whole * block, dim)
    if whole == num_blocks:
        return turned
    return jnp.concatenate([turned, _lattice(num_slices - whole * block, dim) @ rotations[-1]])


def _lattice(num: int, dim: int) -> Float[Array, "k c"]:
    """Even angles on half the circle, or a spiral on the sphere."""
    step = (jnp.arange(num) + 0.5) / num
    if dim == 2:
        angle = jnp.pi * step
        return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    # Equal steps of height hold equal area; the golden angle spreads the points around the axis.
    height, angle = 1 - 2 * step, math.pi * (1 + math.sqrt(5)) * (jnp.arange(num) + 0.5)
    ring = jnp.sqrt(1 - height**2)
    return jnp.stack([ring * jnp.cos(angle), ring * jnp.sin(angle), height], axis=1)


def kostlan_slices(key: Key[Array, ""], num_slices: int, dim: int, degree: int = 3) -> Float[Array, "l c"]:
    r"""Return coefficients of random homogeneous polynomials, :math:`\theta_k = \sqrt{m!/k!}\, \zeta_k` with unit zeta.

    The distribution of the polynomial is rotation invariant. It is what `draw_slices` gives to `Polynomial(degree)`.
    """
    weights = jnp.asarray(monomial_weights(dim, degree))
    return orthogonal_slices(key, num_slices, weights.shape[0], block=min(num_slices, weights.shape[0])) * weights


def default_sampling(dim: int) -> str:
    """Name the most accurate sampling: spirals where they exist, else orthogonal blocks."""
    return "spiral" if dim in (2, 3) else "orthogonal"


def is_circle(sampling: str | None, dim: int) -> bool:
    """Whether slices are even angles."""
    return dim == 2 and (default_sampling(dim) if sampling is None else sampling) == "spiral"


def check_sampling(sampling: str) -> str:
    """Refuse a name that no sampling has."""
    if sampling not in _SAMPLINGS:
        raise InputError(f"There is no slice sampling '{sampling}'.{did_you_mean(sampling, _SAMPLINGS)}")
    return sampling


def block_length(sampling: str, num_slices: int, dim: int, *, split: bool) -> int:
    """Number of slices that are drawn together; with `split` there are enough such blocks for an interval.

    Blocks of about d orthonormal slices take most of the error out of the average, and four of them are the least from
    which it can be told. With fewer slices the interval would rest on two or three blocks: then blocks are small, and
    at least twenty.
    """
    if sampling == "iid":
        return 1
    if sampling == "spiral":
        return max(1, -(-num_slices // _SPIRAL_BLOCKS)) if split else num_slices
    if not split:
        return min(dim, num_slices)
    if num_slices > (_MIN_WHOLE_BLOCKS - 1) * dim:
        return -(-num_slices // -(-num_slices // dim))  # blocks of nearly the same length
    return max(1, num_slices // _SMALL_BLOCKS)


def draw_slices(
    key: Key[Array, ""], num_slices: int, dim: int, *, sampling: str | None = None, split: bool = False
) -> tuple[Float[Array, "l c"], int]:
    """Return slices of a sampling (`iid`, `orthogonal`, `spiral`, or the best for `dim`) and their block length."""
    num_slices = check_positive("num_slices", num_slices)
    sampling = check_sampling(default_sampling(dim) if sampling is None else sampling)
    block = block_length(sampling, num_slices, dim, split=split)
    if sampling == "iid":
        return iid_slices(key, num_slices, dim), block
    draw = orthogonal_slices if sampling == "orthogonal" else spiral_slices
    return draw(key, num_slices, dim, block), block


def mix_slices(
    slices: Float[Array, "l c"], full_support: Float[Array, "k c"], epsilon: float | Float[Array, ""]
) -> SliceBank:
    r"""Return the mixture :math:`(1 - \epsilon)` given slices :math:`+\ \epsilon` slices of full support.

    Then :math:`D \ge \epsilon^{1/p}\, \mathrm{GSW}_p`: in the limit of many full-support slices the pseudo-metric of
    the given slices becomes a metric.
    """
    num, extra = slices.shape[0], full_support.shape[0]
    weights = jnp.concatenate([jnp.full((num,), (1 - epsilon) / num), jnp.full((extra,), epsilon / extra)])
    return SliceBank(jnp.concatenate([slices, full_support]), weights.astype(slices.dtype))
