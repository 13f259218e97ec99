r"""The rules of GUARD's goal task, for robots in the plane and in space.

Robot, goal and hazards are placed one after the other, uniformly in :math:`[-(a-k), a-k]^2` with every pair at least
:math:`2k` apart in the plane (arena a = 2, keepout k = 0.4). With the distance d to the goal (radius 0.5) and the
distances :math:`d_h` to the hazards (radius 0.3), all measured from the robot's centre, a step earns and costs

.. math::  r = \mathrm{clip}(d^- - d, \pm 10) + [d \le 0.5], \qquad g = \sum_h (0.3 - d_h)_+ .

A goal that is reached moves to a new place, away from the hazards and from the robot, and d restarts there. In space
goals and hazards have heights uniform in [0.5, 1.5]; the goal's is kept for the whole episode. Where no place for a new
goal is found the episode terminates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from awavo.checks import check_size
from awavo.errors import InputError

__all__ = ["GoalParams", "GoalScore", "GoalState", "Layout", "check_layout", "draw_goal", "sample_layout", "score"]

# Places tried for an object before the layout starts again, layouts tried, places tried for a new goal (in chunks).
OBJECT_TRIES = 100
LAYOUT_RESTARTS = 10_000
GOAL_TRIES = 10_000
CHUNK = 64
MAX_SHAPED = 10.0  # GUARD's clip of the reward for coming nearer


class GoalParams(NamedTuple):
    """Sizes of the task; vmap over a batch of them to randomise."""

    arena: float = 2.0
    keepout: float = 0.4
    goal_radius: float = 0.5
    hazard_radius: float = 0.3
    height_low: float = 0.5
    height_high: float = 1.5


class Layout(NamedTuple):
    """Where an episode takes place; in the plane the heights are 0."""

    start: Float[Array, " 2"]
    yaw: Float[Array, ""]
    goal: Float[Array, " 3"]
    hazards: Float[Array, "H 3"]


class GoalState(NamedTuple):
    """The part of an episode's state that belongs to the task: the layout and the distance d^- to the goal."""

    layout: Layout
    distance: Float[Array, ""]


class GoalScore(NamedTuple):
    """What a step earned and cost, and whether it ended the episode."""

    reward: Float[Array, ""]
    cost: Float[Array, ""]
    reached: Bool[Array, ""]
    stuck: Bool[Array, ""]


def _place(candidates: Float[Array, "n t 2"], spacing: Float[Array, ""]) -> tuple[Float[Array, "n 2"], Array]:
    """Give each object in turn its first candidate at least `spacing` from those before it."""
    num, _, _ = candidates.shape
    far = jnp.full((num, 2), 1e6)

    def put(placed, item):
        # Places not yet taken lie far away: they are never too near.
        index, options = item
        gaps = jnp.linalg.norm(options[:, None] - placed, axis=-1)
        fits = jnp.all(gaps >= spacing, -1)
        return placed.at[index].set(options[jnp.argmax(fits)]), jnp.any(fits)

    placed, fitted = jax.lax.scan(put, far, (jnp.arange(num), candidates))
    return placed, jnp.all(fitted)


def sample_layout(key: Array, params: GoalParams, num_hazards: int, three_d: bool) -> Layout:
    """Draw a layout by rejection: 100 tries for each object, then the whole layout again."""
    place_key, yaw_key, height_key = jax.random.split(key, 3)
    half = params.arena - params.keepout

    def attempt(carry):
        count, _, _ = carry
        shape = (num_hazards + 2, OBJECT_TRIES, 2)
        drawn = jax.random.uniform(jax.random.fold_in(place_key, count), shape, minval=-half, maxval=half)
        placed, fits = _place(drawn, jnp.asarray(2 * params.keepout))
        return count + 1, placed, fits

    start = (jnp.int32(0), jnp.zeros((num_hazards + 2, 2)), jnp.zeros((), bool))
    _, placed, _ = jax.lax.while_loop(lambda c: ~c[2] & (c[0] < LAYOUT_RESTARTS), attempt, start)
    heights = jnp.zeros((num_hazards + 1, 1))
    if three_d:
        heights = jax.random.uniform(height_key, heights.shape, minval=params.height_low, maxval=params.height_high)
    objects = jnp.concatenate([placed[1:], heights], 1)
    yaw = jax.random.uniform(yaw_key, maxval=2 * jnp.pi)
    return Layout(placed[0], yaw, objects[0], objects[1:])


