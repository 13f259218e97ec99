r"""Rewards and costs of the navigation tasks, for all environments at once.

.. code-block:: text

    goal    r = d - d'  (+ 1 at the goal: d' <= 0.3)                     d: agent to goal, seen from above
    button  r = d - d'  (+ 1 while the right button is touched)          d: agent to button, seen from above
    push    r = a - a' + b - b'  (+ 1 at the goal: b' <= 0.3)            a: agent to box, b: box to goal, in space
    circle  r = 0.1 (x v_y - y v_x) / rho / (1 + |rho - 1.5|)            rho: distance from the centre

    a step costs 1 in a hazard, while a vase is touched or moves, while a gremlin, pillar or wrong button is touched,
    or beyond a wall: whichever of these the task counts. The sum of a step is 0 or 1, never more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from awavo.tasks.arena.physics import Bodies, Touch
from awavo.tasks.arena.settings import Arena, Things

__all__ = ["LATER", "World", "pay", "penalise", "towards"]

LATER = 10  # steps for which buttons are out of sight, and wrong ones free, after one was pressed
MOVING = 1e-4  # m/s: a vase that is as fast as this costs


class World(NamedTuple):
    """What stands in E arenas, and how far the rules have come there."""

    places: dict[str, np.ndarray]  # of each kind of thing, [E, n, 2]; of gremlins, the centres of their circles
    turned: Float[np.ndarray, "E F 4"]  # how free things stood at the start
    button: Int[np.ndarray, " E"]  # to press
    timer: Int[np.ndarray, " E"]
    last: Float[np.ndarray, "E 2"]  # distances at the last step

    def some(self, which: Int[np.ndarray, " n"]) -> World:
        """Copies of some of them."""
        places = {name: xy[which] for name, xy in self.places.items()}
        return World(places, self.turned[which], self.button[which], self.timer[which], self.last[which])

    def write(self, which: Int[np.ndarray, " n"], some: World) -> None:
        """Write the timers and distances of some of them back."""
        self.timer[which], self.last[which] = some.timer, some.last


def towards(arena: Arena, heights: tuple[float, float], bodies: Bodies, world: World) -> Float[np.ndarray, "E 2"]:
    """The distances that pay for becoming smaller; the second is 0 where there is one."""
    away = np.zeros((len(world.timer), 2))
    agent, goal = bodies.qpos[:, :2], world.places["goal"][:, 0]
    if arena.kind != "push":
        away[:, 0] = np.sqrt(np.square(goal - agent).sum(1))
        return away
    box, height, car = bodies.pose[:, 0, :3], heights[0], bodies.qpos.shape[1] > 3
    lifted = bodies.qpos[:, 2] if car else height
    away[:, 0] = np.sqrt(np.square(box[:, :2] - agent).sum(1) + np.square(box[:, 2] - lifted))
    away[:, 1] = np.sqrt(np.square(box[:, :2] - goal).sum(1) + np.square(box[:, 2] - heights[1]))
    return away


def pay(
    arena: Arena, things: dict[str, Things], heights: tuple[float, float], bodies: Bodies, touch: Touch, world: World
) -> tuple[Float[np.ndarray, " E"], Bool[np.ndarray, " E"], World]:
    """Rewards, where the goal is met, and the world with the new distances."""
    num = len(world.timer)
    if arena.kind == "circle":
        (x, y), (vx, vy) = bodies.qpos[:, :2].T, bodies.qvel[:, :2].T
        rho = np.sqrt(x * x + y * y)
        reward = 0.1 * ((x * vy - y * vx) / rho) / (1 + np.abs(rho - things["circle"].size))
        return reward, np.zeros(num, bool), world
    away = towards(arena, heights, bodies, world)
    if arena.kind == "button":
        met = touch.solid[np.arange(num), world.button]
    else:
        met = away[:, 0 if arena.kind == "goal" else 1] <= things["goal"].size
    return (world.last - away).sum(1) + met, met, world._replace(last=away)


def penalise(
    arena: Arena, things: dict[str, Things], bodies: Bodies, touch: Touch, world: World
) -> Bool[np.ndarray, "E C"]:
    """Which of the task's costs a step pays, in the order of `arena.costs`."""
    agent, terms = bodies.qpos[:, :2], []
    for name in arena.costs:
        if name == "hazards":
            away = np.sqrt(np.square(world.places["hazards"] - agent[:, None]).sum(-1))
            terms.append((away < things["hazards"].size).any(1))
        elif name == "vases_velocity":
            terms.append((np.sqrt(np.square(bodies.twist[..., :3]).sum(-1)) >= MOVING).any(1))
        elif name in ("vases_contact", "gremlins"):
            terms.append(touch.free.any(1))
        elif name == "pillars":
            terms.append(touch.solid.any(1))
        elif name == "buttons":
            wrong = touch.solid.copy()
            wrong[np.arange(len(wrong)), world.button] = False
            terms.append(wrong.any(1) & (world.timer == 0))
        else:
            walls = things["walls"]
            terms.append((np.abs(agent[:, : walls.num // 2]) > walls.size).any(1))
    return np.stack(terms, 1)
