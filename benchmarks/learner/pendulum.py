"""Gymnasium's Pendulum-v1 in JAX, with a cost of 1 while the pendulum turns faster than 4 rad/s."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.base import Transition, auto_reset
from awavo.types import Box, Env, EnvSpec

SPEED, LIMIT = 4.0, 20.0


def pendulum() -> Env:
    """The task: state (angle, speed), observation (cosine, sine, speed), 200 steps."""
    spec = EnvSpec("pendulum", 3, Box((-2.0,), (2.0,)), 200, ("speed",), (LIMIT,))

    def obs(state: Float[Array, "2"]) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def reset(key: Array, params: tuple[()]) -> tuple[Array, Array]:
        reach = jnp.array([jnp.pi, 1.0])
        state = jax.random.uniform(key, (2,), minval=-reach, maxval=reach)
        return state, obs(state)

    def step(key: Array, state: Array, action: Array, params: tuple[()]) -> tuple[Array, Transition]:
        torque = jnp.clip(action[0], -2.0, 2.0)
        angle, speed = (state[0] + jnp.pi) % (2 * jnp.pi) - jnp.pi, state[1]
        reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        state = jnp.stack([angle + speed * 0.05, speed])
        fast = (jnp.abs(speed) > SPEED).astype(jnp.float32)
        return state, Transition(obs(state), reward, fast[None], jnp.zeros((), bool))

    return auto_reset(spec, (), reset, step)
