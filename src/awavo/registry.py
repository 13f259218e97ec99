"""Names of tasks and algorithms, resolved to factories on first use."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

from awavo.errors import InputError, UnknownNameError, did_you_mean, raised
from awavo.types import Fields

__all__ = [
    "ALGORITHMS", "GPU_TASKS", "HOST_TASKS", "TASKS", "Registration", "add_current_folder", "check_option",
    "import_named", "import_own", "make_host_task", "make_task", "name_of", "refuse_lost_program", "resolve",
]  # fmt: skip


# Options of tasks: the largest counts of things, and the largest numbers.
LARGEST_COUNT = {"horizon": 10**7, "seed": 2**31 - 1}
LARGEST_OPTION = 1e6


class Registration(NamedTuple):
    """Where a factory lives, and one line on it."""

    target: str
    summary: str
    source: str
    config: str = ""


TASKS = {
    "cartpole": Registration(
        "awavo.tasks.cartpole:cartpole", "pole upright, out of five bands, within 6 degrees", "AWaVO 2024"
    ),
    "acrobot": Registration("awavo.tasks.acrobot:acrobot", "swing up, sparing anticlockwise torque", "AWaVO 2024"),
    "navigation": Registration(
        "awavo.tasks.navigation:navigation", "point mass to a goal behind a disc", "this package"
    ),
    "garnet": Registration("awavo.tasks.tabular:garnet", "random finite CMDP", "Archibald et al. 1995"),
    "hazard-grid": Registration(
        "awavo.tasks.tabular:hazard_grid", "grid world with hazards and costly moves", "this package"
    ),
    "drone": Registration(
        "awavo.tasks.goal.drone:drone", "fly to goals in space, round 8 hazards", "GUARD (Zhao et al. 2023)"
    ),
    "quadrotor": Registration(
        "awavo.tasks.quadrotor.flight:quadrotor", "track a reference in wind and among obstacles", "AWaVO 2024"
    ),
    "quadrotor-detours": Registration(
        "awavo.control.detour_flight:detour_flight", "the same, deciding over detours with a tracking law", "AWaVO 2024"
    ),
}

# Built by a factory that takes `num_envs` and returns a host environment: the simulator is not in JAX.
HOST_TASKS = {
    "walker": Registration(
        "awavo.tasks.goal.walker:walker", "walk to goals round 8 hazards, on C MuJoCo", "GUARD (Zhao et al. 2023)"
    ),
    **{
        f"{body}-velocity": Registration(f"awavo.tasks.velocity.task:{body}", what, "Ji et al. 2023 (Safety-Gymnasium)")
        for body, what in {
            "halfcheetah": "run at up to 3.2096 m/s",
            "hopper": "hop at up to 0.7402 m/s",
            "walker2d": "walk on two legs at up to 2.3415 m/s",
            "ant": "run on four legs at up to 2.6222 m/s",
            "swimmer": "swim at up to 0.2282 m/s",
            "humanoid": "walk as a human does, at up to 1.4149 m/s",
        }.items()
    },
    **{
        f"{agent}-{arena}": Registration(
            f"awavo.tasks.arena.task:{agent}_{arena}", f"{agent}: {what}", "Ji et al. 2023 (Safety-Gymnasium)"
        )
        for agent in ("point", "car")
        for arena, what in {
            "goal1": "go to goals round 8 hazards",
            "goal2": "go to goals round 10 hazards and 10 vases",
            "button1": "press the right button, round 4 hazards and 4 gremlins",
            "button2": "press the right button, round 8 hazards and 6 gremlins",
            "push1": "push a box to goals, round 2 hazards",
            "push2": "push a box to goals, round 4 hazards and 4 pillars",
            "circle1": "drive along a circle, between two walls",
            "circle2": "drive along a circle, between four walls",
        }.items()
    },
}

# Functional tasks that need an extra, and make sense on a GPU only.
GPU_TASKS = {
    "walker-mjx": Registration(
        "awavo.tasks.goal.walker_mjx:walker_mjx", "the walker through MJX, for GPUs", "GUARD (Zhao et al. 2023)"
    ),
}
TASKS |= GPU_TASKS

ALGORITHMS = {
    "awavo": Registration(
        "awavo.algorithms.awavo:awavo", "inference over action sequences by A-GSWD, ensemble model, ORPO-DR",
        "AWaVO 2024, Algorithm 2", "awavo.algorithms.awavo:AwavoConfig",
    ),
    "orpo-dr": Registration(
        "awavo.algorithms.orpo_dr:orpo_dr", "rectified policy optimisation, quantile critics",
        "AWaVO 2024, Algorithm 1", "awavo.algorithms.orpo_dr:OrpoDrConfig",
    ),
    "crpo": Registration(
        "awavo.algorithms.crpo:crpo", "constraint-rectified policy optimisation, trust-region steps",
        "Xu et al. 2021", "awavo.algorithms.crpo:CrpoConfig",
    ),
    "pcpo": Registration(
        "awavo.algorithms.pcpo:pcpo", "trust-region step, then projection onto the limits",
        "Yang et al. 2020", "awavo.algorithms.pcpo:PcpoConfig",
    ),
    "cpo": Registration(
        "awavo.algorithms.cpo:cpo", "best step inside the trust region and the limits",
        "Achiam et al. 2017", "awavo.algorithms.cpo:CpoConfig",
    ),
    "trpo-ipo": Registration(
        "awavo.algorithms.trpo_ipo:trpo_ipo", "log barrier on every limit, trust-region steps",
        "Liu et al. 2020", "awavo.algorithms.trpo_ipo:TrpoIpoConfig",
    ),
    "trpo-lagrangian": Registration(
        "awavo.algorithms.trpo_lagrangian:trpo_lagrangian",
        "Lagrangian with dual ascent or PID multipliers, trust-region steps",
        "Ray et al. 2019, Stooke et al. 2020", "awavo.algorithms.trpo_lagrangian:TrpoLagrangianConfig",
    ),
    "ppo-lagrangian": Registration(
        "awavo.algorithms.ppo_lagrangian:ppo_lagrangian", "Lagrangian with Adam or PID multipliers, clipped steps",
        "Schulman et al. 2017, Ray et al. 2019", "awavo.algorithms.ppo_lagrangian:PpoLagrangianConfig",
    ),
    "sac-lagrangian": Registration(
        "awavo.algorithms.sac_lagrangian:sac_lagrangian",
        "off-policy: soft actor-critic, PID multipliers (continuous actions)",
        "Haarnoja et al. 2018, Stooke et al. 2020", "awavo.algorithms.sac_lagrangian:SacLagrangianConfig",
    ),
    "cal": Registration(
        "awavo.algorithms.cal:cal", "off-policy: conservative augmented Lagrangian (continuous actions)",
        "Wu et al. 2024", "awavo.algorithms.cal:CalConfig",
    ),
    "paets": Registration(
        "awavo.algorithms.paets:paets", "planning with a mixture over action sequences and ensemble dynamics",
        "Okada & Taniguchi 2019", "awavo.algorithms.paets:PaetsConfig",
    ),
}  # fmt: skip


def resolve(name: str, table: dict[str, Registration], kind: str) -> Callable[..., Any]:
    """Import the factory registered under `name`."""
    if name not in table:
        raise UnknownNameError(f"no {kind} is named '{name}'.{did_you_mean(name, table)}")
    module, attribute = table[name].target.split(":")
    return getattr(importlib.import_module(module), attribute)


def add_current_folder() -> str:
    """Let modules of the current folder be imported, after all others: a file there replaces no installed package.

    Done when a user's own code is first named, not before: nothing else must be found there.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    return folder


