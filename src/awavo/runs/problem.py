"""From names and options to a problem that can be run: task, algorithm, resolved configuration."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from awavo.config import TrainConfig, check_config, config_from_mapping, plain
from awavo.errors import ConfigError, InputError, UnknownNameError, did_you_mean
from awavo.registry import ALGORITHMS, HOST_TASKS, TASKS, check_option, import_named, make_host_task, make_task, resolve
from awavo.types import Algorithm, Env, EnvSpec, Fields, Physics

if TYPE_CHECKING:
    from gymnasium import spaces

__all__ = [
    "Problem", "build_problem", "check_copies", "check_names", "check_option_names",
    "checked_physics",
    "functional_env", "import_function", "load_preset", "named_code", "resolve_config", "settings_class",
]  # fmt: skip

BRIDGE = "bridge:"
# Copies of an environment outside of JAX, of all seeds together: in this process, and in a process each.
MOST_COPIES, MOST_PROCESSES = 4_096, 512


class Problem(NamedTuple):
    """What a run trains on and with: a functional environment, or a way to make host environments."""

    spec: EnvSpec
    algorithm: Algorithm
    settings: Any
    env: Env | None
    # Of as many environments as training uses, or as asked; further options go to a Gymnasium environment.
    make_host: Callable[..., Any] | None
    # The space whose observations training flattens, of a Gymnasium environment in this interpreter.
    obs_space: spaces.Space | None = None
    # The space of the actions that such an environment, or one behind a bridge, takes.
    act_space: spaces.Space | None = None


def load_preset(algo: str, preset: str, task: str) -> Fields:
    """Settings of a preset: its `*` entry, then the task's own (`gymnasium` for environments from elsewhere)."""
    file = resources.files("awavo.algorithms").joinpath("presets", f"{algo}.json")
    presets = json.loads(file.read_text()) if file.is_file() else {"default": {"*": {}}}
    if preset not in presets:
        raise UnknownNameError(f"algorithm '{algo}' has no preset '{preset}'.{did_you_mean(preset, presets)}")
    return {
        **presets[preset].get("*", {}),
        **presets[preset].get(task if task in TASKS or task in HOST_TASKS else "gymnasium", {}),
    }


