r"""The external force from what a vehicle measures, with its covariance.

The accelerometer feels thrust, drag and the external force: :math:`f_{meas} = R (m a_{imu} - T e_3 - F_{drag})` with
the drag of still air. A Kalman filter holds velocity and force, with
:math:`\dot v = -g e_3 + (T R e_3 + R F_{drag} + f) / m` and :math:`\dot f = w` (random walk), and takes in
:math:`f_{meas}` and the estimated velocity. In the world frame the noise is the same along all axes, so the covariance
is one 2 by 2 matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["ForceFilter", "start_filter", "update_filter"]


class ForceFilter(NamedTuple):
    """Means of velocity and force, and the covariance that every axis shares."""

    velocity: Float[Array, "3 ..."]
    force: Float[Array, "3 ..."]
    covariance: Float[Array, "2 2"]


def start_filter(velocity: Float[Array, "3 ..."]) -> ForceFilter:
    """A known velocity, and a force of 0 within 1 N."""
    return ForceFilter(velocity, jnp.zeros_like(velocity), jnp.array([[1e-4, 0.0], [0.0, 1.0]]))


def update_filter(
    state: ForceFilter,
    push: Float[Array, "3 ..."],
    measured_force: Float[Array, "3 ..."],
    measured_velocity: Float[Array, "3 ..."],
    params: QuadrotorParams,
    dt: float,
) -> ForceFilter:
    """Predict over dt under `push` (known force: thrust, drag, weight), then take in both measurements."""
    velocity = state.velocity + dt * (push + state.force) / params.mass
    # Of (velocity, force): v' = v + dt f / m, f' = f.
    transition = jnp.stack([jnp.stack([jnp.ones(()), jnp.asarray(dt / params.mass)]), jnp.array([0.0, 1.0])])
    walk = jnp.diag(jnp.stack([jnp.asarray(1e-6), jnp.asarray(dt * params.force_walk**2)]))
    covariance = transition @ state.covariance @ transition.T + walk
    noise = jnp.diag(jnp.stack([jnp.asarray(params.velocity_noise**2), jnp.asarray(params.force_noise**2)]))
    gain = covariance @ jnp.linalg.inv(covariance + noise)
    miss_v, miss_f = measured_velocity - velocity, measured_force - state.force
    velocity = velocity + gain[0, 0] * miss_v + gain[0, 1] * miss_f
    force = state.force + gain[1, 0] * miss_v + gain[1, 1] * miss_f
    left = jnp.eye(2) - gain  # Joseph's form keeps the covariance positive in float32
    return ForceFilter(velocity, force, left @ covariance @ left.T + gain @ noise @ gain.T)
