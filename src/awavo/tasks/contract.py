"""What a Gymnasium environment must offer and return; each fault is one line with its remedy. Loads no jax."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from awavo.errors import BrokenEnvironmentError, InputError

__all__ = [
    "check_offer",
    "flat_observation",
    "own_attribute",
    "own_list",
    "plain_reward",
    "reset_problem",
    "short",
    "space_problem",
    "try_flatten",
    "wrapped_limit",
]

RESET = "define reset(self, *, seed=None, options=None) and call super().reset(seed=seed)."


def check_offer(env: gym.Env) -> None:
    """Refuse an environment that lacks a space, or whose reset takes no seed, before anything is asked of it."""
    if told := space_problem(env):
        raise BrokenEnvironmentError(f"{told[1]}: set self.{told[0]} in __init__.")
    if problem := reset_problem(env):
        raise BrokenEnvironmentError(f"{problem}: {RESET}")


def space_problem(env: gym.Env) -> tuple[str, str] | None:
    """The attribute that holds no space, and what is wrong with it."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            seen = "none" if space is None else type(space).__name__
            return name, f"{name}: expected a gymnasium.spaces.Space, saw {seen}"
    return None


def reset_problem(env: gym.Env) -> str | None:
    """What keeps `reset` from being called with a seed and options."""
    try:
        parameters = inspect.signature(env.unwrapped.reset).parameters
    except (TypeError, ValueError):  # of some compiled functions nothing is known
        return None
    missing = [name for name in ("seed", "options") if name not in parameters]
    if not missing or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return f"reset(): expected the keyword {missing[0]}, saw the parameters {list(parameters)}"


def try_flatten(space: spaces.Space, obs: object) -> Float[np.ndarray, " d"] | None:
    """One observation as a vector; None where it is none of this space."""
    try:
        flat = np.asarray(spaces.flatten(space, obs), np.float32)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return flat if flat.shape == (spaces.flatdim(space),) else None


def flat_observation(space: spaces.Space, obs: object, call: str) -> Float[np.ndarray, " d"]:
    """One observation as a vector, or an error that names what was expected and what `call` returned."""
    flat = try_flatten(space, obs)
    if flat is not None:
        return flat
    if isinstance(space, spaces.Box) and isinstance(obs, np.ndarray | np.generic | float | int):
        told = f"of shape {space.shape}, saw {np.shape(obs)}"
    else:
        told = f"of {space}, saw {short(obs)}"
    raise BrokenEnvironmentError(f"{call}: expected an observation {told}: return what observation_space declares.")


def plain_reward(reward: object) -> float:
    """A reward as a float; arrays of other than one number, words and nothing are refused."""
    if isinstance(reward, int | float):
        return float(reward)
    if np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf":  # pyright: ignore[reportArgumentType]
        raise BrokenEnvironmentError(f"step(): expected a number as reward, saw {short(reward)}: return float(reward).")
    return float(reward)  # pyright: ignore[reportArgumentType]


def own_attribute(env: gym.Env, name: str) -> Any:
    """An attribute that the outermost wrapper has that declares it, else the environment itself; None without one."""
    while isinstance(env, gym.Wrapper):
        found = vars(env).get(name, getattr(type(env), name, None))
        if found is not None:
            return found
        env = env.env
    return getattr(env, name, None)


def wrapped_limit(env: gym.Env) -> int | None:
    """Steps of the shortest `TimeLimit` that a factory wrapped around its environment."""
    limits = []
    while isinstance(env, gym.Wrapper):
        limits += [env._max_episode_steps] if isinstance(env, gym.wrappers.TimeLimit) else []
        env = env.env
    return min(limits, default=None)


def own_list(env: gym.Env, name: str, kind: Callable[[Any], Any]) -> list[Any] | None:
    """An attribute of the environment as a list; one entry may stand alone."""
    value = own_attribute(env, name)
    if value is None:
        return None
    try:
        return [kind(item) for item in ([value] if isinstance(value, str) or np.ndim(value) == 0 else value)]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the environment's {name} is {value!r} ({error}): expected one entry for each cost."
        ) from error


def short(value: object) -> str:
    """A value in an error's line."""
    return " ".join(f"{value!r:.100}".split())
