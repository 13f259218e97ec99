"""Navigation: a point mass flies to a goal behind a forbidden disc.

.. code-block:: text

    v' = v + dt (a + noise),   p' = p + dt v',   a in [-1, 1]^2
    r  = -|p' - goal| / 10 - |a|^2 / 100,   g = 1 while p' is inside the disc

The straight line crosses the disc; time is short, so going round it costs reward. A small continuous task, for tests
and first steps: no contacts, known optimum by eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.checks import check_limits, check_physics
from awavo.tasks.base import Transition, auto_reset, declare_physics
from awavo.types import Box, Env, EnvSpec

__all__ = ["NavigationParams", "navigation"]

COST_NAMES = ("disc",)
# What a planner may have to find out, and where to look for it.
UNKNOWN = {"radius": (0.1, 1.0), "time_step": (0.02, 0.5)}


class NavigationParams(NamedTuple):
    """Geometry and physics; vmap over a batch of them to randomise."""

    start: tuple[float, float] = (-1.5, 0.0)
    start_spread: float = 0.2
    goal: tuple[float, float] = (1.5, 0.0)
    radius: float = 0.5
    noise: float = 0.1
    time_step: float = 0.1


def navigation(*, cost_limits: Sequence[float] = (2.0,), horizon: int = 100, **physics: Any) -> Env:
    """Build the task, whose state (and observation) is (position, velocity); `physics` overrides `NavigationParams`."""
    params = NavigationParams(**physics)
    check_physics(params, ("time_step",), signed=("start", "goal"))
    limits = check_limits(cost_limits, COST_NAMES)
    spec = EnvSpec("navigation", 4, Box((-1.0, -1.0), (1.0, 1.0)), horizon, COST_NAMES, limits)

    def reset(key: Array, params: NavigationParams) -> tuple[Float[Array, "4"], Float[Array, "4"]]:
        offset = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        place = jnp.asarray(params.start) + params.start_spread * offset
        state = jnp.concatenate([place, jnp.zeros(2)])
        return state, state

    def move(
        state: Float[Array, "4"], action: Float[Array, "2"], params: NavigationParams, wind: Float[Array, "2"]
    ) -> Transition:
        push = jnp.clip(action, -1.0, 1.0)
        velocity = state[2:] + params.time_step * (push + params.noise * wind)
        place = state[:2] + params.time_step * velocity
        state = jnp.concatenate([place, velocity])
        away = jnp.sqrt(jnp.sum((place - jnp.asarray(params.goal)) ** 2))
        reward = -0.1 * away - 0.01 * jnp.sum(push**2)
        inside = jnp.sum(place**2) < params.radius**2
        return Transition(state, reward, inside[None].astype(jnp.float32), jnp.zeros((), bool))

    def step(
        key: Array, state: Float[Array, "4"], action: Float[Array, "2"], params: NavigationParams
    ) -> tuple[Float[Array, "4"], Transition]:
        out = move(state, action, params, jax.random.normal(key, (2,)))
        return out.obs, out

    own = declare_physics(params, UNKNOWN, lambda obs, action, params: move(obs, action, params, jnp.zeros(2)))
    return auto_reset(spec, params, reset, step, physics=own)
