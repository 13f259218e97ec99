"""Every configuration, as frozen dataclasses with checked fields; JSON in and out; a fingerprint.

A field is declared with `setting`, which carries its help text and the values it accepts. Values are checked by
`check_config` before anything is compiled or written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from awavo.errors import ConfigError, UnknownNameError, did_you_mean

__all__ = [
    "OrpoDrConfig",
    "TrainConfig",
    "check_config",
    "config_from_mapping",
    "fingerprint",
    "parse_value",
    "setting",
]

T = TypeVar("T")


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    path: bool = False,
) -> Any:
    """Declare a field: inclusive bounds `low` and `high` (of every element of a tuple), or `choices`.

    With `path`, MODULE:NAME of the user's own is accepted beside the choices.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": tuple(choices), "path": path}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OrpoDrConfig:
    """Settings of ORPO-DR. The defaults were chosen by measurement; the paper's are the preset `paper`."""

    num_envs: int = setting(16, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(32, "steps of each environment between updates", low=1, high=100_000)
    num_updates: int = setting(64, "gradient steps after each rollout", low=1, high=100_000)
    batch_size: int = setting(128, "transitions per gradient step", low=1, high=1_000_000)
    replay_capacity: int = setting(1_000_000, "transitions kept", low=1, high=1_000_000_000)
    warmup_steps: int = setting(1_000, "environment steps before the first update", low=0, high=1_000_000_000)
    hidden: tuple[int, ...] = setting((128, 128), "sizes of the hidden layers", low=1, high=65_536)
    num_quantiles: int = setting(16, "quantiles M of each critic", low=1, high=1_024)
    num_critics: int = setting(1, "critics of each signal, of which the most pessimistic counts", low=1, high=16)
    critic_layers: str = setting(
        "plain", "critics' hidden layers, as they are or standardized", choices=("plain", "standardized")
    )
    discount: float = setting(0.99, "discount gamma of the critics", low=0.0, high=0.99999)
    reward_clip: float | None = setting(
        None, "rewards beyond +- this are clipped for the learner; none keeps them", low=1e-9, high=1e9
    )
    backup_steps: int = setting(1, "stored steps n before a target bootstraps", low=1, high=1_000)
    actor_lr: float = setting(5e-4, "Adam step size of the actor", low=0.0, high=1.0)
    critic_lr: float = setting(1.2e-3, "Adam step size of the critics", low=0.0, high=1.0)
    polyak: float = setting(0.01, "averaging rate of the target critics", low=0.0, high=1.0)
    actor_polyak: float = setting(1e-3, "averaging rate of the actor used for greedy actions", low=0.0, high=1.0)
    huber: float = setting(1.0, "width of the quantile Huber loss", low=1e-6, high=1e6)
    value_scale: float = setting(10.0, "scale of the critics' outputs", low=1e-6, high=1e6)
    max_grad_norm: float = setting(10.0, "largest gradient norm", low=1e-6, high=1e9)
    entropy: float = setting(0.05, "weight of the policy's entropy", low=0.0, high=1e3)
    entropy_target: float | None = setting(
        None, "entropy in nats that the weight is adapted to keep; none keeps the weight", low=-1e4, high=1e4
    )
    operator: str = setting(
        "log",
        "operator F between likelihoods and returns, or MODULE:NAME of one",
        choices=("log", "affine", "power"),
        path=True,
    )
    temperature: float = setting(0.15, "lam of the log operator, as a share of the return's range", low=1e-6, high=1e3)
    kappa: float = setting(0.1, "exponent of the power operator", low=1e-3, high=1e3)
    bound_margin: float = setting(
        0.05, "safety margin of the return bounds, as a share of the range", low=0.0, high=10.0
    )
    clip_targets: str = setting("off", "keep the critics' targets within the return bounds", choices=("off", "on"))
    rectify: str = setting("posterior", "how a violated constraint acts", choices=("posterior", "hard"))
    tolerance: float = setting(0.5, "tolerance tau_c on every limit", low=0.0, high=1e9)
    margin: float = setting(0.0, "share of each limit kept in reserve", low=0.0, high=1.0)
    window: int = setting(16, "finished episodes W in the constraint estimate", low=1, high=100_000)
    weight_initial: float = setting(0.2, "posterior: first weight of each constraint", low=0.0, high=1e6)
    weight_min: float = setting(0.05, "posterior: smallest weight of a constraint", low=0.0, high=1e6)
    weight_max: float = setting(20.0, "posterior: largest weight of a constraint", low=0.0, high=1e6)
    weight_growth: float = setting(
        0.012, "posterior: growth of a violated constraint's weight per rollout", low=0.0, high=10.0
    )
    weight_decay: float = setting(
        0.0024, "posterior: decay of a satisfied constraint's weight per rollout", low=0.0, high=10.0
    )


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Resolved, `algo_options` holds every setting of the algorithm."""

    task: str = setting("cartpole", "name of a task, a Gymnasium id, or bridge:ID")
    algo: str = setting("orpo-dr", "name of an algorithm")
    steps: int = setting(200_000, "environment steps of each seed", low=1, high=10**12)
    seeds: int = setting(10, "number of seeds", low=1, high=100_000)
    seed: int = setting(0, "first seed", low=0, high=2**31 - 1)
    preset: str = setting("default", "name of a set of defaults")
    task_options: Mapping[str, Any] = field(default_factory=dict)
    algo_options: Mapping[str, Any] = field(default_factory=dict)
    cost_limits: tuple[float, ...] | None = setting(None, "limits of the costs, instead of the task's", low=0.0)
    cost_sum_limit: float | None = setting(None, "one limit on the sum of all costs", low=0.0)
    cost_fn: str | None = setting(None, "MODULE:FUNCTION that computes the costs of a Gymnasium environment")
    seed_axis: str = setting("auto", "how seeds run together", choices=("auto", "map", "vmap"))


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the type `hint`, or say what was expected."""
    text = str(hint)
    if value is None and "None" in text:
        return None
    if text.startswith("tuple"):
        element = int if "int" in text else float
        if isinstance(value, str) or not isinstance(value, Sequence):
            value = (value,)
        return tuple(_coerce(name, v, element) for v in value)
    if hint is float or "float" in text:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name}={value!r} is not a number.")
        if not math.isfinite(value):
            raise ConfigError(f"{name}={value!r} is not finite.")
        return float(value)
    if hint is int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name}={value!r} is not a whole number.")
        return value
    if (hint is str or "str" in text) and "Mapping" not in text and not isinstance(value, str):
        raise ConfigError(f"{name}={value!r} is not a name.")
    return value


