"""Factors of CartPole and Acrobot: the regions that cost, gravity, and a push that the episode really had.

Each removes something from what the policy sees. A region's factor changes nothing outside the region, gravity's
nothing at the equilibrium, and the push's nothing before the push: there the influence is exactly zero.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.factors import Factor
from awavo.tasks.cartpole import BANDS

__all__ = ["Seen", "TASK_FACTORS", "TASK_PUSHES", "task_factors"]

# Which entry of the task's state a push changes, and by how much.
TASK_PUSHES = {"cartpole": (1, 0.5), "acrobot": (2, 1.0)}
MARGIN = 0.1


class Seen(NamedTuple):
    """An observation, and the one of the same moment in the same episode without the push."""

    obs: Float[Array, " d"]
    unpushed: Float[Array, " d"]


def _no_push(seen: Seen) -> Seen:
    return seen._replace(obs=seen.unpushed)


def _out_of_band(seen: Seen) -> Seen:
    """A cart within a hand's breadth of a band stands in the middle of the nearest free stretch instead."""
    bands = jnp.asarray(BANDS)
    x = seen.obs[0]
    near = jnp.any((x >= bands[:, 0] - MARGIN) & (x <= bands[:, 1] + MARGIN))
    free = 0.5 * (bands[:-1, 1] + bands[1:, 0])
    place = free[jnp.argmin(jnp.abs(free - x))]
    return seen._replace(obs=seen.obs.at[0].set(jnp.where(near, place, x)))


def _within_angle(seen: Seen) -> Seen:
    """A pole that leans by more than 4 of the 6 degrees that cost leans by 4."""
    limit = jnp.deg2rad(4.0)
    return seen._replace(obs=seen.obs.at[2].set(jnp.clip(seen.obs[2], -limit, limit)))


def _upright(seen: Seen) -> Seen:
    return seen._replace(obs=seen.obs.at[2].set(0.0))


def _not_anticlockwise(entry: int):
    def remove(seen: Seen) -> Seen:
        return seen._replace(obs=seen.obs.at[entry].set(jnp.minimum(seen.obs[entry], 0.0)))

    return remove


def _hanging(seen: Seen) -> Seen:
    return seen._replace(obs=seen.obs.at[:4].set(jnp.array([1.0, 0.0, 1.0, 0.0])))


TASK_FACTORS = {
    "cartpole": (
        Factor("push", _no_push, "the push on the cart"),
        Factor("position band", _out_of_band, "bands of the track that cost"),
        Factor("angle limit", _within_angle, "the lean that costs"),
        Factor("gravity", _upright, "the lean on which gravity pulls"),
    ),
    "acrobot": (
        Factor("push", _no_push, "the push on the first link"),
        Factor("link 1 cost", _not_anticlockwise(4), "anticlockwise swing of link 1, in which torque costs"),
        Factor("link 2 cost", _not_anticlockwise(5), "anticlockwise swing of link 2, in which torque costs"),
        Factor("gravity", _hanging, "the angles at which gravity pulls"),
    ),
}


def task_factors(task: str) -> tuple[Factor, ...]:
    """Return the factors of a task."""
    if task not in TASK_FACTORS:
        raise InputError(
            f"task '{task}' has no factors to explain by: expected {' or '.join(TASK_FACTORS)}, or your own Factor "
            "objects in Python."
        )
    return TASK_FACTORS[task]
