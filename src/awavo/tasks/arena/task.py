"""The navigation tasks as host tasks: rules, layouts and senses of all environments at once around the physics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from awavo.checks import check_choice, check_limits
from awavo.errors import InputError
from awavo.tasks.arena.layouts import Numbers, Places, draw_layout, draw_place
from awavo.tasks.arena.models import AGENTS, Scene
from awavo.tasks.arena.physics import Bodies, Physics
from awavo.tasks.arena.picture import Stage
from awavo.tasks.arena.rules import LATER, World, pay, penalise, towards
from awavo.tasks.arena.senses import BINS, OWN, lidars, own_motion, rotation
from awavo.tasks.arena.settings import ARENAS, LARGEST_REWARD, Arena, Things, box_of, things_of
from awavo.tasks.host_core import HostEnv, HostStep
from awavo.types import Box, EnvSpec

__all__ = ["ArenaBackend", "arena_task"]

FREE, SOLID = ("vases", "box", "gremlins"), ("buttons", "pillars")
SINK = 4e-5  # how deep a vase stands in the floor
COSTS = ("sum", "each")


class ArenaBackend:
    """E copies of one task. Layouts, headings and goals are those that Safety-Gymnasium draws from equal seeds."""

    def __init__(self, agent: str, arena: Arena, num_envs: int, horizon: int, each: bool, threads: int):
        self.agent, self.arena, self._horizon, self._each = agent, arena, horizon, each
        self.things = things = {thing.name: thing for thing in things_of(arena, agent)}
        free = next((things[name] for name in FREE if name in things), Things("none", 0, 0.0))
        solid = next((things[name] for name in SOLID if name in things), Things("none", 0, 0.0))
        self._free, self._solid = free, solid
        scene = Scene(free_half=free.size or 0.1, pulled=free.name == "gremlins", solid=solid.name)
        if free.name == "box":
            scene = scene._replace(posts=True, free_density=box_of(agent)[1])
        self.physics = Physics(agent, scene, free.num, solid.num, threads)
        self.seconds, self.model = self.physics.seconds, self.physics.model
        self._places, self._rows = _places(arena, agent)
        self._numbers = [Numbers(0)] * num_envs
        self._unused = np.zeros(num_envs, np.int64)  # numbers that Safety-Gymnasium has drawn since, one a step
        nq, nv = self.model.nq, self.model.nv
        self.bodies = Bodies(
            np.zeros((num_envs, nq)), np.zeros((num_envs, nv)), np.zeros((num_envs, free.num, 7)),
            np.zeros((num_envs, free.num, 6)), np.zeros(num_envs, np.int64),
        )  # fmt: skip
        self.world = World(
            {name: np.zeros((num_envs, thing.num, 2)) for name, thing in things.items()},
            np.zeros((num_envs, free.num, 4)), np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64),
            np.zeros((num_envs, 2)),
        )  # fmt: skip
        self._solid_height = {"buttons": 0.1, "pillars": 0.5}.get(solid.name, 0.0)
        self._kinds = np.repeat(np.arange(len(arena.lidars)), [things[name].num for name in arena.lidars])
        self.obs_dim = OWN[agent] + BINS * len(arena.lidars)
        self._seen = np.zeros((num_envs, self.obs_dim), np.float32)  # what was observed last
        self._stage: Stage | None = None

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        return self.restart(np.arange(len(seeds)), seeds)

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        for i, seed in zip(which, seeds, strict=True):
            self._numbers[i], self._unused[i] = Numbers(seed), 0
        seen = self._start(which)
        self._seen[which] = seen
        return seen.copy()

    def step(self, action: Float[np.ndarray, "E a"], hold: Bool[np.ndarray, " E"] | None = None) -> HostStep:
        """Step every agent, but for those on `hold`, which stay where they are and earn and cost nothing."""
        if hold is None or not hold.any():
            out = self._step(np.arange(len(action)), action)
        else:
            which, no = np.flatnonzero(~hold), np.zeros(len(action), bool)
            columns = len(self.arena.costs) if self._each else 1
            costs = np.zeros((len(action), columns), np.float32)
            out = HostStep(self._seen.copy(), costs[:, 0].copy(), costs, no, no.copy(), self._seen.copy())
            moved = self._step(which, action[which])
            for name in ("obs", "reward", "costs", "terminated", "truncated", "final_obs"):
                getattr(out, name)[which] = getattr(moved, name)
        self._seen = out.obs.copy()
        return out

    def _step(self, which: Int[np.ndarray, " n"], action: Float[np.ndarray, "n a"]) -> HostStep:
        before = Bodies(*(part[which] for part in self.bodies))
        world = self.world.some(which)
        gremlins = world.places.get("gremlins", before.pose[..., :2])
        after, touch = self.physics.advance(
            before, action.astype(np.float64), self._solids(world), gremlins, world.turned
        )
        failed = touch.failed
        for part, earlier in zip(after[:4], before[:4], strict=True):
            part[failed] = earlier[failed]  # a simulation that is lost stays where it was
        touch.acceleration[failed] = 0.0
        for part, new in zip(self.bodies, after, strict=True):
            part[which] = new
        self._unused[which] += 1
        reward, met, world = pay(self.arena, self.things, self._heights(), after, touch, world)
        terms = penalise(self.arena, self.things, after, touch, world)
        world = world._replace(timer=np.maximum(world.timer - 1, 0))
        self.world.write(which, world)
        terminated, met = np.zeros(len(which), bool), np.flatnonzero(met & ~failed)
        if len(met):
            terminated[met] = self._renew(which[met])
        truncated = ((after.steps >= self._horizon) | failed) & ~terminated
        seen = self._observe(which, touch.acceleration)
        reward = np.where(failed, -LARGEST_REWARD, np.clip(reward, -LARGEST_REWARD, LARGEST_REWARD))
        terms |= failed[:, None]
        costs = terms if self._each else terms.max(1, keepdims=True)
        obs, over = seen.copy(), np.flatnonzero(terminated | truncated)
        if len(over):
            obs[over] = self._start(which[over])
        return HostStep(obs, reward.astype(np.float32), costs.astype(np.float32), terminated, truncated, seen)

    def picture(self) -> UInt8[np.ndarray, "h w 3"]:
        """The first arena as it is now."""
        if self._stage is None:
            self._stage = Stage(self.agent, self.arena, self.things)
        bodies = Bodies(*(part[0] for part in self.bodies))
        return self._stage.paint(bodies, {name: places[0] for name, places in self.world.places.items()})

    def close(self) -> None:
        """End the threads, and free what drew."""
        self.physics.close()
        if self._stage is not None:
            self._stage.close()

    def _start(self, which: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """Begin an episode in some of the environments; returns what they observe."""
        bodies, world, height = self.bodies, self.world, AGENTS[self.agent].height
        for part in bodies:
            part[which] = 0
        for i in which:
            numbers = self._caught_up(i)
            placed = draw_layout(numbers, self._places)
            place, heading = placed.xy[0], placed.angles[0]
            if self.agent == "point":
                bodies.qpos[i] = *place, heading
            else:
                bodies.qpos[i, :7] = *place, height, np.cos(heading / 2), 0, 0, np.sin(heading / 2)
                bodies.qpos[i, 9] = 1.0
            for name, rows in self._rows.items():
                world.places[name][i] = placed.xy[rows]
            if self._free.num:
                rows = self._rows[self._free.name]
                bodies.pose[i, :, :2] = placed.xy[rows]
                bodies.pose[i, :, 2] = self._free.size - (SINK if self._free.name == "vases" else 0.0)
                angles = placed.angles[rows] / 2
                bodies.pose[i, :, 3], bodies.pose[i, :, 6] = np.cos(angles), np.sin(angles)
                world.turned[i] = bodies.pose[i, :, 3:]
        self._renew(which)
        world.timer[which] = 0  # only a button that was pressed hides them
        return self._observe(which, self.physics.rest(bodies.qpos[which]))

    def _renew(self, which: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Draw new goals, or buttons to press; returns where a goal finds no place."""
        stuck, world = np.zeros(len(which), bool), self.world
        if self.arena.kind == "circle":
            return stuck
        for row, i in enumerate(which):
            numbers = self._caught_up(i)
            if self.arena.kind == "button":
                world.button[i], world.timer[i] = button, _ = numbers.choose(self._solid.num), LATER
                world.places["goal"][i, 0] = world.places["buttons"][i, button]
            else:
                place = self._free_place(i, numbers)
                stuck[row] = place is None
                world.places["goal"][i, 0] = world.places["goal"][i, 0] if place is None else place
        some = Bodies(*(part[which] for part in self.bodies))
        world.last[which] = towards(self.arena, self._heights(), some, world.some(which))
        return stuck

    def _free_place(self, i: int, numbers: Numbers) -> Float[np.ndarray, " 2"] | None:
        """A place for the goal that keeps its distance from everything as it stands now."""
        xy = np.empty((len(self._places.low), 2))
        xy[0] = self.bodies.qpos[i, :2]
        for name, rows in self._rows.items():
            moved = name == self._free.name
            xy[rows] = self.bodies.pose[i, :, :2] if moved else self.world.places[name][i]
        goal = int(self._rows["goal"][0])
        others = np.array([j for j in range(len(xy)) if j != goal])
        return draw_place(numbers, self._places, goal, xy, others)

    def _caught_up(self, i: int) -> Numbers:
        self._numbers[i].skip(int(self._unused[i]))
        self._unused[i] = 0
        return self._numbers[i]

    def _solids(self, world: World) -> Float[np.ndarray, "n S 3"]:
        xy = world.places.get(self._solid.name, np.zeros((len(world.timer), 0, 2)))
        return np.concatenate([xy, np.full((*xy.shape[:2], 1), self._solid_height)], 2)

    def _heights(self) -> tuple[float, float]:
        """Of the agent, where it has no joint for it, and of the middle of the goal."""
        size = self.things["goal"].size if "goal" in self.things else 0.0
        return AGENTS[self.agent].height, size / 2 + 0.01

    def _observe(
        self, which: Int[np.ndarray, " n"], acceleration: Float[np.ndarray, "n 3"]
    ) -> Float[np.ndarray, "n d"]:
        qpos, qvel = self.bodies.qpos[which], self.bodies.qvel[which]
        turned = rotation(self.agent, qpos)
        groups = []
        for name in self.arena.lidars:
            moved = name == self._free.name
            groups.append(self.bodies.pose[which, :, :2] if moved else self.world.places[name][which])
        away = np.concatenate(groups, 1) - qpos[:, None, :2]
        lift = -(qpos[:, 2] if self.agent == "car" else np.full(len(qpos), AGENTS["point"].height))
        ego = away @ turned[:, :2, :2] + (lift[:, None] * turned[:, 2, :2])[:, None]
        seen = lidars(ego, self._kinds, len(self.arena.lidars), self.arena.sight)
        if self.arena.kind == "button":  # buttons are hidden while a new one is chosen
            seen[:, :BINS] *= (self.world.timer[which] == 0)[:, None]
        own = own_motion(self.agent, qpos, qvel, acceleration, turned)
        return np.concatenate([own, seen], 1).astype(np.float32)


