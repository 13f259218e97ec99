r"""Kuramoto-Sivashinsky by Fourier modes: exponential time differencing of fourth order (Kassam and Trefethen 2005).

.. math::  u_t = -\tfrac12 (u^2)_x - u_{xx} - u_{xxxx}, \qquad \text{periodic.}

The linear part is exact in every step, so steps may be long. A state is a whole period: no part of it can be solved by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["SPACING", "kuramoto_flow"]

SPACING = 100 / 128
CONTOUR = 32  # points of the circle over which the coefficients are averaged: their formulas cancel near zero


@lru_cache(maxsize=16)
def kuramoto_flow(sites: int, num_steps: int, time_step: float) -> Callable[[Array, Array], Array]:
    """Return `flow(x, theta)`: `num_steps` steps; theta is not used."""
    wave = 2 * np.pi * np.arange(sites // 2 + 1) / (sites * SPACING)
    linear = wave**2 - wave**4
    slope = -0.5j * wave
    if sites % 2 == 0:
        slope[-1] = 0.0  # the derivative of the highest mode is no real wave
    half, whole = np.exp(time_step * linear / 2), np.exp(time_step * linear)
    circle = np.exp(1j * np.pi * (np.arange(CONTOUR) + 0.5) / CONTOUR)
    at = time_step * linear[:, None] + circle
    mean = lambda values: time_step * np.real(np.mean(values, 1))  # noqa: E731
    q = mean((np.exp(at / 2) - 1) / at)
    f1 = mean((-4 - at + np.exp(at) * (4 - 3 * at + at**2)) / at**3)
    f2 = mean((2 + at + np.exp(at) * (-2 + at)) / at**3)
    f3 = mean((-4 - 3 * at - at**2 + np.exp(at) * (4 - at)) / at**3)

    def flow(x: Float[Array, "*batch I"], theta: Float[Array, " p"]) -> Float[Array, "*batch I"]:
        real, complex_ = x.dtype, jnp.result_type(x.dtype, jnp.complex64)
        halved, all_, q_, f1_, f2_, f3_ = (jnp.asarray(a, real) for a in (half, whole, q, f1, f2, f3))
        slope_ = jnp.asarray(slope, complex_)

        def push(v):
            return slope_ * jnp.fft.rfft(jnp.fft.irfft(v, sites) ** 2)

        def step(v, _):
            now = push(v)
            a = halved * v + q_ * now
            at_a = push(a)
            b = halved * v + q_ * at_a
            at_b = push(b)
            c = halved * a + q_ * (2 * at_b - now)
            return all_ * v + now * f1_ + 2 * (at_a + at_b) * f2_ + push(c) * f3_, None

        return jnp.fft.irfft(lax.scan(step, jnp.fft.rfft(x), None, length=num_steps)[0], sites)

    return flow
