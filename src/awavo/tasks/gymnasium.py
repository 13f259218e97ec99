"""The tasks as Gymnasium environments, one at a time or many in one compiled step.

Costs travel in `info` on every step, zeros on reset: `costs` float32 (C,), `cost` their sum, `cost_<name>` each. The
environments truncate themselves after `horizon` steps; `spec.max_episode_steps` shows it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Bool, Float, Key, PyTree
from numpy.typing import ArrayLike

from awavo.errors import InputError
from awavo.registry import make_task
from awavo.tasks.gymnasium_front import Options, TaskFront, VectorFront, cost_info, draw_seed
from awavo.types import Env, Fields, Timestep

__all__ = ["TaskEnv", "TaskVectorEnv", "observation_bounds"]


def observation_bounds(env: Env) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the observation, where the task has any."""
    high = np.full(env.spec.obs_dim, np.inf, np.float32)
    if hasattr(env.params, "transition"):
        return np.zeros_like(high), np.ones_like(high)
    if env.spec.name == "cartpole":
        high[[0, 2]] = 2 * env.params.position_threshold, 2 * env.params.angle_threshold
    elif env.spec.name == "acrobot":
        high = np.array([1, 1, 1, 1, env.params.max_speed_1, env.params.max_speed_2], np.float32)
    return -high, high


def _frozen(options: Options, max_episode_steps: int | None) -> tuple[tuple[str, object], ...]:
    if max_episode_steps is not None and max_episode_steps != -1:
        options = options | {"horizon": min(max_episode_steps, options.get("horizon", max_episode_steps))}
    listed = (list, np.ndarray)
    return tuple(sorted((k, tuple(v) if isinstance(v, listed) else v) for k, v in options.items()))


def _find_task(task: str | Env, max_episode_steps: int | None, options: Options) -> Env:
    return task if isinstance(task, Env) else _shared_task(task, _frozen(options, max_episode_steps))


@functools.lru_cache(maxsize=32)
def _shared_task(name: str, options: tuple[tuple[str, object], ...]) -> Env:
    """One task for all environments made alike, so that they share compiled functions."""
    return make_task(name, **dict(options))


class _Lane(NamedTuple):
    """Carry of one environment: `waiting` marks episodes that end now and start at the next step from `obs`."""

    key: Key[Array, "*E"]
    state: PyTree
    obs: Float[Array, "*E d"]
    waiting: Bool[Array, "*E"]


class TaskEnv(TaskFront, gym.Env):  # pyright: ignore[reportIncompatibleVariableOverride]
    """One task as a `gymnasium.Env`; `options` go to the task's factory (`cost_limits`, `horizon`, physics)."""

    metadata: Fields = {"render_modes": []}  # noqa: RUF012

    def __init__(self, task: str | Env, *, render_mode: str | None = None, **options: Any) -> None:
        self.task = _find_task(task, None, options)
        self._set_spec(self.task.spec, *observation_bounds(self.task))
        self.observation_space, self.action_space = self._obs_space, self._act_space
        self.render_mode = render_mode
        self._reset_fn, self._step_fn = _compiled(_ByIdentity(self.task), batched=False, same_step=True)
        self._lane: _Lane | None = None

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; the same seed gives the same episode."""
        super().reset(seed=seed, options=options)
        self._lane = lane = self._reset_fn(draw_seed(self.np_random))
        return np.array(lane.obs), cost_info(np.zeros(self.num_costs, np.float32), self.task.spec)

    def step(self, action: ArrayLike) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one step; after the end of an episode call `reset` first."""
        if self._lane is None:
            raise InputError("step() was called outside an episode: call reset() first.")
        self._lane, out = self._step_fn(self._lane, self._check_action(action))
        out = jax.device_get(out)
        terminated, truncated = bool(out.terminated), bool(out.truncated)
        if terminated or truncated:
            self._lane = None
        info = cost_info(out.costs, self.task.spec)
        return np.array(out.final_obs), float(out.reward), terminated, truncated, info


class TaskVectorEnv(VectorFront, gym.vector.VectorEnv):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Many copies of a task in one compiled step.

    `autoreset_mode` is Gymnasium's default "NextStep" or "SameStep"; then `final_obs` and `final_info` hold the end of
    each episode, its last costs too, while `costs` belongs to the reset.
    Environment i of `reset(seed=s)` starts the episode that `TaskEnv.reset(seed=s + i)` starts.
    """

    def __init__(
        self,
        num_envs: int,
        task: str | Env,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.task = _find_task(task, max_episode_steps, options)
        self._set_spec(self.task.spec, *observation_bounds(self.task))
        self._set_batch(num_envs, autoreset_mode, render_mode)
        self._reset_fn, self._step_fn = _compiled(_ByIdentity(self.task), batched=True, same_step=self.same_step)
        self._lane: _Lane | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Options | None = None
    ) -> tuple[np.ndarray, dict]:
        """Start an episode in every environment; an integer seed s stands for s, s + 1, ..."""
        seeds = self._check_reset(seed, options)
        if isinstance(seed, int):
            super().reset(seed=seed)
        draws = [draw_seed(self.np_random if s is None else seeding.np_random(s)[0]) for s in seeds]
        self._lane = lane = self._reset_fn(np.array(draws, np.int32))
        return np.array(lane.obs), self._infos(np.zeros((self.num_envs, self.num_costs), np.float32))

    def step(self, actions: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step every environment; with "NextStep" those that ended are reset instead, with reward and costs 0."""
        if self._lane is None:
            raise InputError("step() was called before reset(): call reset() first.")
        self._lane, out = self._step_fn(self._lane, self._check_actions(actions))
        out = jax.device_get(out)
        terminated, truncated = np.array(out.terminated), np.array(out.truncated)
        infos = self._step_infos(out.costs, terminated | truncated, out.final_obs)
        return np.array(out.obs), out.reward.astype(np.float64), terminated, truncated, infos


class _ByIdentity:
    """A task compared by identity: its parameters may be arrays, which have no hash."""

    def __init__(self, env: Env):
        self.env = env

    def __hash__(self) -> int:
        return id(self.env)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.env is other.env


@functools.lru_cache(maxsize=32)
def _compiled(task: _ByIdentity, batched: bool, same_step: bool) -> tuple[Callable, Callable]:
    functions = _reset_lane(task.env), _step_lane(task.env, same_step)
    reset, step = (jax.vmap(f) if batched else f for f in functions)
    return jax.jit(reset), jax.jit(step)


def _reset_lane(env: Env) -> Callable[[Array], _Lane]:
    def reset(seed):
        key, reset_key = jax.random.split(jax.random.key(seed))
        return _Lane(key, *env.reset(reset_key, env.params), jnp.zeros((), bool))

    return reset


def _step_lane(env: Env, same_step: bool) -> Callable[[_Lane, Array], tuple[_Lane, Timestep]]:
    def step(lane, action):
        key, step_key = jax.random.split(lane.key)
        state, out = env.step(step_key, lane.state, action, env.params)
        if same_step:
            return _Lane(key, state, out.obs, lane.waiting), out
        # An episode that ended waits one step: what is shown then is its next start, with reward and costs 0.
        idle = jax.tree.map(jnp.zeros_like, out)._replace(obs=lane.obs, final_obs=lane.obs)
        shown = out._replace(obs=out.final_obs)
        state, shown = jax.tree.map(lambda a, b: jnp.where(lane.waiting, a, b), (lane.state, idle), (state, shown))
        return _Lane(key, state, out.obs, shown.terminated | shown.truncated), shown

    return step
