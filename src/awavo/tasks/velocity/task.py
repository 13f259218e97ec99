"""The velocity tasks as host tasks: Gymnasium's MuJoCo models, many at once on threads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from jaxtyping import Bool, Float, Int, UInt8

from awavo.checks import check_choice, check_limits
from awavo.tasks.host_core import HostEnv, HostStep
from awavo.tasks.mujoco_drawing import Painter
from awavo.tasks.mujoco_host import StepThreads, load_mujoco
from awavo.tasks.velocity.bodies import BODIES, RULES, Body
from awavo.tasks.velocity.rules import Readings, observe, score
from awavo.types import Box, EnvSpec

__all__ = [
    "VelocityBackend", "ant", "halfcheetah", "hopper", "humanoid", "load_body", "swimmer", "velocity", "walker2d",
]  # fmt: skip

COST_NAMES = ("velocity",)
MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


def load_body(body: Body, rules: str) -> Any:
    """Compile Gymnasium's model. Its warning that a notation of the file is old is nobody's business here."""
    file = body.model_v5 if rules == "v5" and body.model_v5 else body.model
    spec = load_mujoco("a velocity task").MjSpec.from_file(str(MODELS / file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spec.compile()


class VelocityBackend:
    """E simulations of one body. Starts are drawn as Gymnasium draws them: equal seeds, equal episodes.

    What is read after a step is what Gymnasium reads: positions and forces of bodies are not computed anew, and belong
    to the last stage of the integrator.
    """

    def __init__(self, body: Body, rules: str, num_envs: int, horizon: int, threads: int):
        self._mujoco = mujoco = load_mujoco("a velocity task")
        self.body, self.rules, self._horizon = body, rules, horizon
        self.model = model = load_body(body, rules)
        self._extras = body.extras_v4 if rules == "v4" else body.extras_v5
        substeps, feels = body.substeps, "cfrc_ext" in self._extras
        self.seconds = model.opt.timestep * substeps

        def advance(data: Any) -> None:
            mujoco.mj_step(model, data, substeps)
            if feels:  # forces on bodies are computed on request
                mujoco.mj_rnePostConstraint(model, data)

        self._threads = StepThreads(advance, num_envs, threads)
        self.datas = [mujoco.MjData(model) for _ in range(num_envs)]
        moving = {"root": (), "torso": ("xpos",), "mass": ("xipos",)}[body.place]
        # Arrays of MuJoCo's own memory, asked for once: asking takes longer than reading.
        self._arrays = {
            name: [getattr(data, name) for data in self.datas]
            for name in ("qpos", "qvel", "ctrl", *moving, *self._extras)
        }
        self._draws = [seeding.np_random(0)[0]] * num_envs
        self._place = np.zeros((num_envs, 2))
        self._time = np.zeros(num_envs, np.int64)
        self._painter: Painter | None = None

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        self._draws = [seeding.np_random(seed)[0] for seed in seeds]
        return self._start(np.arange(len(seeds)))

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        for i, seed in zip(which, seeds, strict=True):
            self._draws[i] = seeding.np_random(seed)[0]
        return self._start(which)

    def step(self, action: Float[np.ndarray, "E a"], hold: Bool[np.ndarray, " E"] | None = None) -> HostStep:
        """Step every body, but for those on `hold`, which stay where they are and earn and cost nothing."""
        moved = np.ones(len(self.datas), bool) if hold is None else ~hold
        for control, wanted in zip(self._arrays["ctrl"], action, strict=True):
            control[:] = wanted
        self._threads.run(compress(self.datas, moved))
        now = self._read()
        result = score(self.body, self.rules, self._place, now, action, self.seconds)
        self._place, self._time = now.place, self._time + moved
        terminated = result.fell & moved
        truncated = (self._time >= self._horizon) & moved & ~terminated
        final_obs = observe(self.body, self.rules, now)
        obs, over = final_obs.copy(), np.flatnonzero(terminated | truncated)
        if len(over):
            obs[over] = self._start(over)
        reward, cost = ((moved * values).astype(np.float32) for values in (result.reward, result.cost))
        return HostStep(obs, reward, cost[:, None], terminated, truncated, final_obs)

    def picture(self) -> UInt8[np.ndarray, "h w 3"]:
        """The first body as it is now."""
        if self._painter is None:
            self._painter = Painter(self.model)
        return self._painter.paint(self.datas[0])

    def close(self) -> None:
        """End the threads, and free what drew."""
        self._threads.close()
        if self._painter is not None:
            self._painter.close()

    def _start(self, which: np.ndarray) -> Float[np.ndarray, "n d"]:
        """Begin an episode in some of the simulations; returns what they observe."""
        mujoco, model, noise = self._mujoco, self.model, self.body.noise
        for i in which:
            data, draw = self.datas[i], self._draws[i]
            mujoco.mj_resetData(model, data)
            data.qpos[:] = model.qpos0 + draw.uniform(-noise, noise, model.nq)
            normal = self.body.normal_speeds
            data.qvel[:] = noise * draw.standard_normal(model.nv) if normal else draw.uniform(-noise, noise, model.nv)
            mujoco.mj_forward(model, data)
        now = self._read(which)
        self._place[which], self._time[which] = now.place, 0
        return observe(self.body, self.rules, now)

    def _read(self, which: np.ndarray | None = None) -> Readings:
        def rows(name: str) -> np.ndarray:
            arrays = self._arrays[name]
            return np.array(arrays if which is None else [arrays[i] for i in which])

        qpos, masses = rows("qpos"), self.model.body_mass
        if self.body.place == "root":
            place = qpos[:, :2].copy()
        elif self.body.place == "torso":
            place = rows("xpos")[:, 1, :2]
        else:
            place = np.einsum("b,ebj->ej", masses, rows("xipos"))[:, :2] / masses.sum()
        return Readings(qpos, rows("qvel"), place, {name: rows(name) for name in self._extras})


def velocity(
    name: str,
    /,
    *,
    num_envs: int = 4,
    cost_limits: Sequence[float] = (25.0,),
    horizon: int = 1000,
    rules: str = "v4",
    threads: int = 0,
) -> HostEnv:
    """Build `num_envs` copies of a velocity task on C MuJoCo; `threads=0` is one a core.

    `rules` are those of Gymnasium's environments of that version; Safety-Gymnasium's tasks have v4.
    """
    check_choice("rules", rules, RULES)
    limits = check_limits(cost_limits, COST_NAMES)
    backend = VelocityBackend(BODIES[name], rules, num_envs, horizon, threads)
    low, high = (tuple(map(float, ends)) for ends in backend.model.actuator_ctrlrange.astype(np.float32).T)
    obs_dim = backend.reset([0] * num_envs).shape[1]
    return HostEnv(EnvSpec(f"{name}-velocity", obs_dim, Box(low, high), horizon, COST_NAMES, limits), num_envs, backend)


halfcheetah = partial(velocity, "halfcheetah")
hopper = partial(velocity, "hopper")
walker2d = partial(velocity, "walker2d")
ant = partial(velocity, "ant")
swimmer = partial(velocity, "swimmer")
humanoid = partial(velocity, "humanoid")
