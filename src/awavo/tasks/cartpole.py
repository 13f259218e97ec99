"""Constrained CartPole: keep the pole up, out of five bands of the track and within six degrees.

The physics is Gymnasium's `classic_control` CartPole (explicit Euler, 0.02 s); the costs are the paper's
(`notation` page, task table): g1 = 1 while the cart is in a band, g2 = 1 while the pole leans by more than 6
degrees. Both are evaluated on the state after the step. The cart starts inside the central band, so some g1 is
unavoidable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.checks import check_limits, check_physics
from awavo.tasks.base import Transition, auto_reset, declare_physics
from awavo.types import Discrete, Env, EnvSpec

__all__ = ["BANDS", "CartPoleParams", "cartpole", "cartpole_costs", "cartpole_dynamics"]

BANDS = ((-2.4, -2.2), (-1.3, -1.1), (-0.1, 0.1), (1.1, 1.3), (2.2, 2.4))
COST_NAMES = ("position", "angle")  # g1, g2
# What a planner may have to find out, and where to look for it.
UNKNOWN = {"cart_mass": (0.2, 5.0), "pole_mass": (0.02, 0.5), "half_length": (0.1, 2.0)}
POSITIVE = ("cart_mass", "pole_mass", "half_length", "time_step", "position_threshold", "angle_threshold")


class CartPoleParams(NamedTuple):
    """Physics, one number each; vmap over a batch of them to randomise."""

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    half_length: float = 0.5
    force: float = 10.0
    time_step: float = 0.02
    position_threshold: float = 2.4
    angle_threshold: float = 12 * math.pi / 180
    cost_angle: float = 6 * math.pi / 180


def cartpole_dynamics(state: Float[Array, "4"], action: Array, params: CartPoleParams) -> Float[Array, "4"]:
    """One explicit Euler step of (x, x', theta, theta') under a push to the left (0) or right (1)."""
    _x, x_dot, theta, theta_dot = state
    force = jnp.where(action == 1, params.force, -params.force)
    sin, cos = jnp.sin(theta), jnp.cos(theta)
    total_mass = params.cart_mass + params.pole_mass
    mass_length = params.pole_mass * params.half_length
    # 4/3: the moment of inertia of a uniform pole about its end, over m l^2.
    drive = (force + mass_length * theta_dot**2 * sin) / total_mass
    inertia = params.half_length * (4.0 / 3.0 - params.pole_mass * cos**2 / total_mass)
    theta_acc = (params.gravity * sin - cos * drive) / inertia
    x_acc = drive - mass_length * theta_acc * cos / total_mass
    rates = jnp.stack([x_dot, x_acc, theta_dot, theta_acc])
    return state + params.time_step * rates


def cartpole_costs(state: Float[Array, "4"], params: CartPoleParams) -> Float[Array, "2"]:
    """g1: the cart stands in one of the (closed) bands; g2: the pole leans by more than `cost_angle`."""
    x, theta = state[0], state[2]
    bands = jnp.asarray(BANDS, state.dtype)
    in_band = jnp.any((x >= bands[:, 0]) & (x <= bands[:, 1]))
    return jnp.stack([in_band, jnp.abs(theta) > params.cost_angle]).astype(state.dtype)


def cartpole(*, cost_limits: Sequence[float] = (30.0, 10.0), horizon: int = 200, **physics: float) -> Env:
    """Build the task; `physics` overrides fields of `CartPoleParams`."""
    params = CartPoleParams(**physics)
    check_physics(params, POSITIVE)
    spec = EnvSpec("cartpole", 4, Discrete(2), horizon, COST_NAMES, check_limits(cost_limits, COST_NAMES))

    def reset(key, params):
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, state

    def follow(state, action, params):
        state = cartpole_dynamics(state, action, params)
        fallen = (jnp.abs(state[0]) > params.position_threshold) | (jnp.abs(state[2]) > params.angle_threshold)
        return Transition(state, jnp.ones(()), cartpole_costs(state, params), fallen)

    def step(key, state, action, params):
        out = follow(state, action, params)
        return out.obs, out

    return auto_reset(spec, params, reset, step, physics=declare_physics(params, UNKNOWN, follow))
