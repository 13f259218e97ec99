r"""A tracking law for thrust per mass and body rates, from the model's flatness.

With position and velocity errors :math:`e, \dot e` and the estimated external force f,

.. math::  a = a_{ref} + K_p e + K_v \dot e + g e_3 - f / m + D v / m, \qquad c = a \cdot R e_3, \qquad
   \omega_c = K_R\,(R^\top (R e_3 \times \hat a)) , \quad \omega_{c,z} = -K_\psi\, R_{21} .

Arrays have components first and any batch after them, so that the planner rolls it out inside the model.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from awavo.tasks.quadrotor.body import Vector3, Vector4, rotate_back, thrust_axis
from awavo.tasks.quadrotor.references import RefState

__all__ = ["Gains", "limit_tilt", "track"]


class Gains(NamedTuple):
    """Gains of the tracking law, and the bounds of its commands."""

    position: float = 6.0
    velocity: float = 4.0
    tilt: float = 10.0
    yaw: float = 1.5
    max_tilt: float = 0.47
    max_rate: float = 6.0
    max_thrust: float = 20.0


def limit_tilt(a: Vector3, max_tilt: float) -> Vector3:
    """Shorten the horizontal part of a wanted acceleration until its tilt is within bounds."""
    up = jnp.maximum(a[2], 1.0)
    flat = jnp.sqrt(a[0] ** 2 + a[1] ** 2)
    share = jnp.minimum(1.0, up * jnp.tan(max_tilt) / jnp.maximum(flat, 1e-6))
    return jnp.stack([share * a[0], share * a[1], up])


def track(
    position: Vector3,
    velocity: Vector3,
    attitude: Vector4,
    wanted: RefState,
    push: Vector3,
    gravity: float,
    gains: Gains,
) -> Vector4:
    """Return thrust per mass and body rates; `push` is the acceleration by external force and drag to be undone."""
    shape = (3, *[1] * (position.ndim - 1))
    weight = gravity * jnp.array([0.0, 0.0, 1.0]).reshape(shape)
    a = (
        wanted.acceleration
        + gains.position * (wanted.position - position)
        + gains.velocity * (wanted.velocity - velocity)
        + weight
        - push
    )
    a = limit_tilt(a, gains.max_tilt)
    size = jnp.sqrt(jnp.sum(a**2, 0))
    axis = thrust_axis(attitude)
    turn = rotate_back(attitude, jnp.cross(axis, a / size, axis=0))
    w, x, y, z = attitude
    rates = jnp.stack([gains.tilt * turn[0], gains.tilt * turn[1], -gains.yaw * 2 * (x * y + w * z)])
    thrust = jnp.clip(jnp.sum(a * axis, 0), 0.0, gains.max_thrust)
    return jnp.concatenate([thrust[None], jnp.clip(rates, -gains.max_rate, gains.max_rate)])