def check_config(config: T) -> T:
    """Return the configuration with its values coerced to their types, or raise `ConfigError` for the first bad one."""
    hints = get_type_hints(type(config))
    values = {}
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value = _coerce(item.name, getattr(config, item.name), hints[item.name])
        low, high, choices = (item.metadata.get(k) for k in ("low", "high", "choices"))
        for element in value if isinstance(value, tuple) else (value,):
            if element is None or isinstance(element, Mapping):
                continue
            if (low is not None and element < low) or (high is not None and element > high):
                bounds = f">= {low:g}" if high is None else f"between {low:g} and {high:g}"
                raise ConfigError(f"{item.name}={element!r} is out of range: expected a value {bounds}.")
            if choices and element not in choices and not (item.metadata.get("path") and ":" in element):
                raise ConfigError(
                    f"{item.name}={element!r} is not one of {', '.join(choices)}.{did_you_mean(str(element), choices)}"
                )
        values[item.name] = value
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def config_from_mapping(kind: type[T], values: Mapping[str, Any], owner: str) -> T:
    """Build and check a configuration from names and values; an unknown name gets a suggestion."""
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise UnknownNameError(f"{owner} has no option '{name}'.{did_you_mean(name, names)}")
    # JSON has lists where a setting is a tuple.
    return check_config(kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}))


def parse_value(text: str) -> Any:
    """Read an option's value from the command line: JSON where it is JSON, `a,b,c` a tuple, otherwise the text."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return tuple(parse_value(part) for part in text.split(",") if part)
    return text


def fingerprint(config: TrainConfig) -> str:
    """A short hash of everything that decides the numbers of a run."""
    text = json.dumps(dataclasses.asdict(config), sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
