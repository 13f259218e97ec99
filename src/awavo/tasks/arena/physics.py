"""Steps of physics for many environments, in which only what can be touched is simulated.

A vase or box that rests, and a gremlin on its track, are not simulated while nothing can reach them within a step: they
stay, or move as a table says. Environments with the same number of awake things share a model and go through
`mujoco.rollout` together, on threads and without Python; a point that can reach nothing needs no MuJoCo at all.

Each rollout has one step more than it needs: the sensors of its first stage are those of the state before it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from awavo.errors import InputError
from awavo.tasks.arena.glide import Glide
from awavo.tasks.arena.gremlins import HEIGHT, Track, targets
from awavo.tasks.arena.models import AGENTS, Scene, build_model
from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["SUBSTEPS", "Bodies", "Physics", "Touch"]

SUBSTEPS = 10
SLACK = 0.01  # metres added to every reach
FLAT = 1e-3  # a free thing that leans less than this (1 - cosine) stands flat
STILL = (1e-5, 1e-4)  # m/s and rad/s: below both a thing rests
ON_TRACK = 1e-4  # metres and m/s: below both a gremlin is on its track


class Bodies(NamedTuple):
    """What moves: E agents with their joints, and F free things of one kind, each a place, a turn and velocities."""

    qpos: Float[np.ndarray, "E q"]
    qvel: Float[np.ndarray, "E v"]
    pose: Float[np.ndarray, "E F 7"]
    twist: Float[np.ndarray, "E F 6"]
    steps: Int[np.ndarray, " E"]  # since the start: gremlins move by the clock


class Touch(NamedTuple):
    """What is felt at the end of a step; `failed` where MuJoCo lost the simulation."""

    acceleration: Float[np.ndarray, "E 3"]
    free: Bool[np.ndarray, "E F"]
    solid: Bool[np.ndarray, "E S"]
    failed: Bool[np.ndarray, " E"]


class _Before(NamedTuple):
    """What a step begins with: bodies, controls, solid things, gremlins' circles and how gremlins stand."""

    bodies: Bodies
    control: Float[np.ndarray, "E a"]
    solid: Float[np.ndarray, "E S 3"]
    centre: Float[np.ndarray, "E F 2"]
    turned: Float[np.ndarray, "E F 4"]


class _Group(NamedTuple):
    """Environments that share a model: which they are, their awake free things, and whether solid things are in it."""

    which: Int[np.ndarray, " n"]
    slots: Int[np.ndarray, "n k"]
    solids: bool


class _Engine(NamedTuple):
    model: Any
    datas: list[Any]
    state_size: int