def _places(arena: Arena, agent: str) -> tuple[Places, dict[str, np.ndarray]]:
    """Squares to place agent and things in, and which rows are whose."""
    extents, keepouts, rows = [arena.agent_extent or arena.extent], [arena.agent_keepout], {}
    for thing in things_of(arena, agent):
        rows[thing.name] = np.arange(len(extents), len(extents) + thing.num)
        fixed = arena.kind == "circle"  # circle and walls stand where they stand, but numbers are drawn for them
        extents += [1e-9 if fixed else arena.extent] * thing.num
        keepouts += [thing.keepout] * thing.num
    extent, keepout = np.array(extents), np.array(keepouts)
    return Places(-extent + keepout, extent - keepout, keepout), rows


def arena_task(
    agent: str,
    name: str,
    /,
    *,
    num_envs: int = 4,
    cost_limits: Sequence[float] = (25.0,),
    horizon: int = 1000,
    costs: str = "sum",
    threads: int = 0,
) -> HostEnv:
    """Build `num_envs` copies of a navigation task on C MuJoCo; `threads=0` is one a core.

    Args:
        agent: "point" or "car".
        name: Name of the arena.
        num_envs: Number of copies.
        cost_limits: Limit on the episode's total of each cost.
        horizon: Steps of an episode.
        costs: "sum", one cost that is 1 on every step at which any of Safety-Gymnasium's costs is; or "each" of them.
        threads: Threads that step the physics.
    """
    check_choice("costs", costs, COSTS)
    if num_envs < 1:
        raise InputError(f"num_envs={num_envs} must be >= 1.")
    arena = ARENAS[name]
    names = arena.costs if costs == "each" else ("sum",)
    limits = check_limits(cost_limits, names)
    backend = ArenaBackend(agent, arena, num_envs, horizon, costs == "each", threads)
    spec = EnvSpec(f"{agent}-{name}", backend.obs_dim, Box((-1.0, -1.0), (1.0, 1.0)), horizon, names, limits)
    return HostEnv(spec, num_envs, backend)


point_goal1 = partial(arena_task, "point", "goal1")
point_goal2 = partial(arena_task, "point", "goal2")
point_button1 = partial(arena_task, "point", "button1")
point_button2 = partial(arena_task, "point", "button2")
point_push1 = partial(arena_task, "point", "push1")
point_push2 = partial(arena_task, "point", "push2")
point_circle1 = partial(arena_task, "point", "circle1", horizon=500)
point_circle2 = partial(arena_task, "point", "circle2", horizon=500)
car_goal1 = partial(arena_task, "car", "goal1")
car_goal2 = partial(arena_task, "car", "goal2")
car_button1 = partial(arena_task, "car", "button1")
car_button2 = partial(arena_task, "car", "button2")
car_push1 = partial(arena_task, "car", "push1")
car_push2 = partial(arena_task, "car", "push2")
car_circle1 = partial(arena_task, "car", "circle1", horizon=500)
car_circle2 = partial(arena_task, "car", "circle2", horizon=500)
