"""Constrained Acrobot: swing the tip up while sparing torque that drives a link anticlockwise.

The physics is Gymnasium's `classic_control` Acrobot ("book" version, one Runge-Kutta step of 0.2 s). The paper's
reward text and the code its experiments descend from disagree, so both readings are keywords:

* `height_threshold`: reward 1 while the tip is higher than this above the pivot (-0.5 lineage, 0.5 the text);
* `on_reach`: when the tip passes height 1, re-draw the physics and go on ("reset", lineage), go on ("continue"), or
  end the episode ("terminate", Gymnasium's rule);
* `gate`: "nonzero_torque" charges torque applied while a link swings anticlockwise (the text, with the second cost
  gated by torque too: ungated, no policy meets the limit), "lineage" charges every action but index 0 while it swings
  clockwise, "none" leaves the second cost ungated.

Costs are evaluated on the state in which the torque is applied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.checks import check_choice, check_limits, check_physics
from awavo.tasks.base import Transition, auto_reset, declare_physics
from awavo.types import Discrete, Env, EnvSpec

__all__ = ["AcrobotParams", "acrobot", "acrobot_costs", "acrobot_dynamics", "tip_height"]

COST_NAMES = ("link1", "link2")
# What a planner may have to find out, and where to look for it.
UNKNOWN = {"mass_1": (0.2, 5.0), "mass_2": (0.2, 5.0), "inertia": (0.2, 5.0)}
REACH = ("reset", "continue", "terminate")
GATES = ("nonzero_torque", "lineage", "none")


class AcrobotParams(NamedTuple):
    """Physics, one number each; vmap over a batch of them to randomise."""

    gravity: float = 9.8
    mass_1: float = 1.0
    mass_2: float = 1.0
    length_1: float = 1.0
    center_1: float = 0.5
    center_2: float = 0.5
    inertia: float = 1.0
    torque: float = 1.0
    time_step: float = 0.2
    max_speed_1: float = 4 * math.pi
    max_speed_2: float = 9 * math.pi


def _rates(state: Float[Array, "4"], torque: Array, p: AcrobotParams) -> Float[Array, "4"]:
    angle_1, angle_2, speed_1, speed_2 = state
    sin_2, cos_2 = jnp.sin(angle_2), jnp.cos(angle_2)
    # Sutton and Barto's equations: M(q) q'' + phi(q, q') = (0, torque), solved for the accelerations.
    coupling = p.mass_2 * p.length_1 * p.center_2
    d1 = p.mass_1 * p.center_1**2 + p.mass_2 * (p.length_1**2 + p.center_2**2) + 2 * coupling * cos_2 + 2 * p.inertia
    d2 = p.mass_2 * p.center_2**2 + coupling * cos_2 + p.inertia
    phi2 = p.mass_2 * p.center_2 * p.gravity * jnp.cos(angle_1 + angle_2 - jnp.pi / 2)
    phi1 = (
        -coupling * speed_2**2 * sin_2
        - 2 * coupling * speed_2 * speed_1 * sin_2
        + (p.mass_1 * p.center_1 + p.mass_2 * p.length_1) * p.gravity * jnp.cos(angle_1 - jnp.pi / 2)
        + phi2
    )
    acc_2 = (torque + d2 / d1 * phi1 - coupling * speed_1**2 * sin_2 - phi2) / (
        p.mass_2 * p.center_2**2 + p.inertia - d2**2 / d1
    )
    acc_1 = -(d2 * acc_2 + phi1) / d1
    return jnp.stack([speed_1, speed_2, acc_1, acc_2])


def _wrap(angle: Array) -> Array:
    return angle - 2 * jnp.pi * jnp.round(angle / (2 * jnp.pi))


def acrobot_dynamics(state: Float[Array, "4"], action: Array, params: AcrobotParams) -> Float[Array, "4"]:
    """One Runge-Kutta step of (theta1, theta2, theta1', theta2') with torque -1, 0 or +1 held at the elbow."""
    torque = params.torque * (action - 1)
    dt = params.time_step
    k1 = _rates(state, torque, params)
    k2 = _rates(state + dt / 2 * k1, torque, params)
    k3 = _rates(state + dt / 2 * k2, torque, params)
    k4 = _rates(state + dt * k3, torque, params)
    angle_1, angle_2, speed_1, speed_2 = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    speed_1 = jnp.clip(speed_1, -params.max_speed_1, params.max_speed_1)
    speed_2 = jnp.clip(speed_2, -params.max_speed_2, params.max_speed_2)
    return jnp.stack([_wrap(angle_1), _wrap(angle_2), speed_1, speed_2])


def tip_height(state: Float[Array, "4"]) -> Float[Array, ""]:
    """Height of the tip above the pivot, from -2 (hanging) to 2."""
    return -jnp.cos(state[0]) - jnp.cos(state[0] + state[1])


def acrobot_costs(state: Float[Array, "4"], action: Array, gate: str) -> Float[Array, "2"]:
    """Charge the action taken in `state`, by the chosen reading of the paper's text."""
    speeds = state[2:]  # anticlockwise is positive; action 1 is no torque
    if gate == "lineage":
        charged = (speeds < 0) & (action != 0)
    else:
        charged = (speeds > 0) & (action != 1)
        if gate == "none":
            charged = charged.at[1].set(speeds[1] > 0)
    return charged.astype(state.dtype)


def acrobot(
    *,
    cost_limits: Sequence[float] = (50.0, 50.0),
    horizon: int = 500,
    height_threshold: float = -0.5,
    on_reach: str = "reset",
    gate: str = "nonzero_torque",
    **physics: float,
) -> Env:
    """Build the task; `physics` overrides fields of `AcrobotParams`."""
    check_choice("on_reach", on_reach, REACH)
    check_choice("gate", gate, GATES)
    params = AcrobotParams(**physics)
    check_physics(params, [name for name in params._fields if name not in ("gravity", "torque")])
    spec = EnvSpec("acrobot", 6, Discrete(3), horizon, COST_NAMES, check_limits(cost_limits, COST_NAMES))

    def observe(state):
        angles = state[:2]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.stack([cos[0], sin[0], cos[1], sin[1], state[2], state[3]])

    def reset(key, params):
        state = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
        return state, observe(state)

    def follow(state, action, params, fresh):
        costs = acrobot_costs(state, action, gate)
        state = acrobot_dynamics(state, action, params)
        height = tip_height(state)
        reward = (height > height_threshold).astype(state.dtype)
        reached = height > 1.0  # Gymnasium's goal
        if on_reach == "reset":
            state = jnp.where(reached, fresh, state)
        terminated = reached if on_reach == "terminate" else jnp.zeros((), bool)
        return state, Transition(observe(state), reward, costs, terminated)

    def step(key, state, action, params):
        return follow(state, action, params, reset(key, params)[0])

    def imagine(obs, action, params):
        angles = jnp.arctan2(obs[jnp.array([1, 3])], obs[jnp.array([0, 2])])
        # A new start is drawn around hanging at rest.
        return follow(jnp.concatenate([angles, obs[4:]]), action, params, jnp.zeros(4))[1]

    return auto_reset(spec, params, reset, step, physics=declare_physics(params, UNKNOWN, imagine))
