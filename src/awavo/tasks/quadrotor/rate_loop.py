r"""The inner loop: body rates and collective thrust to rotor speeds, as a PX4 multicopter does it, at the plant's rate.

In normalised torque, with error :math:`e = \omega_c - \omega`,

.. math::  n = P e + I \int e\,dt - D \dot\omega, \qquad \tau_x = n_x\, 4 f_{max} L / \sqrt 2, \quad
   \tau_z = n_z\, 4 \kappa f_{max},

then the mixer, and rotor speeds :math:`\sqrt{f / k_f}`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.tasks.quadrotor.body import Vector3, Vector4, mix
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["RateLoop", "rate_loop", "start_loop", "throttle"]

INTEGRAL_LIMIT = 0.3  # of normalised torque: PX4's guard against wind-up


class RateLoop(NamedTuple):
    """Integral of the normalised torque, and the rates of the step before."""

    integral: Vector3
    rates: Vector3


def start_loop(rates: Vector3) -> RateLoop:
    """Nothing integrated yet."""
    return RateLoop(jnp.zeros_like(rates), rates)


def rate_loop(
    loop: RateLoop, rates: Vector3, thrust: Float[Array, " *n"], wanted: Vector3, params: QuadrotorParams, dt: float
) -> tuple[RateLoop, Vector4, Bool[Array, " *n"]]:
    """Return the loop's state, commanded rotor speeds, and whether a rotor is at its bound."""
    gains = (
        (params.roll_p, params.roll_i, params.roll_d),
        (params.pitch_p, params.pitch_i, params.pitch_d),
        (params.yaw_p, params.yaw_i, 0.0),
    )
    arm = 4 * params.thrust_max * params.arm * 0.5**0.5
    scale = (arm, arm, 4 * params.torque_ratio * params.thrust_max)
    error = wanted - rates
    # D acts on the measured rates: a step of the command does not kick.
    drift = (rates - loop.rates) / dt
    rise = dt * jnp.stack([g[1] * e for g, e in zip(gains, error, strict=True)])
    integral = jnp.clip(loop.integral + rise, -INTEGRAL_LIMIT, INTEGRAL_LIMIT)
    torque = [
        s * jnp.clip(g[0] * e + i - g[2] * d, -1.0, 1.0)
        for g, s, e, i, d in zip(gains, scale, error, integral, drift, strict=True)
    ]
    forces = mix(jnp.stack([thrust, *torque]), params)
    bound = jnp.any((forces >= params.thrust_max) | (forces <= params.thrust_min), 0)
    return RateLoop(integral, rates), jnp.sqrt(forces / params.thrust_coefficient), bound


def throttle(force: Array, params: QuadrotorParams) -> Array:
    """PX4's throttle for a rotor's thrust: the root u of f / f_max = k u^2 + (1 - k) u."""
    k = params.throttle_curve
    return (-(1 - k) + jnp.sqrt((1 - k) ** 2 + 4 * k * force / params.thrust_max)) / (2 * k)
