r"""The Gauss-Newton step of a system too large for its matrices: conjugate gradients, by tangents and adjoints alone.

Controls are whitened: :math:`u = (u_0, u_\theta, \eta_1..\eta_K)`, with

.. math::
    \delta_0 = \mu - x_0 + s\, u_0, \qquad \delta\theta = \bar\theta - \theta + s_\theta u_\theta, \qquad
    \delta_{k+1} = F_k \delta_k + B_k\, \delta\theta + d_k + q\, \eta_{k+1},

and minimise :math:`\lVert u \rVert^2 + \lVert (e - H\delta)/\sigma \rVert^2`. The priors precondition it, and q may be
0. A product costs one tangent and one adjoint of the flow per interval; nothing of size n x n is ever made. Variances
come from draws: the noise of priors, model and data, smoothed by the same solver.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

__all__ = ["CONJUGATE_STEPS", "krylov_solver", "spread_of_draws"]

# With a tolerance of 1e-4 means were up to 0.9 posterior standard deviations off where noise is small.
CONJUGATE_STEPS, TOLERANCE = 80, 1e-6
# Quantiles at 95% of Student's t with as many degrees of freedom as draws, over that of a normal distribution.
STUDENT = {4: 1.296, 8: 1.130, 16: 1.061, 32: 1.030, 64: 1.015}


def spread_of_draws(draws: Float[Array, "r *n"]) -> Float[Array, "*n"]:
    """Standard deviations from few draws around a known mean, widened so that 90% intervals hold 90%."""
    count = draws.shape[0]
    factor = next((f for least, f in sorted(STUDENT.items(), reverse=True) if count >= least), 2.0)
    return factor * jnp.sqrt(jnp.mean(draws**2, 0))


def krylov_solver(flow: Callable[..., Array], see: Callable[..., Array], free: Array) -> Callable[..., Array]:
    """Return `solve(observed, x, theta, q, first, defect, surprise) -> delta [T, n + f]` for one right-hand side."""

    def solve(observed, x, theta, q, first, defect, surprise):
        num = x.shape[1]
        spread = (observed.prior_std, observed.theta_std)
        begins, ends = observed.times[:-1], observed.times[1:]

        def at(small):
            return theta.at[free].set(small)

        def forward(u, offset):
            """States and parameters that the controls lead to; with `offset` 0 the linear part alone."""
            u0, ut, eta = u
            dx = offset * first[:num] + spread[0] * u0
            dt = offset * first[num:] + spread[1] * ut

            def advance(dx, item):
                x_k, begin, end, push, noise = item
                move = jax.jvp(lambda a, b: flow(a, at(b), begin, end), (x_k, theta[free]), (dx, dt))[1]
                dx = move + offset * push + q * noise
                return dx, dx

            later = lax.scan(advance, dx, (x[:-1], begins, ends, defect[:, :num], eta))[1]
            return jnp.concatenate([dx[None], later]), dt

        def shown(dx, dt):
            def one(x_k, dx_k, time):
                return jax.jvp(lambda a, b: see(a, at(b), time), (x_k, theta[free]), (dx_k, dt))[1]

            return jnp.where(observed.seen, jax.vmap(one)(x, dx, observed.times) / observed.noise, 0.0)

        def backward(weight):
            """The adjoint of `shown` after `forward`."""

            def one(x_k, time, w):
                return jax.vjp(lambda a, b: see(a, at(b), time), x_k, theta[free])[1](w)

            own, to_theta = jax.vmap(one)(x, observed.times, jnp.where(observed.seen, weight / observed.noise, 0.0))

            def back(carry, item):
                adjoint, total = carry
                x_k, begin, end, mine = item
                pull, more = jax.vjp(lambda a, b: flow(a, at(b), begin, end), x_k, theta[free])[1](adjoint)
                return (pull + mine, total + more), adjoint

            (at_first, total), adjoints = lax.scan(
                back, (own[-1], jnp.sum(to_theta, 0)), (x[:-1], begins, ends, own[:-1]), reverse=True
            )
            return spread[0] * at_first, spread[1] * total, q * adjoints

        def product(u):
            return jax.tree.map(jnp.add, u, backward(shown(*forward(u, 0.0))))

        none = (jnp.zeros(num, x.dtype), jnp.zeros(len(free), x.dtype), jnp.zeros_like(x[1:]))
        left = surprise / observed.noise - shown(*forward(none, 1.0))
        u = cg(product, backward(left), tol=TOLERANCE, maxiter=CONJUGATE_STEPS)[0]
        dx, dt = forward(u, 1.0)
        return jnp.concatenate([dx, jnp.broadcast_to(dt, (len(x), len(free)))], 1)

    return solve
