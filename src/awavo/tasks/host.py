"""Any Gymnasium environment as a host environment: vectorised, with costs from `info` or from a function."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Float, Int, UInt8

from awavo.errors import BrokenEnvironmentError, InputError
from awavo.registry import check_option
from awavo.tasks.contract import check_offer, flat_observation, own_attribute, own_list, plain_reward, wrapped_limit
from awavo.tasks.cost_functions import CostFn, InfoSource, apply_cost_fn, find_info, takes_info
from awavo.tasks.host_core import CostSource, HostEnv, HostStep, find_costs, name_costs
from awavo.tasks.making import EnvSource, make_gymnasium
from awavo.tasks.mujoco_drawing import Painter
from awavo.tasks.patience import TIMEOUT, check_timeout, watched
from awavo.tasks.six_values import five_values, two_values
from awavo.tasks.spaces import action_spec, check_observation_space, own_actions
from awavo.types import Box, EnvSpec, Fields, FieldsView

__all__ = ["HostEnv", "host_env", "make_gymnasium"]


class FlatEnv(gym.Wrapper):
    """Flat float32 observations, flat actions, and in `info` one array (on reset too, as zeros).

    That is "costs", in float32, or "numbers": all that a cost function gets of the environment's own `info`. Read here,
    in each single environment, they do not take the type of the first one when Gymnasium stacks them.
    """

    def __init__(self, env: gym.Env, source: CostSource | InfoSource | None):
        super().__init__(env)
        self._source = source
        self._zeros: dict[str, np.ndarray] = {}
        if isinstance(source, CostSource):
            self._zeros = {"costs": np.zeros(len(source.names), np.float32)}
        elif source is not None:
            self._zeros = {"numbers": np.zeros(source.size)}
        shape = (check_observation_space(env.observation_space),)
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        if isinstance(env.action_space, spaces.Box):
            self.action_space = spaces.flatten_space(env.action_space)

    def reset(self, *, seed: int | None = None, options: Fields | None = None) -> tuple[np.ndarray, dict]:
        """Reset, with zeros in `info`."""
        with watched("reset()"):  # here, in a process of its own too, which sys.exit would end without a word
            obs, _ = two_values(self.env.reset(seed=seed, options=options))
        return self._flat(obs, "reset()"), {k: v.copy() for k, v in self._zeros.items()}

    def step(self, action: np.ndarray | int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Step a five- or six-tuple environment."""
        if isinstance(self.env.action_space, spaces.Box):
            action = own_actions(self.env.action_space, np.asarray(action)).reshape(self.env.action_space.shape)
        with watched("step()"):
            obs, reward, terminated, truncated, info = five_values(self.env.step(action))
        read = {} if self._source is None else {name: self._source.read(info) for name in self._zeros}
        return self._flat(obs, "step()"), plain_reward(reward), bool(terminated), bool(truncated), read

    def _flat(self, obs: object, call: str) -> Float[np.ndarray, " d"]:
        return flat_observation(self.env.observation_space, obs, call)


