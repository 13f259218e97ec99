r"""A flight as far as an observation tells it: the model in which a planner follows its actions.

The observation holds the errors, the attitude, the rates, the force that the filter believes in, the reference after
0.2, 0.4 and 0.8 s and the nearest obstacles, all relative to the vehicle. A cubic through the four places of the
reference gives its velocity, and with it that of the vehicle, and goes on with it. Then, with drag in still air,

.. math::  \dot v = a_0\, R e_3 + (R F_{drag}(R^\top v) + F) / m - g e_3, \qquad
           \omega' = \omega + (1 - e^{-\Delta / \tau}) (a_{1:} - \omega),

one step of 20 ms, :math:`\tau` the time in which the rate loop follows a command. A thrust per mass hides the mass:
only drag is then looked for. Four throttles act by their thrust at once, :math:`a_0 = \sum_j f_j / m` and
:math:`J \dot\omega = \tau(f) - \omega \times J \omega`, and show the mass too. What is hidden (rotor speeds, the
loop's integrals, gusts, the ground) is left out: it is part of the noise that identification finds.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.tasks.base import Transition
from awavo.tasks.quadrotor.body import throttle_forces, wrench
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["UNKNOWN", "UNKNOWN_MASS", "observed_step"]

# What a planner may have to find out, and where to look for it.
UNKNOWN = {"drag_x": (0.05, 1.0), "drag_y": (0.05, 1.0), "drag_z": (0.05, 1.0)}
UNKNOWN_MASS = {"mass": (0.6, 2.4), **UNKNOWN}
RATE_LAG = 0.05
FARTHEST = 12.0


def _cubic(places: Float[Array, "4 3"], times: tuple[float, ...], at: np.ndarray) -> tuple[Array, Array]:
    """Values and slopes of the cubic through four places."""
    inverse = np.linalg.inv(np.vander(times, 4, increasing=True))
    powers = np.vander(at, 4, increasing=True)
    slopes = np.concatenate([np.zeros((len(at), 1)), powers[:, :3] * np.arange(1, 4)], 1)
    return jnp.asarray(powers @ inverse, jnp.float32) @ places, jnp.asarray(slopes @ inverse, jnp.float32) @ places


def _turned(axes: Float[Array, "3 3"], rates: Float[Array, " 3"], dt: float) -> Float[Array, "3 3"]:
    """Columns of the attitude after turning at body rates, to second order, made orthonormal again."""
    p, q, r = dt * rates
    cross = jnp.array([[0, -1.0, 0], [1.0, 0, 0], [0, 0, 0]]) * r
    cross = cross + jnp.array([[0, 0, 1.0], [0, 0, 0], [-1.0, 0, 0]]) * q
    cross = cross + jnp.array([[0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]]) * p
    first, second, _ = (axes @ (jnp.eye(3) + cross + 0.5 * cross @ cross)).T
    first = first / jnp.linalg.norm(first)
    second = second - jnp.dot(first, second) * first
    second = second / jnp.linalg.norm(second)
    return jnp.stack([first, second, jnp.cross(first, second)], 1)


def _driven(
    rates: Float[Array, " 3"], action: Float[Array, " 4"], params: QuadrotorParams, dt: float, motors: bool
) -> tuple[Float[Array, ""], Float[Array, " 3"]]:
    """Thrust per mass, and the rates after a step."""
    if not motors:
        return action[0], rates + (1 - np.exp(-dt / RATE_LAG)) * (action[1:] - rates)
    load = wrench(throttle_forces(action, params), params)
    inertia = jnp.stack([params.inertia_x, params.inertia_y, params.inertia_z])
    return load[0] / params.mass, rates + dt * (load[1:] - jnp.cross(rates, inertia * rates)) / inertia


def observed_step(
    obs: Float[Array, " d"],
    action: Float[Array, " 4"],
    params: QuadrotorParams,
    lookahead: tuple[float, ...],
    dt: float,
    motors: bool = False,
) -> Transition:
    """One step of `dt` seconds from an observation; `lookahead` are the seconds after which it sees the reference.

    The action is thrust per mass and body rates, or with `motors` four throttles.
    """
    error, drift = obs[:3], obs[3:6]
    axes, rates, force = obs[6:15].reshape(3, 3).T, obs[15:18], obs[18:21]
    seen = obs[21 : 21 + 3 * len(lookahead)].reshape(-1, 3)
    towards, shown = jnp.split(obs[21 + seen.size :], [obs[21 + seen.size :].size * 2 // 3])
    times = (0.0, *lookahead)
    places = jnp.concatenate([error[None], seen])
    _, slope = _cubic(places, times, np.zeros(1))
    wanted, wanted_slope = _cubic(places, times, np.asarray(times) + dt)
    velocity = slope[0] - drift

    lift, rates = _driven(rates, action, params, dt, motors)
    axes = _turned(axes, rates, dt)
    air = velocity @ axes
    drag = jnp.stack([params.drag_x, params.drag_y, params.drag_z]) + params.drag_quadratic * jnp.linalg.norm(air)
    push = lift * axes[:, 2] + (force - axes @ (drag * air)) / params.mass
    acceleration = push - params.gravity * jnp.array([0.0, 0.0, 1.0])
    moved = dt * velocity + 0.5 * dt**2 * acceleration
    velocity = velocity + dt * acceleration

    # Obstacles come nearer by what the vehicle moves towards them; 1e-5 is as far as an observation shows.
    unit = towards.reshape(-1, 2) / jnp.maximum(shown, 1e-6)[:, None]
    gaps = jnp.minimum(-jnp.log(jnp.maximum(shown, 1e-6)), FARTHEST) - unit @ moved[:2]
    shown = jnp.where(shown > 1e-5, jnp.exp(-jnp.maximum(gaps, 0.0)), shown)
    gap = jnp.min(gaps + FARTHEST * (shown <= 1e-5))

    error, drift = wanted[0] - moved, wanted_slope[0] - velocity
    parts = [error, drift, axes.T.ravel(), rates, force, (wanted[1:] - moved).ravel(), (unit * shown[:, None]).ravel()]
    hit = gap < params.collision_radius
    near = jnp.clip((params.clearance - gap) / (params.clearance - params.collision_radius), 0.0, 1.0)
    close = jnp.where(hit, jnp.asarray(params.collision_cost), near)
    tilted = axes[2, 2] < jnp.cos(params.tilt_limit)
    effort = 0.0 if motors else jnp.sum((action - jnp.array([1.0, 0, 0, 0]) * params.gravity) ** 2)
    reward = (
        -jnp.linalg.norm(error) - params.velocity_weight * jnp.linalg.norm(drift) - params.effort_weight * 0.01 * effort
    )
    costs = jnp.stack([close, tilted.astype(jnp.float32)])
    return Transition(jnp.concatenate([*parts, shown]), reward, costs, hit)