def import_own(path: str, setting: str) -> Any:
    """Import the module of MODULE:NAME, the user's own code, given as the value of a setting."""
    module = path.partition(":")[0]
    folder = add_current_folder()
    try:
        if module.startswith("."):
            raise ImportError("a module's full name does not begin with a dot")
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        told = raised(error) if isinstance(error, SystemExit) else error
        raise InputError(
            f"{setting}='{path}' cannot be imported ({told}): expected MODULE:NAME, with MODULE.py in the current "
            f"folder ({folder}) or installed."
        ) from error


def refuse_lost_program(path: str, setting: str) -> None:
    """Say why what a program defined in itself is not in another one."""
    if path.startswith("__main__:"):
        raise InputError(
            f"{setting}='{path}' was defined in the program that trained it: move it into a file of its own and "
            "name that, or pass it again in Python."
        ) from None


def import_named(path: str, setting: str) -> Any:
    """Import MODULE:NAME, the user's own code, given as the value of a setting."""
    module, name = import_own(path, setting), path.partition(":")[2]
    try:
        return getattr(module, name)
    except AttributeError:
        where = getattr(module, "__file__", None) or module.__name__
        refuse_lost_program(path, setting)
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(
            f"{setting}='{path}': expected MODULE:NAME, but {where} has no '{name}'.{did_you_mean(name, known)}"
        ) from None