class GymnasiumBackend:
    """Gymnasium's own vectorisation, its end-of-episode entries read back."""

    def __init__(
        self,
        factories: Sequence[Callable[[], gym.Env]],
        vectorization: str,
        timeout: float = TIMEOUT,
        source: CostSource | InfoSource | None = None,
    ):
        if vectorization not in ("sync", "async"):
            raise InputError(f"vectorization={vectorization!r} is not one of 'sync', 'async'.")
        self._timeout = timeout
        self._source = source
        self._broken = False
        self._painter: Painter | None = None
        mode = AutoresetMode.SAME_STEP
        if vectorization == "sync":
            self._envs = SyncVectorEnv(factories, autoreset_mode=mode)
            return
        try:
            # Forked workers would inherit the locks of jax's threads.
            self._envs = AsyncVectorEnv(factories, context="spawn", autoreset_mode=mode)
        except (EOFError, ConnectionError) as error:
            raise BrokenEnvironmentError(
                "a process of the environment ended while it started, expected that a new process can import and make "
                "it: see what it said above, or set the task option vectorization=sync."
            ) from error

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        with self._watched("reset()"):
            return self._envs.reset(seed=seeds)[0]  # pyright: ignore[reportArgumentType]

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        count = self._envs.num_envs
        every: list[int | None] = [None] * count
        for i, seed in zip(which, seeds, strict=True):
            every[i] = seed
        mask = np.isin(np.arange(count), which)
        with self._watched("reset()"):
            return self._envs.reset(seed=every, options={"reset_mask": mask})[0][which]  # pyright: ignore[reportArgumentType]

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment; the end of an episode stands in `final_obs` and `final_info`."""
        with self._watched("step()"):
            obs, reward, terminated, truncated, info = self._envs.step(action)
        final_obs = obs.copy()
        for i in np.flatnonzero(terminated | truncated):
            final_obs[i] = info["final_obs"][i]
            for name in ("costs", "numbers"):
                if name in info:
                    info[name][i] = info["final_info"][name][i]
        numbers = self._source.unpack(info["numbers"]) if isinstance(self._source, InfoSource) else None
        reward = reward.astype(np.float32)
        return HostStep(obs, reward, info.get("costs"), terminated, truncated, final_obs, numbers)

    @contextmanager
    def _watched(self, call: str) -> Iterator[None]:
        try:
            with watched(call, self._timeout):
                yield
        except BrokenEnvironmentError:
            self._broken = True
            raise

    def picture(self) -> UInt8[np.ndarray, "h w 3"] | None:
        """The first environment: a MuJoCo simulation as we draw it, else its own `rgb_array` where it makes one."""
        first = self._envs.envs[0].unwrapped if isinstance(self._envs, SyncVectorEnv) else None
        if hasattr(first, "model") and hasattr(first, "data") and hasattr(first, "mujoco_renderer"):
            if self._painter is None:
                self._painter = Painter(first.model)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            return self._painter.paint(first.data)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        with self._watched("render()"):
            frames = self._envs.render()
        frame = np.asarray(frames[0]) if frames else None
        if frame is None or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
            return None
        return np.clip(frame, 0, 255).astype(np.uint8)

    @property
    def seconds(self) -> float | None:
        """Seconds of a step, from the pictures a second that the environment names."""
        rate = (self._envs.metadata or {}).get("render_fps")
        return 1 / rate if isinstance(rate, int | float) and rate > 0 else None

    def close(self) -> None:
        """Close the environments; processes that do not answer are ended."""
        if self._painter is not None:
            self._painter.close()
        hard = self._broken and isinstance(self._envs, AsyncVectorEnv)
        with contextlib.suppress(multiprocessing.TimeoutError):
            self._envs.close(**({"terminate": True} if hard else {}))


def _make_flat(
    id: EnvSource, options: FieldsView, horizon: int | None, source: CostSource | InfoSource | None
) -> gym.Env:
    env = FlatEnv(make_gymnasium(id, options, horizon), source)
    return gym.wrappers.TimeLimit(env, horizon) if callable(id) and horizon else env


def host_env(
    id: EnvSource,
    *,
    num_envs: int = 4,
    cost_fn: CostFn | None = None,
    cost_names: Sequence[str] | None = None,
    cost_limits: Sequence[float] | None = None,
    horizon: int | None = None,
    vectorization: str = "sync",
    timeout: float = TIMEOUT,
    env_options: FieldsView | None = None,
) -> HostEnv:
    """Build `num_envs` copies of a Gymnasium id, or of what a factory returns.

    Costs come from `info` or from `cost_fn(obs [E, d], action, next_obs [E, d]) -> [E] or [E, C]`, called with
    flattened observations and with actions in the environment's own units; `next_obs` is the true next one at the end
    of an episode too. A function with a parameter `info` gets the numbers in the environment's own `info` as well, each
    with one row for each environment. Names and limits of costs and the horizon are attributes of the environment
    (`cost_names`, `cost_limits`, `horizon`) unless given here; a horizon is needed where there is no time limit.
    `vectorization` is "sync" or "async" (one process each). `timeout` bounds every step and reset, in seconds.
    """
    if num_envs < 1:
        raise InputError(f"num_envs={num_envs} must be >= 1.")
    timeout = check_timeout(timeout)
    options = dict(env_options or {})
    probe = make_gymnasium(id, options, horizon)
    try:
        with watched("the first step of the environment", timeout):
            spec, start, source = _probe(id, probe, cost_fn, cost_names, cost_limits, horizon)
        limit = horizon or (None if _time_limit(probe) else spec.horizon)
    finally:
        probe.close()
    factory = functools.partial(_make_flat, id, options, limit, source)
    backend = GymnasiumBackend([factory] * num_envs, vectorization, timeout, source)
    return HostEnv(spec, num_envs, backend, start, cost_fn, probe.observation_space, probe.action_space)


def _probe(
    id: EnvSource,
    env: gym.Env,
    cost_fn: CostFn | None,
    names: Sequence[str] | None,
    limits: Sequence[float] | None,
    horizon: int | None,
) -> tuple[EnvSpec, int, CostSource | InfoSource | None]:
    """Take one step to learn what the environment offers."""
    name = id if isinstance(id, str) else getattr(id, "__name__", type(id).__name__)
    check_offer(env)
    actions, start = action_spec(env.action_space)
    obs_dim = check_observation_space(env.observation_space)
    horizon = _find_horizon(env, name, horizon)
    # One step shows what costs there are; the probe is closed after it.
    env.action_space.seed(0)
    with watched("reset()"):
        obs, _ = two_values(env.reset(seed=0))
    action = np.asarray(env.action_space.sample())
    with watched("step()"):
        next_obs, reward, _, _, info = five_values(env.step(action if isinstance(actions, Box) else action.item()))
    flat = [flat_observation(env.observation_space, *at)[None] for at in ((obs, "reset()"), (next_obs, "step()"))]
    plain_reward(reward)
    source = None
    if cost_fn is None:
        source = find_costs(info, names, own_list(env, "cost_names", str))
        costs, names = source.read(info)[None], source.names
        limits = own_list(env, "cost_limits", float) if limits is None else limits
    else:
        source = find_info(info) if takes_info(cost_fn) else None
        numbers = None if source is None else source.unpack(source.read(info)[None])
        rows = action.reshape((1, -1) if isinstance(actions, Box) else 1)
        costs = apply_cost_fn(cost_fn, flat[0], rows, flat[1], numbers)
    names, limits = name_costs(costs, names, limits)
    return EnvSpec(name, obs_dim, actions, horizon, names, limits), start, source


def _time_limit(env: gym.Env) -> int | None:
    return (env.spec.max_episode_steps if env.spec else None) or wrapped_limit(env)


def _find_horizon(env: gym.Env, name: str, horizon: int | None) -> int:
    registered = _time_limit(env)
    own = env.unwrapped.spec.max_episode_steps if env.unwrapped.spec else None
    if horizon is not None and own is not None and own < horizon:
        raise InputError(
            f"horizon={horizon}, but {name} ends itself after {own} steps: pass its own option in env_options."
        )
    found = horizon or registered
    own_horizon = own_attribute(env, "horizon")
    if found is None and own_horizon is not None:
        return check_option("horizon", own_horizon, 1)
    if found is None:
        raise InputError(
            f"{name} has no time limit: give the environment an attribute horizon = N, the number of steps after which "
            f"to truncate an episode, or the task option horizon=N."
        )
    return int(found)
