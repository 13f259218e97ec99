r"""Wind: Dryden gusts that have the standard deviation asked for at any time step, a fan zone, a 1-cosine gust.

With length L, airspeed V, :math:`T = L / V` and :math:`a = e^{-dt/T}`, the filters are stepped exactly:

.. math::

   u^+ &= a u + \sigma \sqrt{1 - a^2}\,\xi \\
   x^+ &= \Phi x + \mathrm{chol}(P - \Phi P \Phi^\top)\,\xi, \quad
   \Phi = a \begin{pmatrix} 1 & 0 \\ dt/T & 1 \end{pmatrix}, \quad
   P = \begin{pmatrix} 1 & 1/2 \\ 1/2 & 1/2 \end{pmatrix}, \\
   w &= \tfrac{\sigma}{\sqrt 2} (\sqrt 3\, x_1 + (1 - \sqrt 3)\, x_2) .
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["gusts", "start_gusts", "step_gusts", "zone_share", "wind_at"]


def start_gusts(key: Array) -> Float[Array, " 5"]:
    """Draw the filters' states (one along the wind, two across, two up) from their stationary distribution."""
    a, b, c, d, e = jax.random.normal(key, (5,))
    half = 0.5
    return jnp.stack([a, b, half * b + half * c, d, half * d + half * e])


def step_gusts(key: Array, state: Float[Array, " 5"], dt: float, params: QuadrotorParams) -> Float[Array, " 5"]:
    """Advance the filters by dt."""
    noise = jax.random.normal(key, (5,))
    s = dt * params.gust_speed / params.gust_length
    a = jnp.exp(-s)
    # P - Phi P Phi^T, entry by entry, and its Cholesky factor.
    q11 = 1 - a**2
    q12 = 0.5 - a**2 * (s + 0.5)
    q22 = 0.5 - a**2 * (s * s + s + 0.5)
    c11 = jnp.sqrt(q11)
    c21 = q12 / jnp.maximum(c11, 1e-12)
    c22 = jnp.sqrt(jnp.maximum(q22 - c21**2, 0.0))

    def second(x1, x2, n1, n2):
        return a * x1 + c11 * n1, a * (s * x1 + x2) + c21 * n1 + c22 * n2

    along = a * state[0] + jnp.sqrt(q11) * noise[0]
    return jnp.stack([along, *second(*state[1:3], *noise[1:3]), *second(*state[3:5], *noise[3:5])])


def gusts(state: Float[Array, " 5"], params: QuadrotorParams) -> Float[Array, " 3"]:
    """Gust velocity along, across and up, each of standard deviation `gust_sigma`."""
    root = 3.0**0.5
    across, up = (root * x1 + (1 - root) * x2 for x1, x2 in (state[1:3], state[3:5]))
    return params.gust_sigma * jnp.stack([state[0], across / 2**0.5, up / 2**0.5])


def zone_share(position: Float[Array, " 3"], centre: Float[Array, " 3"], params: QuadrotorParams) -> Float[Array, ""]:
    """1 inside the fan's box around `centre`, 0 far outside, with soft edges; the box reaches through all heights."""
    inside = params.zone_radius - jnp.abs(position[:2] - centre[:2])
    return jnp.prod(jax.nn.sigmoid(inside / params.zone_edge))


def wind_at(
    position: Float[Array, " 3"],
    centre: Float[Array, " 3"],
    time: Float[Array, ""],
    gust_start: Float[Array, ""],
    state: Float[Array, " 5"],
    params: QuadrotorParams,
) -> Float[Array, " 3"]:
    """Wind velocity at a place and time: gusts everywhere, the fan in its zone, one 1-cosine gust along the fan."""
    fan = jnp.stack([jnp.asarray(x, jnp.float32) for x in (params.wind_x, params.wind_y, params.wind_z)])
    direction = fan / jnp.maximum(jnp.linalg.norm(fan), 1e-6)
    across = jnp.stack([-direction[1], direction[0], jnp.zeros(())])
    along, side, up = gusts(state, params)
    turbulence = along * direction + side * across + up * jnp.array([0.0, 0.0, 1.0])
    phase = (time - gust_start) / params.gust_time
    bump = 0.5 * params.gust_peak * (1 - jnp.cos(2 * jnp.pi * phase)) * ((phase > 0) & (phase < 1))
    share = zone_share(position, centre, params)
    return params.wind_on * (share * fan + bump * direction + turbulence)