class Physics:
    """The physics of one task: an agent, free things that are as `free` says, and solid ones."""

    def __init__(self, agent: str, free: Scene, num_free: int, num_solid: int, threads: int):
        mujoco = load_mujoco("a navigation task")
        from mujoco import rollout

        if threads < 0:
            raise InputError(f"threads={threads} must be >= 0.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._mujoco, self._threads = mujoco, threads or cores
        # With one thread MuJoCo steps on the caller's own.
        self._pool = rollout.Rollout(nthread=self._threads if self._threads > 1 else 0)
        self._agent, self._scene, self._num_solid = agent, free, num_solid
        self._engines: dict[tuple[int, bool], _Engine] = {}
        self.model = self._engine(0, False).model
        self.seconds = self.model.opt.timestep * SUBSTEPS
        self._glide = Glide(self.model) if agent == "point" else None
        self._track = Track(self.seconds, free) if free.pulled and num_free else None
        flight = AGENTS[agent].speed * self.seconds + SLACK
        half = free.free_half * (1.5 if free.posts else 1.0)
        self._free_reach = np.sqrt(2 * half**2 + free.free_half**2)
        solid_reach = 0.2 if free.solid == "pillars" else 0.1
        self._flat_reach = np.sqrt(2) * half
        self._near_free = AGENTS[agent].reach + flight  # of the thing's own reach
        self._near_solid = AGENTS[agent].reach + solid_reach + flight
        self._solid_reach = solid_reach

    def rest(self, qpos: Float[np.ndarray, "E q"]) -> Float[np.ndarray, "E 3"]:
        """What the accelerometer shows of agents that begin at rest at `qpos`, without control."""
        engine = self._engine(0, False)
        start = np.zeros((len(qpos), engine.state_size))
        start[:, 1 : 1 + qpos.shape[1]] = qpos
        _, felt = self._roll(engine, start, np.zeros((len(qpos), 1, engine.model.nu)))
        return felt[:, 0, :3].copy()

    def on_track(
        self, centre: Float[np.ndarray, "E F 2"], steps: Int[np.ndarray, " E"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where undisturbed gremlins are after `steps` steps, and how fast they move there."""
        assert self._track is not None
        offset, speed = self._track.at(steps)
        place = np.concatenate(
            [centre + offset[:, None, :2], np.broadcast_to(offset[:, None, 2:], (*centre.shape[:2], 1))], 2
        )
        return place, np.broadcast_to(speed[:, None], place.shape)

    def advance(
        self,
        bodies: Bodies,
        control: Float[np.ndarray, "E a"],
        solid: Float[np.ndarray, "E S 3"],
        centre: Float[np.ndarray, "E F 2"],
        turned: Float[np.ndarray, "E F 4"],
    ) -> tuple[Bodies, Touch]:
        """One step of the task. `centre` and `turned` are where gremlins' circles lie and how gremlins stand."""
        num, free = len(control), bodies.pose.shape[1]
        awake, beside = self._who_wakes(bodies, solid, centre)
        qpos, qvel, pose, twist = (part.copy() for part in bodies[:4])
        after = Bodies(qpos, qvel, pose, twist, bodies.steps + 1)
        touch = Touch(
            np.zeros((num, 3)), np.zeros((num, free), bool), np.zeros(solid.shape[:2], bool), np.zeros(num, bool)
        )
        if self._track is not None:
            place, speed = self.on_track(centre, after.steps)
            after.pose[..., :3], after.pose[..., 3:], after.twist[..., :3], after.twist[..., 3:] = (
                place,
                turned,
                speed,
                0.0,
            )
        counts = awake.sum(1)
        groups = 2 * counts + beside
        for group in np.unique(groups):
            which, count, solids = np.flatnonzero(groups == group), int(group) // 2, bool(group % 2)
            if group == 0 and self._glide is not None:
                moved = self._glide.advance(bodies.qpos[which], bodies.qvel[which], control[which], SUBSTEPS)
                after.qpos[which], after.qvel[which], touch.acceleration[which] = moved
            else:
                slots = np.argsort(~awake[which], axis=1, kind="stable")[:, :count]
                before = _Before(bodies, control, solid, centre, turned)
                self._simulate(before, _Group(which, slots, solids), after, touch)
        return after, touch

    def close(self) -> None:
        """End the threads."""
        self._pool.close()

    def _who_wakes(
        self, bodies: Bodies, solid: np.ndarray, centre: np.ndarray
    ) -> tuple[Bool[np.ndarray, "E F"], Bool[np.ndarray, " E"]]:
        """Which free things must be simulated, and where solid ones must be there too."""
        place = bodies.qpos[:, :2]
        at = bodies.pose[..., :2]
        lean = 2 * np.square(bodies.pose[..., 4:6]).sum(-1)
        near = self._near_free + np.where(lean < FLAT, self._flat_reach, self._free_reach)
        close = np.square(at - place[:, None]).sum(-1) < near**2
        beside = (np.square(solid[..., :2] - place[:, None]).sum(-1) < self._near_solid**2).any(1)
        if self._track is None:
            speed, spin = np.abs(bodies.twist[..., :3]).max(-1), np.abs(bodies.twist[..., 3:]).max(-1)
            loose = (speed > STILL[0]) | (spin > STILL[1])
            if self._scene.posts:  # a box starts above where it comes to rest
                loose |= bodies.steps[:, None] == 0
        else:
            wanted, pace = self.on_track(centre, bodies.steps)
            off = np.maximum(np.abs(bodies.pose[..., :3] - wanted), np.abs(bodies.twist[..., :3] - pace)).max(-1)
            loose = off > ON_TRACK
        awake = close | loose
        if awake.any():
            rows = np.flatnonzero(awake.any(1))
            awake[rows], near = self._spread(awake[rows], at[rows], bodies.twist[rows], solid[rows])
            beside[rows] |= near
        return awake, beside

    def _spread(
        self, awake: np.ndarray, at: np.ndarray, twist: np.ndarray, solid: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is awake may be pushed: it wakes its neighbours, and theirs, and needs the solid things beside it."""
        flight = np.maximum(_length(twist[..., :2]), AGENTS[self._agent].speed) * self.seconds + SLACK
        if awake.shape[1] > 1:
            joined = _length(at[:, :, None] - at[:, None]) < 2 * self._free_reach + flight[:, :, None]
            for _ in range(awake.shape[1] - 1):
                wider = awake | (awake[:, :, None] & joined).any(1)
                if (wider == awake).all():
                    break
                awake = wider
        gap = _length(at[:, :, None] - solid[:, None, :, :2]) - flight[:, :, None]
        near = awake[:, :, None] & (gap < self._free_reach + self._solid_reach)
        return awake, near.any((1, 2))

    def _simulate(self, before: _Before, group: _Group, after: Bodies, touch: Touch) -> None:
        """Roll a group out, and write what comes of it."""
        bodies, solid = before.bodies, before.solid
        which, slots, solids = group
        count, rows = slots.shape[1], which[:, None]
        engine = self._engine(count, solids)
        nq, nv = bodies.qpos.shape[1], bodies.qvel.shape[1]
        ends = np.cumsum([1, nq, 7 * count, nv, 6 * count])
        start = np.zeros((len(which), engine.state_size))
        start[:, 0] = bodies.steps[which] * self.seconds
        start[:, ends[0] : ends[1]] = bodies.qpos[which]
        start[:, ends[1] : ends[2]] = bodies.pose[rows, slots].reshape(len(which), -1)
        start[:, ends[2] : ends[3]] = bodies.qvel[which]
        start[:, ends[3] : ends[4]] = bodies.twist[rows, slots].reshape(len(which), -1)
        commands = self._commands(before, group)
        states, felt = self._roll(engine, start, commands)
        end, felt = states[:, SUBSTEPS - 1], felt[:, SUBSTEPS]
        after.qpos[which], after.qvel[which] = end[:, ends[0] : ends[1]], end[:, ends[2] : ends[3]]
        after.pose[rows, slots] = end[:, ends[1] : ends[2]].reshape(len(which), count, 7)
        after.twist[rows, slots] = end[:, ends[3] : ends[4]].reshape(len(which), count, 6)
        touch.acceleration[which] = felt[:, :3]
        found = felt[:, 3:] > 0
        if solids:
            touch.solid[which] = found[:, : solid.shape[1]]
            found = found[:, solid.shape[1] :]
        touch.free[rows, slots] = found
        # MuJoCo starts a simulation anew that diverges: then its clock is wrong.
        late = np.abs(end[:, 0] - start[:, 0] - self.seconds) > 1e-6
        touch.failed[which] = late | ~np.isfinite(end).all(1) | ~np.isfinite(felt).all(1)

    def _commands(self, before: _Before, group: _Group) -> Float[np.ndarray, "n t c"]:
        """Controls and places of mocap bodies for every step of physics."""
        bodies, control, solid, centre, turned = before
        which, slots, solids = group
        num, times = len(which), SUBSTEPS + 1
        places, turns = [], []
        if solids:
            places.append(np.broadcast_to(solid[which][:, None], (num, times, *solid.shape[1:])))
            turns.append(np.broadcast_to([1.0, 0, 0, 0], (num, times, solid.shape[1], 4)))
        if self._track is not None:
            clock = bodies.steps[which][:, None] * self.seconds + self.model.opt.timestep * np.arange(times)
            clock[:, -1] = clock[:, -2]  # the last stage only reads: targets stay where they were
            wanted = targets(clock)
            xy = centre[which[:, None], slots][:, None] + wanted[:, :, None]
            places.append(np.concatenate([xy, np.full((*xy.shape[:3], 1), HEIGHT)], 3))
            turns.append(np.broadcast_to(turned[which[:, None], slots][:, None], (num, times, slots.shape[1], 4)))
        parts = [np.broadcast_to(control[which][:, None], (num, times, control.shape[1]))]
        if places:
            parts += [np.concatenate(p, 2).reshape(num, times, -1) for p in (places, turns)]
        return np.concatenate(parts, 2)

    def _roll(
        self, engine: _Engine, start: np.ndarray, commands: np.ndarray
    ) -> tuple[Float[np.ndarray, "n t s"], Float[np.ndarray, "n t f"]]:
        kinds = self._mujoco.mjtState
        spec = kinds.mjSTATE_CTRL.value | kinds.mjSTATE_MOCAP_POS.value | kinds.mjSTATE_MOCAP_QUAT.value
        num, times = commands.shape[:2]
        states, felt = np.empty((num, times, engine.state_size)), np.empty((num, times, engine.model.nsensordata))
        self._pool.rollout(
            [engine.model] * num, engine.datas, start, np.ascontiguousarray(commands, np.float64), control_spec=spec,
            skip_checks=True, nstep=times, state=states, sensordata=felt,
        )  # fmt: skip
        return states, felt

    def _engine(self, count: int, solids: bool) -> _Engine:
        if (count, solids) not in self._engines:
            mujoco = self._mujoco
            model = _model(self._agent, self._scene._replace(free=count, solids=self._num_solid if solids else 0))
            datas = [mujoco.MjData(model) for _ in range(self._threads)]
            size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
            self._engines[count, solids] = _Engine(model, datas, size)
        return self._engines[count, solids]


def _length(vectors: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n"]:
    return np.hypot(vectors[..., 0], vectors[..., 1])


@lru_cache(64)
def _model(agent: str, scene: Scene) -> Any:
    return build_model(agent, scene)
