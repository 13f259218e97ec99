r"""Linear-Gaussian smoothing of many small chains at once, in covariance form: exact, and at ease in float32.

Each chain b has states :math:`\delta_0..\delta_K \in R^n` and minimises

.. math::
    \tfrac12 \lVert \delta_0 - m_0 \rVert^2_{P_0^{-1}}
    + \tfrac12 \sum_k \lVert \delta_{k+1} - M_k \delta_k - d_k \rVert^2 / q_k^2
    + \tfrac12 \sum_k \lVert \delta_k \rVert^2_{W_k} - \sum_k g_k^\top \delta_k ,

where :math:`g_k` is :math:`W_k e_k` for observations :math:`e_k`, and whatever else pushes.

Forward, the filter keeps :math:`P_k` after the update with :math:`W_k` (no covariance is ever inverted, so q may be as
small as one likes); backward, the adjoint :math:`\lambda` (Bryson and Frazier 1963) gives

.. math::  \delta_k = m_k + P_k \lambda_k, \qquad
    \lambda_{k-1} = M_{k-1}^\top (\lambda_k + g_k - W_k \delta_k).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["filter_chains", "smooth_chains", "smoothed_variance", "update_covariance"]

BLOCK = 4  # observations absorbed together: their matrix is inverted in closed form


def _small_product(a: Float[Array, "B i j"], b: Float[Array, "B j k"]) -> Float[Array, "B i k"]:
    """A matrix product written out: a library call costs more than these few terms."""
    terms = [a[:, :, j, None] * b[:, j, None, :] for j in range(a.shape[2])]
    return sum(terms[1:], terms[0])


def _small_inverse(s: Float[Array, "B b b"]) -> Float[Array, "B b b"]:
    """Invert positive definite matrices of size 1, 2 or 4 by halves."""
    half = s.shape[-1] // 2
    if half == 0:
        return 1.0 / s
    if half == 1:
        a, b, c = s[:, :1, :1], s[:, :1, 1:], s[:, 1:, 1:]
        rows = [jnp.concatenate([c, -b], 2), jnp.concatenate([-b, a], 2)]
        return jnp.concatenate(rows, 1) / (a * c - b * b)
    a, b, c = s[:, :half, :half], s[:, :half, half:], s[:, half:, half:]
    inner = _small_inverse(a)
    mixed = _small_product(inner, b)
    outer = _small_inverse(c - _small_product(b.swapaxes(1, 2), mixed))
    cross = -_small_product(mixed, outer)
    inner = inner - _small_product(cross, mixed.swapaxes(1, 2))
    rows = [jnp.concatenate([inner, cross], 2), jnp.concatenate([cross.swapaxes(1, 2), outer], 2)]
    return jnp.concatenate(rows, 1)


def update_covariance(p: Float[Array, "B n n"], weight: Float[Array, "B n"]) -> Float[Array, "B n n"]:
    """Return (P^-1 + diag(w))^-1, a block of observations at a time."""
    n, size = p.shape[-1], BLOCK
    short = -n % size  # padded observations have weight 0 and change nothing
    root = jnp.pad(jnp.sqrt(weight), ((0, 0), (0, short)))
    p = jnp.pad(p, ((0, 0), (0, short), (0, short)))
    eye = jnp.eye(size, dtype=p.dtype)

    def absorb(i, p):
        columns = lax.dynamic_slice_in_dim(p, i * size, size, 2)
        scale = lax.dynamic_slice_in_dim(root, i * size, size, 1)
        centre = lax.dynamic_slice_in_dim(columns, i * size, size, 1)
        # Woodbury: P - P R (I + R P R)^-1 R P with R the roots of the weights.
        inverse = _small_inverse(eye + scale[:, :, None] * centre * scale[:, None, :])
        columns = lax.optimization_barrier(columns * scale[:, None, :])
        left = lax.optimization_barrier(_small_product(columns, inverse))
        return p - _small_product(left, columns.swapaxes(1, 2))

    return lax.fori_loop(0, (n + short) // size, absorb, p)[:, :n, :n]


def filter_chains(
    jacobian: Float[Array, "K B n n"],
    initial: Float[Array, "B n n"],
    noise: Float[Array, "K B n"],
    weight: Float[Array, "T B n"],
) -> Float[Array, "T B n n"]:
    """Covariances after each update; `jacobian[k]` is M_k."""
    n = initial.shape[-1]
    first = update_covariance(initial, weight[0])

    def advance(p, item):
        m_k, q, w = item
        p = jnp.einsum("bij,bjk->bik", m_k, p)
        p = jnp.einsum("bij,bkj->bik", p, m_k) + q[:, :, None] * jnp.eye(n, dtype=p.dtype)
        # Made symmetric before each update: rounding would otherwise grow along the chain.
        p = update_covariance(0.5 * (p + p.swapaxes(1, 2)), w)
        return p, p

    last = lax.scan(advance, first, (jacobian, noise, weight[1:]))[1]
    return jnp.concatenate([first[None], last])


def smooth_chains(
    jacobian: Float[Array, "K B n n"],
    covariance: Float[Array, "T B n n"],
    start: Float[Array, "B n r"],
    defect: Float[Array, "K B n r"],
    weight: Float[Array, "T B n"],
    push: Float[Array, "T B n r"],
) -> tuple[Float[Array, "T B n r"], Float[Array, "K B n r"]]:
    """The minimisers for r right-hand sides (m_0, d, g), and the multipliers of the K steps."""
    weight = weight[..., None]

    def update(m, p, w, g):
        return m + jnp.einsum("bij,bjr->bir", p, g - w * m)

    first = update(start, covariance[0], weight[0], push[0])

    def advance(m, item):
        m_k, p, d, w, g = item
        m = update(jnp.einsum("bij,bjr->bir", m_k, m) + d, p, w, g)
        return m, m

    later = lax.scan(advance, first, (jacobian, covariance[1:], defect, weight[1:], push[1:]))[1]

    def back(adjoint, item):
        # From the last time to the first: delta_k = m_k + P_k lambda_k, then lambda one step earlier.
        m_k, p, m, w, g = item
        delta = m + jnp.einsum("bij,bjr->bir", p, adjoint)
        multiplier = adjoint + g - w * delta
        return jnp.einsum("bji,bjr->bir", m_k, multiplier), (delta, multiplier)

    items = (jacobian, covariance[1:], later, weight[1:], push[1:])
    adjoint, (deltas, multipliers) = lax.scan(back, jnp.zeros_like(start), items, reverse=True)
    initial = first + jnp.einsum("bij,bjr->bir", covariance[0], adjoint)
    return jnp.concatenate([initial[None], deltas]), multipliers


def smoothed_variance(
    jacobian: Float[Array, "K B n n"], covariance: Float[Array, "T B n n"], weight: Float[Array, "T B n"]
) -> Float[Array, "T B n"]:
    """Diagonals of the posterior covariances, by the adjoint recursion in matrices."""

    def here(p, information):
        product = jnp.einsum("bij,bjk->bik", p, information)
        return product, p - jnp.einsum("bij,bjk->bik", product, p)

    def back(information, item):
        # The same recursion for matrices: `information` is what later observations say about the state.
        m_k, p, w = item
        product, smoothed = here(p, information)
        gain = w[:, :, None] * product
        information = information - gain - gain.swapaxes(1, 2) - w[:, :, None] * smoothed * w[:, None, :]
        information = information + w[:, :, None] * jnp.eye(p.shape[-1], dtype=p.dtype)
        information = jnp.einsum("bji,bjk->bik", m_k, information)
        information = jnp.einsum("bij,bjk->bik", information, m_k)
        return 0.5 * (information + information.swapaxes(1, 2)), jnp.diagonal(smoothed, axis1=1, axis2=2)

    zero = jnp.zeros_like(covariance[0])
    information, later = lax.scan(back, zero, (jacobian, covariance[1:], weight[1:]), reverse=True)
    smoothed = here(covariance[0], information)[1]
    return jnp.concatenate([jnp.diagonal(smoothed, axis1=1, axis2=2)[None], later])
