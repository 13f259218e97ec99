r"""The low-dimensional posterior p_D(theta) of a flight: external force, mass and drag.

The accelerometer's force balance :math:`m (1 + \delta_m) a = T + (1 + \delta_d) F + f` is, to first order, linear in
:math:`\theta = (f, \delta_m, \delta_d)`, with nominal mass m, measured specific force a, thrust T and nominal drag F
in still air:

.. math::  m a - T - F = f - (T + F)\,\delta_m + F\,\delta_d + \text{noise} .

With the measured m a, or with T + F + f and the f believed so far, in place of T + F, noise would stand on both sides
and the mass come out wrong (by 0.2 and by 0.05 in the test's flight). The posterior is Gaussian, from a Kalman filter:
f walks at random, mass and drag hardly change. What the data cannot tell apart (mass, and a steady force along the
thrust) stays correlated in the planner's draws.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.body import body_drag, rotate
from awavo.tasks.quadrotor.flight import DT, FlightState
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Belief", "draw_members", "start_belief", "take_in", "update_belief"]

FORCE_STD, MASS_STD, DRAG_STD = 1.0, 0.05, 0.3
SLOW_WALK = (2e-3, 1e-2)


class Belief(NamedTuple):
    """Mean and covariance of (f_x, f_y, f_z, mass change, drag change)."""

    mean: Float[Array, " 5"]
    covariance: Float[Array, "5 5"]


def start_belief(mass_std: float = MASS_STD) -> Belief:
    """Return the prior: no force within 1 N, mass within 5% (less for a vehicle that was weighed), drag within 30%."""
    std = jnp.array([FORCE_STD] * 3 + [mass_std, DRAG_STD])
    return Belief(jnp.zeros(5), jnp.diag(jnp.square(std)))


def take_in(belief: Belief, state: FlightState, params: QuadrotorParams) -> Belief:
    """Take in what the vehicle measured in its last step; `params` are the nominal ones."""
    body = state.body
    drag = rotate(body.attitude, body_drag(body.attitude, body.velocity, 1.0, params))
    return update_belief(belief, state.felt, state.thrust, drag, params, DT)


def update_belief(
    belief: Belief,
    felt: Float[Array, " 3"],
    thrust: Float[Array, " 3"],
    drag: Float[Array, " 3"],
    params: QuadrotorParams,
    dt: float,
) -> Belief:
    """Take in one step's mean specific force; `params` are the nominal ones."""
    walk = jnp.stack([*[jnp.asarray(params.force_walk, jnp.float32)] * 3, *map(jnp.float32, SLOW_WALK)])
    covariance = belief.covariance + dt * jnp.diag(walk**2)
    design = jnp.concatenate([jnp.eye(3), -(thrust + drag)[:, None], drag[:, None]], 1)
    noise = params.force_noise**2 * jnp.eye(3)
    gain = jnp.linalg.solve(design @ covariance @ design.T + noise, design @ covariance).T
    miss = params.mass * felt - thrust - drag - design @ belief.mean
    left = jnp.eye(5) - gain @ design
    return Belief(belief.mean + gain @ miss, left @ covariance @ left.T + gain @ noise @ gain.T)


def draw_members(key: Array, belief: Belief, num: int) -> Float[Array, "5 num"]:
    """Draw parameters in pairs mirrored at the mean, so that even a few draws have the right mean."""
    root = jnp.linalg.cholesky(belief.covariance + 1e-9 * jnp.eye(5))
    half = jax.random.normal(key, (5, (num + 1) // 2))
    noise = jnp.concatenate([half, -half], 1)[:, :num]
    return belief.mean[:, None] + root @ noise