def draw_goal(
    key: Array, needed: Bool[Array, ""], hazards: Float[Array, "H 3"], robot: Float[Array, " 2"], params: GoalParams
) -> tuple[Float[Array, " 2"], Bool[Array, ""]]:
    """Draw a new place for the goal if one is needed: at least two keepouts from hazards and robot.

    A loop, so that a batch in which no robot reached its goal draws nothing.
    """
    half, spacing = params.arena - params.keepout, 2 * params.keepout
    # The old goal may be near: only hazards and robot keep the new one away.
    taken = jnp.concatenate([hazards[:, :2], robot[None]])

    def attempt(carry):
        count, _, _ = carry
        drawn = jax.random.uniform(jax.random.fold_in(key, count), (CHUNK, 2), minval=-half, maxval=half)
        fits = jnp.all(jnp.linalg.norm(drawn[:, None] - taken, axis=-1) >= spacing, -1)
        return count + 1, drawn[jnp.argmax(fits)], jnp.any(fits)

    start = (jnp.int32(0), jnp.zeros(2), ~needed)
    _, place, found = jax.lax.while_loop(lambda c: ~c[2] & (c[0] < GOAL_TRIES // CHUNK), attempt, start)
    return place, found


def score(
    key: Array, state: GoalState, position: Float[Array, " 3"], params: GoalParams, three_d: bool
) -> tuple[GoalState, GoalScore]:
    """Reward and cost of having come to `position`, and the goal's next place if it was reached."""
    layout, dims = state.layout, 3 if three_d else 2

    def gap(place):
        return jnp.linalg.norm((place - position)[..., :dims], axis=-1)

    distance = gap(layout.goal)
    reached = distance <= params.goal_radius
    reward = jnp.clip(state.distance - distance, -MAX_SHAPED, MAX_SHAPED) + reached
    cost = jnp.sum(jnp.maximum(params.hazard_radius - gap(layout.hazards), 0.0))
    place, found = draw_goal(key, reached, layout.hazards, position[:2], params)
    goal = jnp.where(reached, layout.goal.at[:2].set(place), layout.goal)
    state = GoalState(layout._replace(goal=goal), gap(goal))
    return state, GoalScore(reward, cost, reached, reached & ~found)


def check_layout(params: GoalParams, num_hazards: int) -> None:
    """Refuse sizes for which layouts, or new goals, can (almost) never be placed, by trying on the host."""
    for name, value in params._asdict().items():
        check_size(name, value)
    if num_hazards < 0:
        raise InputError(f"num_hazards={num_hazards} must be >= 0.")
    if params.keepout >= params.arena:
        raise InputError(f"keepout={params.keepout} must be below arena={params.arena}: nothing could be placed.")
    if params.height_low > params.height_high:
        raise InputError(f"height_low={params.height_low} must not be above height_high={params.height_high}.")
    if params.hazard_radius > 2 * params.keepout or params.goal_radius >= 2 * params.keepout:
        raise InputError(
            f"hazard_radius={params.hazard_radius} and goal_radius={params.goal_radius} must stay within two keepouts "
            f"({2 * params.keepout}): an episode must not start in a hazard or in its goal."
        )
    # A tenth of the tries must work: layouts restart until one fits, and in a batch all wait for the slowest.
    worked = _count_layouts(num_hazards, params.arena - params.keepout, 2 * params.keepout)
    if worked < 4:
        raise InputError(
            f"{num_hazards} hazards with keepout={params.keepout} find no place in arena={params.arena} "
            f"({worked} of 40 layouts worked): use fewer hazards, a smaller keepout or a larger arena."
        )


@lru_cache(maxsize=64)
def _count_layouts(num_hazards: int, half: float, spacing: float) -> int:
    """How many of 40 layouts can be placed."""
    rng = np.random.default_rng(0)
    return sum(_try_layout(rng, num_hazards, half, spacing) for _ in range(40))


def _try_layout(rng: np.random.Generator, num_hazards: int, half: float, spacing: float) -> bool:
    """Try once to place the robot, the goal, the hazards, and one more goal (which has more tries)."""
    placed = np.full((0, 2), np.inf)
    for tries in [OBJECT_TRIES] * (num_hazards + 2) + [GOAL_TRIES]:
        drawn = rng.uniform(-half, half, (tries, 2))
        fits = np.all(np.linalg.norm(drawn[:, None] - placed, axis=-1) >= spacing, -1)
        if not fits.any():
            return False
        placed = np.concatenate([placed, drawn[[int(np.argmax(fits))]]])
    return True