def name_of(thing: object, setting: str) -> str:
    """MODULE:NAME of a class or function, under which a run's configuration remembers it."""
    if not callable(thing):
        raise InputError(f"{setting}={thing!r} is neither a name nor a class or function.")
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "<no name>")
    if getattr(sys.modules.get(str(module)), name, None) is not thing:
        raise InputError(
            f"{setting}={name} has no name that can be imported: define it at the top of a file, or give any name here "
            f"and pass it to train(config, out, {'env' if setting == 'task' else setting}=...)."
        )
    return f"{module}:{name}"


def make_task(name: str, **options: Any) -> Any:
    """Build the functional environment `name`; unknown options get a suggestion.

    Args:
        name: Name of a built-in task in JAX (`awavo list`).
        **options: Options of the task: `cost_limits`, `horizon`, its physics.
    """
    return _build(name, resolve(name, TASKS, "task"), options)


def _build(name: str, factory: Callable[..., Any], options: Fields) -> Any:
    defaults = task_defaults(factory)
    for option in options:
        if option not in defaults:
            raise UnknownNameError(f"task '{name}' has no option '{option}'.{did_you_mean(option, defaults)}")
    checked = {option: check_option(option, value, defaults[option]) for option, value in options.items()}
    try:
        return factory(**checked)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"task '{name}' cannot be built with {options}: {error}.") from error


def check_option(name: str, value: Any, default: Any) -> Any:
    """The value of a task's option, of the kind of its default: a number where that is one, and finite."""
    if isinstance(default, bool | str):
        if type(value) is not type(default):
            kind = "a name" if isinstance(default, str) else "true or false"
            raise InputError(f"{name}={value!r} is not {kind}.")
        return value
    if isinstance(default, int):
        return _whole(name, value, 1 if name in ("horizon", "num_envs") else 0)
    if isinstance(default, float):
        return _finite(name, value)
    if isinstance(default, tuple) and name != "cost_limits":  # these have a check of their own
        if not isinstance(value, list | tuple) or len(value) != len(default):
            raise InputError(f"{name}={value!r} is not {len(default)} numbers.")
        return tuple(_finite(name, number) for number in value)
    return value


def _whole(name: str, value: object, low: int) -> int:
    if (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, Integral) and not isinstance(value, bool)
    ):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name}={value!r} is not a whole number.")
    high = LARGEST_COUNT.get(name, 10**4)
    if not low <= value <= high:
        raise InputError(f"{name}={value} is out of range: expected {low} to {high}.")
    return value


def _finite(name: str, value: Any) -> Any:
    if hasattr(value, "dtype"):  # an array of the caller's own, checked by the task
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name}={value!r} is not a number.")
    if not abs(value) <= LARGEST_OPTION:  # NaN compares as false, and whole numbers have no end
        raise InputError(f"{name}={value!r} is not a finite number of at most {LARGEST_OPTION:g}.")
    return float(value)


def make_host_task(name: str, **options: Any) -> Any:
    """Build the host environment `name`; unknown options get a suggestion."""
    return _build(name, resolve(name, HOST_TASKS, "host task"), options)


def task_options(factory: Callable[..., Any]) -> list[str]:
    """Keyword names of a task's factory; a `**physics` argument stands for the fields of its parameter class."""
    return list(task_defaults(factory))


def task_defaults(factory: Callable[..., Any]) -> Fields:
    """The options of a task's factory and what they are unless given."""
    defaults: Fields = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            module = inspect.getmodule(factory)
            params = next(v for k, v in vars(module).items() if k.endswith("Params"))
            defaults |= {name: params._field_defaults[name] for name in params._fields}
        else:
            defaults[parameter.name] = parameter.default
    return defaults