def resolve_config(config: TrainConfig) -> TrainConfig:
    """Check everything and fill in every default, so that the result says all that decides the run."""
    config = check_config(config)
    kind = settings_class(config.algo)
    values = {**load_preset(config.algo, config.preset, config.task), **config.algo_options}
    settings = config_from_mapping(kind, values, f"algorithm '{config.algo}'")
    if hasattr(settings, "replay_capacity"):
        per_rollout = max(settings.num_envs * settings.rollout_length, 1)
        wanted = min(settings.replay_capacity, config.steps)
        settings = dataclasses.replace(settings, replay_capacity=-(-wanted // per_rollout) * per_rollout)
    if config.cost_limits is not None and config.cost_sum_limit is not None:
        raise ConfigError("both cost limits and a limit on their sum were given: give one of the two.")
    return dataclasses.replace(
        config,
        algo_options=dataclasses.asdict(settings),
        task_options={name: plain(value) for name, value in dict(config.task_options).items()},
    )


def named_code(config: TrainConfig) -> dict[str, str]:
    """Settings that name code outside this package, which building the problem would import or start."""
    named = {"task": config.task, "cost_fn": config.cost_fn, "operator": config.algo_options.get("operator")}
    return {setting: value for setting, value in named.items() if isinstance(value, str) and ":" in value}


def settings_class(algo: str) -> type[Any]:
    """The configuration class of an algorithm."""
    resolve_known(algo)
    module, name = ALGORITHMS[algo].config.split(":")
    return getattr(importlib.import_module(module), name)


def resolve_known(algo: str) -> None:
    """Refuse an unknown algorithm without importing any."""
    if not isinstance(algo, str):
        raise ConfigError(f"algo={algo!r} is not the name of an algorithm: `awavo list` shows them.")
    if algo not in ALGORITHMS:
        raise UnknownNameError(f"no algorithm is named '{algo}'.{did_you_mean(algo, ALGORITHMS)}")


def build_problem(
    config: TrainConfig,
    *,
    env: Env | Callable[..., Any] | None = None,
    cost_fn: Callable[..., Any] | None = None,
    operator: Any = None,
) -> Problem:
    """Build the environment and the algorithm of a resolved configuration.

    `env` replaces the task by one of the caller's, functional or a class or factory of Gymnasium environments;
    `cost_fn` and `operator` are the caller's own functions.
    """
    settings = config_from_mapping(settings_class(config.algo), config.algo_options, f"algorithm '{config.algo}'")
    make_hosts, own, obs_space, act_space = None, None if isinstance(env, Env) else env, None, None
    env = env if isinstance(env, Env) else None
    if env is None and own is None and config.task in TASKS:
        env = functional_env(config)
    if env is not None:
        spec = env.spec
    else:
        check_copies(config, settings.num_envs)
        make_hosts = _host_factory(config, cost_fn or import_function(config.cost_fn), own)
        probe = make_hosts(1)
        spec, obs_space, act_space = probe.spec, probe.obs_space, probe.act_space
        probe.close()
    if spec.num_costs == 0:
        raise InputError(f"task '{config.task}' has no costs: pass a cost function, or costs in info.")
    from awavo.algorithms.actor_critic import ActorCriticConfig
    from awavo.algorithms.sizes import resolve_sizes

    if isinstance(settings, ActorCriticConfig):  # sizes left to the rule, now that the task is known
        settings = resolve_sizes(spec, settings)
    factory = resolve(config.algo, ALGORITHMS, "algorithm")
    extra: Fields = {} if operator is None else {"operator": operator}
    if getattr(settings, "planning", None) == "physics":
        extra["physics"] = None if env is None else checked_physics(env)
    make_host = None if make_hosts is None else lambda count=settings.num_envs, **more: make_hosts(count, **more)
    return Problem(spec, factory(spec, settings, **extra), settings, env, make_host, obs_space, act_space)


def checked_physics(env: Env) -> Physics | None:
    """What a task declares of its physics; its own parameters must lie where a planner will look for them."""
    if env.physics is not None:
        for name, low, high in zip(env.physics.names, env.physics.low, env.physics.high, strict=True):
            if not low <= (value := getattr(env.params, name)) <= high:
                raise ConfigError(
                    f"planning=physics looks for {name} of '{env.spec.name}' between {low:g} and {high:g}, but it is "
                    f"{value:g}: choose a value between them, or planning=on."
                )
    return env.physics


def functional_env(config: TrainConfig) -> Env:
    """The built-in task of a configuration, with its limits."""
    from awavo.tasks.base import sum_costs

    options = dict(config.task_options)
    if config.cost_fn is not None:
        raise ConfigError(f"task '{config.task}' brings its own costs: cost_fn is for Gymnasium environments.")
    if config.cost_limits is not None:
        options["cost_limits"] = config.cost_limits
    env = make_task(config.task, **options)
    return env if config.cost_sum_limit is None else sum_costs(env, config.cost_sum_limit)


def _host_factory(
    config: TrainConfig, cost_fn: Callable[..., Any] | None, own: Callable[..., Any] | None
) -> Callable[..., Any]:
    """What makes so many host environments, of the task or of the caller's own factory.

    Gymnasium's take further options, such as a `render_mode`.
    """
    if config.cost_sum_limit is not None:
        raise ConfigError("a limit on the sum of costs is for built-in tasks: sum them in the cost function instead.")
    if own is None and config.task in HOST_TASKS:
        if cost_fn is not None:
            raise ConfigError(f"task '{config.task}' brings its own costs: cost_fn is for Gymnasium environments.")
        limits = {} if config.cost_limits is None else {"cost_limits": config.cost_limits}
        return lambda count, **_: make_host_task(config.task, num_envs=count, **limits, **config.task_options)
    common: Fields = dict(cost_fn=cost_fn, cost_limits=config.cost_limits)
    options = dict(config.task_options)
    horizon = options.pop("horizon", None)
    horizon = None if horizon is None else check_option("horizon", horizon, 1)
    names = options.pop("cost_names", None)
    if names is not None and not all(isinstance(name, str) for name in ([names] if isinstance(names, str) else names)):
        raise ConfigError(f"cost_names={names!r} are not names.")
    common |= dict(horizon=horizon, cost_names=[names] if isinstance(names, str) else names)
    if own is None and config.task.startswith(BRIDGE):
        from awavo.tasks.bridge import bridge_env
        from awavo.tasks.bridge_install import installed_python

        if "python" not in options:
            options["python"] = installed_python()
        if options["python"] is None:
            raise ConfigError(
                "a bridged task needs the other interpreter: `awavo bridge install safety-gymnasium` makes one, or "
                "give the task option python=PATH."
            )
        front = {k: options.pop(k) for k in ("python", "module", "timeout", "path") if k in options}
        name = config.task.removeprefix(BRIDGE)
        return lambda count, **_: bridge_env(name, num_envs=count, **front, **common, env_options=options)
    from awavo.tasks.host import host_env
    from awavo.tasks.making import check_gymnasium_id, find_source

    if own is None:
        check_gymnasium_id(config.task)
    source = own or find_source(config.task)
    front = {k: options.pop(k) for k in ("vectorization", "timeout") if k in options}
    return lambda count, **more: host_env(source, num_envs=count, **common, **front, env_options={**options, **more})


def check_copies(config: TrainConfig, copies: int) -> None:
    """Refuse more environments than a machine runs: what one takes nobody knows before it is made."""
    apart = config.task.startswith(BRIDGE) or config.task_options.get("vectorization") == "async"
    most = MOST_PROCESSES if apart else MOST_COPIES
    if copies > most:
        what = "processes" if apart else "environments"
        raise ConfigError(f"{copies} {what} of '{config.task}' are above {most}: lower num_envs or seeds.")


def check_names(task: str, algo: str, preset: str) -> None:
    """Refuse unknown names of an algorithm, a preset or a task before anything slow is imported."""
    resolve_known(algo)
    load_preset(algo, preset, task)
    if task not in TASKS and task not in HOST_TASKS and ":" not in task:
        from awavo.tasks.making import check_gymnasium_id

        check_gymnasium_id(task)


def check_option_names(algo: str, names: Iterable[str]) -> None:
    """Refuse options that the algorithm does not have, by its source: importing it would load jax."""
    known = _field_names(*ALGORITHMS[algo].config.split(":"))
    for name in names:
        if known and name not in known:
            raise UnknownNameError(f"algorithm '{algo}' has no option '{name}'.{did_you_mean(name, known)}")


def _field_names(module: str, kind: str) -> set[str]:
    """Names of the fields of a dataclass of this package, those of its bases too; nothing where it is not found."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return set()
    body = ast.parse(Path(spec.origin).read_text()).body
    imported = {alias.name: n.module or "" for n in body if isinstance(n, ast.ImportFrom) for alias in n.names}
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if kind not in classes:
        return _field_names(imported[kind], kind) if imported.get(kind, "").startswith("awavo.") else set()
    bases = [base.id for base in classes[kind].bases if isinstance(base, ast.Name)]
    own = [node.target for node in classes[kind].body if isinstance(node, ast.AnnAssign)]
    names = {target.id for target in own if isinstance(target, ast.Name)}
    return names.union(*(_field_names(module, base) for base in bases))


def import_function(path: str | None) -> Callable[..., Any] | None:
    """Import MODULE:FUNCTION, the user's own code named on the command line."""
    if path is None:
        return None
    function = import_named(path, "cost_fn")
    if not callable(function):
        raise InputError(f"cost_fn='{path}' is not a function.")
    return function
