r"""Linear-Gaussian smoothing of one chain with dense observations: the Kalman filter and its adjoint, exact.

.. math::
    \delta_0 \sim N(m_0, P_0), \quad \delta_{k+1} = F_k \delta_k + d_k + N(0, Q_k), \quad
    e_k = H_k \delta_k + N(0, R_k)

Forward in covariance form; backward the modified Bryson-Frazier recursion, in which nothing but the innovations'
covariance :math:`S_k = L_k L_k^\top` is inverted, so Q may be zero. Every right-hand side is one column.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

__all__ = ["Chain", "Smoothed", "smooth_chain"]


class Chain(NamedTuple):
    """The matrices of one chain: K steps between T = K + 1 times. A row of H that is zero is no observation."""

    step: Float[Array, "K N N"]
    step_var: Float[Array, "K N"]
    seen: Float[Array, "T m N"]
    seen_var: Float[Array, "T m"]
    first_var: Float[Array, " N"]


class Smoothed(NamedTuple):
    """Smoothed and filtered columns, variances of both, and the last covariance."""

    delta: Float[Array, "T N r"]
    variance: Float[Array, "T N"]
    filtered: Float[Array, "T N r"]
    filtered_variance: Float[Array, "T N"]
    last: Float[Array, "N N"]


def smooth_chain(
    chain: Chain,
    first: Float[Array, "N r"],
    defect: Float[Array, "K N r"],
    residual: Float[Array, "T m r"],
    variance: bool = True,
) -> Smoothed:
    """Smooth the columns (m_0, d, e); variances are zero unless asked for."""

    def update(mean, cov, seen, seen_var, value):
        cross = seen @ cov
        root = jnp.linalg.cholesky(cross @ seen.T + jnp.diag(seen_var))
        both = solve_triangular(root, jnp.concatenate([cross, seen, value - seen @ mean], 1), lower=True)
        n = cov.shape[0]
        gain, white, surprise = both[:, :n], both[:, n : 2 * n], both[:, 2 * n :]
        return mean + gain.T @ surprise, cov - gain.T @ gain, (gain, white, surprise)

    def forward(carry, item):
        mean, cov = carry
        step, step_var, push, seen, seen_var, value = item
        mean, cov = step @ mean + push, step @ cov @ step.T + jnp.diag(step_var)
        mean, cov, kept = update(mean, 0.5 * (cov + cov.T), seen, seen_var, value)
        return (mean, cov), (mean, cov, *kept)

    mean, cov, kept = update(first, jnp.diag(chain.first_var), chain.seen[0], chain.seen_var[0], residual[0])
    items = (chain.step, chain.step_var, defect, chain.seen[1:], chain.seen_var[1:], residual[1:])
    (_, last), later = lax.scan(forward, (mean, cov), items)
    means, covs, gains, whites, surprises = (
        jnp.concatenate([a[None], b]) for a, b in zip((mean, cov, *kept), later, strict=True)
    )

    def back(carry, item):
        # `adjoint` and `information` hold what later observations say of this state.
        adjoint, information = carry
        mean, cov, gain, white, surprise, step = item
        delta = mean + cov @ adjoint
        spread = jnp.diagonal(cov - cov @ information @ cov) if variance else jnp.zeros_like(cov[0])
        adjoint = step.T @ (white.T @ surprise + adjoint - white.T @ (gain @ adjoint))
        if variance:
            mixed = information - (information @ gain.T) @ white
            information = step.T @ (white.T @ white + mixed - white.T @ (gain @ mixed)) @ step
            information = 0.5 * (information + information.T)
        return (adjoint, information), (delta, spread)

    # The step before time k carries its adjoint further back; time 0 has none, and its result is not used.
    steps = jnp.concatenate([jnp.zeros_like(chain.step[:1]), chain.step])
    zero = (jnp.zeros_like(first), jnp.zeros_like(last))
    items = (means, covs, gains, whites, surprises, steps)
    _, (deltas, spreads) = lax.scan(back, zero, items, reverse=True)
    return Smoothed(deltas, spreads, means, jnp.diagonal(covs, axis1=1, axis2=2), last)
