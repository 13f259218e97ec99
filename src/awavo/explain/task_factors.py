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
from awavo.tasks.cartpole import BANDS, CartPoleParams
from awavo.types import FieldsView

__all__ = ["Seen", "TASK_PUSHES", "task_factors"]

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


def _within_angle(limit: float):
    """A pole that leans by more than two thirds of what costs leans by that."""

    def remove(seen: Seen) -> Seen:
        return seen._replace(obs=seen.obs.at[2].set(jnp.clip(seen.obs[2], -2 * limit / 3, 2 * limit / 3)))

    return remove


def _upright(seen: Seen) -> Seen:
    return seen._replace(obs=seen.obs.at[2].set(0.0))


def _not_turning(entry: int, sign: float):
    """A link that swings the way in which torque costs stands still."""

    def remove(seen: Seen) -> Seen:
        return seen._replace(obs=seen.obs.at[entry].set(sign * jnp.minimum(sign * seen.obs[entry], 0.0)))

    return remove


def _hanging(seen: Seen) -> Seen:
    return seen._replace(obs=seen.obs.at[:4].set(jnp.array([1.0, 0.0, 1.0, 0.0])))


def _cartpole(options: FieldsView) -> tuple[Factor, ...]:
    angle = float(options.get("cost_angle", CartPoleParams._field_defaults["cost_angle"]))
    return (
        Factor("push", _no_push, "the push on the cart"),
        Factor("position band", _out_of_band, "bands of the track that cost"),
        Factor("angle limit", _within_angle(angle), "the lean that costs"),
        Factor("gravity", _upright, "the lean on which gravity pulls"),
    )


def _acrobot(options: FieldsView) -> tuple[Factor, ...]:
    sign, way = (-1.0, "clockwise") if options.get("gate") == "lineage" else (1.0, "anticlockwise")
    return (
        Factor("push", _no_push, "the push on the first link"),
        Factor("link 1 cost", _not_turning(4, sign), f"{way} swing of link 1, in which torque costs"),
        Factor("link 2 cost", _not_turning(5, sign), f"{way} swing of link 2, in which torque costs"),
        Factor("gravity", _hanging, "the angles at which gravity pulls"),
    )


TASK_FACTORS = {"cartpole": _cartpole, "acrobot": _acrobot}


def task_factors(task: str, options: FieldsView | None = None) -> tuple[Factor, ...]:
    """Return the factors of a task with these options."""
    if task not in TASK_FACTORS:
        raise InputError(
            f"task '{task}' has no factors to explain by: expected {' or '.join(TASK_FACTORS)}, or your own Factor "
            "objects in Python."
        )
    return TASK_FACTORS[task](options or {})
