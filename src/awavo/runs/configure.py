"""From what a caller of the Python interface writes to a resolved configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax

from awavo.config import TrainConfig, plain
from awavo.errors import ConfigError, UnknownNameError, did_you_mean
from awavo.registry import GPU_TASKS, TASKS, name_of
from awavo.runs.budget import default_budget
from awavo.runs.problem import build_problem, resolve_config, settings_class
from awavo.types import Env, FieldsView

__all__ = ["OwnEnv", "configure"]

# An environment of the caller's own: a functional one, or a class or factory of Gymnasium environments.
OwnEnv: TypeAlias = Env | Callable[..., Any]


def configure(
    task: str | OwnEnv = "cartpole",
    algo: str = "orpo-dr",
    *,
    cost_limits: Sequence[float] | float | None = None,
    cost_fn: Callable[..., Any] | str | None = None,
    task_options: FieldsView | None = None,
    **options: Any,
) -> TrainConfig:
    """Resolve a configuration.

    Args:
        task: Name of a task, a Gymnasium id, a functional `Env` (pass it to `train` as `env` too), or a class or
            function that makes a Gymnasium environment; the run remembers the last as MODULE:NAME.
        algo: Name of an algorithm.
        cost_limits: Limit of each cost (one number where there is one cost), instead of the task's.
        cost_fn: Function that computes the costs of a Gymnasium environment, or its MODULE:NAME.
        task_options: Options of the task, such as `horizon` or `cost_names`.
        **options: Fields of `TrainConfig` (`steps` and `seeds`, by default those of `awavo.runs.budget`, `seed`, ...)
            and settings of the algorithm, in one list.

    Returns:
        The configuration with every default filled in.

    >>> awavo.configure("cartpole", steps=100_000, seeds=3, actor_lr=1e-3)
    """
    own = {f.name for f in dataclasses.fields(TrainConfig)}
    settings = {f.name for f in dataclasses.fields(settings_class(algo))}
    for name in options:
        if name not in own | settings:
            raise UnknownNameError(
                f"neither a run nor algorithm '{algo}' has an option '{name}'.{did_you_mean(name, own | settings)}"
            )
    usual = default_budget(algo, jax.default_backend(), task if isinstance(task, str) else "")._asdict()
    run_options = {**usual, **{k: v for k, v in options.items() if k in own}}
    algo_options = {k: v for k, v in options.items() if k not in own}
    env = task if isinstance(task, Env) else None
    if isinstance(task, Env):
        task = task.spec.name
    if isinstance(cost_limits, str):
        raise ConfigError(f"cost_limits={cost_limits!r} is text, expected a number for each cost: (30, 10).")
    cost_limits = plain(cost_limits)
    if cost_limits is not None:
        cost_limits = tuple(cost_limits) if isinstance(cost_limits, Iterable) else (cost_limits,)
    config = resolve_config(
        TrainConfig(
            task=task if isinstance(task, str) else name_of(task, "task"),
            algo=algo,
            cost_limits=cost_limits,
            cost_fn=cost_fn if cost_fn is None or isinstance(cost_fn, str) else name_of(cost_fn, "cost_fn"),
            task_options=task_options or {},
            algo_options={**algo_options, **run_options.pop("algo_options", {})},
            **run_options,
        )
    )
    if env is not None or (config.task in TASKS and config.task not in GPU_TASKS):
        build_problem(config, env=env)  # what does not go together is refused here; these tasks take no time to build
    return config
