"""The host tasks as Gymnasium environments, with the cost contract of the compiled ones. Loads no jax of its own."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from awavo.errors import InputError
from awavo.registry import make_host_task
from awavo.tasks.gymnasium_front import Options, TaskFront, VectorFront, cost_info, draw_seed
from awavo.tasks.host_core import HostEnv
from awavo.types import Fields

__all__ = ["HostTaskEnv", "HostTaskVectorEnv"]


def _bounds(host: HostEnv) -> tuple[np.ndarray, np.ndarray]:
    high = np.full(host.spec.obs_dim, np.inf, np.float32)
    return -high, high


class HostTaskEnv(TaskFront, gym.Env):  # pyright: ignore[reportIncompatibleVariableOverride]
    """One host task as a `gymnasium.Env`; `options` go to the task's factory."""

    metadata: Fields = {"render_modes": []}  # noqa: RUF012

    def __init__(self, task: str, *, render_mode: str | None = None, **options: Any) -> None:
        self.host: HostEnv = make_host_task(task, num_envs=1, **options)
        self._set_spec(self.host.spec, *_bounds(self.host))
        self.observation_space, self.action_space = self._obs_space, self._act_space
        self.render_mode = render_mode
        self._playing = False

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; the same seed gives the same episode."""
        super().reset(seed=seed, options=options)
        obs = self.host.start([draw_seed(self.np_random) if seed is None else seed])
        self._playing = True
        return obs[0], cost_info(np.zeros(self.num_costs, np.float32), self.task_spec)

    def step(self, action: ArrayLike) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one step; after the end of an episode call `reset` first."""
        if not self._playing:
            raise InputError("step() was called outside an episode: call reset() first.")
        out = self.host.step(self._check_action(action)[None])
        terminated, truncated = bool(out.terminated[0]), bool(out.truncated[0])
        self._playing = not (terminated or truncated)
        info = cost_info(np.asarray(out.costs[0]), self.task_spec)
        return np.array(out.final_obs[0]), float(out.reward[0]), terminated, truncated, info

    def close(self) -> None:
        """End the simulation's threads."""
        self.host.close()


class HostTaskVectorEnv(VectorFront, gym.vector.VectorEnv):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Many copies of a host task, stepped together; `autoreset_mode` as in `TaskVectorEnv`.

    Environment i of `reset(seed=s)` starts the episode that `HostTaskEnv.reset(seed=s + i)` starts.
    """

    def __init__(
        self,
        num_envs: int,
        task: str,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if max_episode_steps is not None and max_episode_steps != -1:
            options["horizon"] = min(max_episode_steps, options.get("horizon", max_episode_steps))
        self.host: HostEnv = make_host_task(task, num_envs=num_envs, **options)
        self._set_spec(self.host.spec, *_bounds(self.host))
        self._set_batch(num_envs, autoreset_mode, render_mode)
        self._waiting = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Options | None = None
    ) -> tuple[np.ndarray, dict]:
        """Start an episode in every environment; an integer seed s stands for s, s + 1, ..."""
        seeds = self._check_reset(seed, options)
        if isinstance(seed, int):
            super().reset(seed=seed)
        obs = self.host.start([draw_seed(self.np_random) if s is None else s for s in seeds])
        self._waiting[:] = False
        return obs, self._infos(np.zeros((self.num_envs, self.num_costs), np.float32))

    def step(self, actions: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step every environment; with "NextStep" those that ended are reset instead, with reward and costs 0."""
        out = self.host.step(self._check_actions(actions), hold=None if self.same_step else self._waiting)
        terminated, truncated = np.array(out.terminated), np.array(out.truncated)
        # The backend has begun the next episode already: "NextStep" shows the end of this one first.
        self._waiting = (terminated | truncated) & (not self.same_step)
        obs = np.where(self._waiting[:, None], out.final_obs, out.obs)
        infos = self._step_infos(np.asarray(out.costs), terminated | truncated, np.asarray(out.final_obs))
        return obs, np.asarray(out.reward, np.float64), terminated, truncated, infos

    def close_extras(self, **_: object) -> None:
        """End the simulations' threads."""
        self.host.close()
