"""Environments whose `step` returns six values, as Safety-Gymnasium's and OmniSafe's do. Loads no jax and no torch.

A step is (obs, reward, cost, terminated, truncated, info) there. The cost goes to `info`: one number as `cost`, several
as `costs`.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np

from awavo.errors import BrokenEnvironmentError
from awavo.types import Fields

__all__ = ["OmniSafeEnv", "SixValues", "accept_six_values", "five_values", "speaks_omnisafe", "two_values"]


def five_values(result: object) -> tuple[Any, Any, Any, Any, Any]:
    """Five values of a step that may have six; what they are is for others to check."""
    if isinstance(result, tuple) and len(result) == 6:
        obs, reward, cost, terminated, truncated, info = result
        return obs, reward, terminated, truncated, {**info, "costs" if np.ndim(cost) else "cost": cost}
    if not isinstance(result, tuple) or len(result) != 5:
        seen = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise BrokenEnvironmentError(
            f"step() returned {seen}, expected (obs, reward, terminated, truncated, info): see check-env."
        )
    return result


def two_values(result: object) -> tuple[Any, dict]:
    """The observation and the info of a reset."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    seen = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
    raise BrokenEnvironmentError(f"reset() returned {seen}, expected (obs, info), info a dictionary: see check-env.")


class SixValues(gym.Wrapper):
    """Five values from an environment of six, or of five; after the first step `reset` reports costs of 0 too."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._zeros: Fields = {}

    def reset(self, *, seed: int | None = None, options: Fields | None = None) -> tuple[Any, Any]:
        """Reset, with the costs of six values as zeros."""
        obs, info = two_values(self.env.reset(seed=seed, options=options))
        return obs, {**self._zeros, **info} if self._zeros else info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Five values of a step."""
        result: Any = self.env.step(action)
        five = five_values(result)
        if len(result) == 6 and not self._zeros:
            self._zeros = {name: np.zeros_like(five[4][name])[()] for name in ("cost", "costs") if name in five[4]}
        return five


def accept_six_values(env: gym.Env) -> gym.Env:
    """The environment with six values turned into five inside of all its wrappers, which know five only."""
    if not isinstance(env, gym.Wrapper):
        return SixValues(env)
    inmost = env
    while isinstance(inmost.env, gym.Wrapper):
        inmost = inmost.env
    inmost.env = SixValues(inmost.env)
    return env


def speaks_omnisafe(env: object) -> bool:
    """Whether something that is no `gymnasium.Env` has what OmniSafe asks of an environment."""
    return all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step"))


class OmniSafeEnv(gym.Env):
    """A single environment written for OmniSafe (a `CMDP`, not vectorised), as a Gymnasium one.

    Tensors become arrays; actions become tensors where it answers with tensors. Its `max_episode_steps` is the horizon;
    `cost_names`, `cost_limits` and `horizon` are read from it as from any other environment.
    """

    def __init__(self, inner: Any):
        self.inner = inner
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self._tensors = False
        steps = getattr(inner, "horizon", None) or getattr(inner, "max_episode_steps", None)
        found = {"horizon": steps, **{name: getattr(inner, name, None) for name in ("cost_names", "cost_limits")}}
        for name, value in found.items():
            if value is not None:
                setattr(self, name, value)

    def reset(self, *, seed: int | None = None, options: Fields | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; one seed decides all that follow it."""
        super().reset(seed=seed)
        obs, info = self.inner.reset(seed=int(self.np_random.integers(2**31)) if seed is None else seed)
        self._tensors = type(obs).__module__.partition(".")[0] == "torch"
        return self._observation(obs), _plain(info)

    def step(self, action: Any) -> Any:
        """As many values as there are inside, as arrays and plain numbers."""
        sent = sys.modules["torch"].as_tensor(action) if self._tensors else action
        result = self.inner.step(sent)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            return result
        obs, reward, *cost, terminated, truncated, info = result
        costs = [float(own) if np.ndim(own) == 0 else np.asarray(own) for own in cost]
        return self._observation(obs), float(reward), *costs, bool(terminated), bool(truncated), _plain(info)

    def _observation(self, obs: Any) -> Any:
        if isinstance(obs, dict | tuple):
            return obs
        return np.asarray(obs, getattr(self.observation_space, "dtype", None))

    def close(self) -> None:
        """Close what is inside."""
        if hasattr(self.inner, "close"):
            self.inner.close()


def _plain(info: dict) -> dict:
    """Tensors as arrays, and single numbers as floats."""
    return {
        name: (float(value) if np.ndim(value) == 0 else np.asarray(value)) if hasattr(value, "__array__") else value
        for name, value in info.items()
    }
