"""From a Gymnasium id, MODULE:NAME of a user's own, a class or a factory to one Gymnasium environment. Loads no jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import gymnasium as gym

from awavo.errors import InputError, MissingExtraError, UnknownNameError, did_you_mean, raised
from awavo.registry import HOST_TASKS, TASKS, import_own, refuse_lost_program
from awavo.tasks.registration import register_all
from awavo.tasks.six_values import OmniSafeEnv, accept_six_values, speaks_omnisafe
from awavo.types import FieldsView

__all__ = ["EXTRAS", "EnvSource", "check_gymnasium_id", "find_source", "make_gymnasium", "missing_module"]

# A Gymnasium id, or a factory of environments, such as their class.
EnvSource: TypeAlias = str | Callable[..., gym.Env]
# What making Gymnasium's own environments imports (CarRacing: pygame), and the extra that brings all of it.
EXTRAS = {"imageio": "mujoco", "glfw": "mujoco", "mujoco": "mujoco", "Box2D": "box2d", "pygame": "box2d"}


def check_gymnasium_id(name: str) -> None:
    """Refuse an id that Gymnasium does not know and that names no module."""
    if ":" in name:
        return
    register_all()
    if name not in gym.registry:
        known = [*TASKS, *HOST_TASKS, *(gym.registry if any(c in name for c in "-/") else ())]
        raise UnknownNameError(f"no task or Gymnasium id is named '{name}'.{did_you_mean(name, known)}")


def find_source(task: str) -> EnvSource:
    """The factory that MODULE:NAME names, or the id itself, whose module (before a colon) is then imported."""
    if ":" not in task:
        return task
    module, name = import_own(task, "task"), task.partition(":")[2]
    factory: Callable[..., gym.Env] | None = getattr(module, name, None)
    if factory is not None and callable(factory):
        return factory
    registered = any(known == name or known.startswith(f"{name}-v") for known in gym.registry)
    if factory is not None and not registered:
        raise InputError(
            f"task='{task}' is an instance of {type(factory).__name__}, expected a class or a function that makes "
            "environments: name that."
        )
    if not registered:
        refuse_lost_program(task, "task")
        where = getattr(module, "__file__", None) or module.__name__
        known = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, gym.Env)]
        raise UnknownNameError(
            f"task='{task}': {where} has no '{name}' and registers no such id.{did_you_mean(name, known)}"
        )
    return task


def make_gymnasium(id: EnvSource, options: FieldsView, horizon: int | None) -> gym.Env:
    """Build one environment of a Gymnasium id, with the given time limit if any, or of a factory, as it is."""
    register_all()
    if callable(id):
        try:
            env = id(**options)
        except (Exception, SystemExit) as error:  # the environment's own code may raise anything
            name = getattr(id, "__name__", type(id).__name__)
            raise InputError(f"{name} cannot be made with {dict(options)}: it {raised(error)}.") from error
        if not isinstance(env, gym.Env):
            if speaks_omnisafe(env):
                return accept_six_values(OmniSafeEnv(env))
            raise InputError(
                f"the factory returned {type(env).__name__}, expected a gymnasium.Env: derive from that class."
            )
        return env
    try:
        return accept_six_values(gym.make(id, max_episode_steps=horizon, **options))
    except (ModuleNotFoundError, gym.error.DependencyNotInstalled) as error:
        missing = missing_module(error)
        if missing not in EXTRAS:
            raise UnknownNameError(f"Gymnasium cannot make '{id}': {error}") from error
        # Its MuJoCo environments import what draws their window, with or without one.
        raise MissingExtraError(
            f"Gymnasium's '{id}' needs {missing}, which is not installed: pip install 'awavo[{EXTRAS[missing]}]'."
        ) from error
    except gym.error.Error as error:
        raise UnknownNameError(f"Gymnasium cannot make '{id}': {error}") from error
    except (Exception, SystemExit) as error:  # the environment's own code may raise anything
        raise InputError(f"Gymnasium cannot make '{id}' with {dict(options)}: it {raised(error)}.") from error


def missing_module(error: BaseException | None) -> str:
    """The module whose absence began this chain of errors; empty where none did."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__ or error.__context__
    return ""
