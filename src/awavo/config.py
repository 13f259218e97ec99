"""Settings as frozen dataclasses with checked fields; JSON in and out; a fingerprint.

Those of a run are here, those of an algorithm, or of a part of one, beside what they set.
A field is declared with `setting`, which carries its help text and the values it accepts. Values are checked by
`check_config` before anything is compiled or written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from awavo.errors import ConfigError, UnknownNameError, did_you_mean
from awavo.types import Fields, FieldsView

__all__ = [
    "TrainConfig",
    "check_config",
    "config_from_mapping",
    "fingerprint",
    "parse_value",
    "plain",
    "setting",
    "stored_fingerprint",
    "without_retired",
]

T = TypeVar("T")
LONGEST_VALUE = 10_000  # characters of an option's value
RETIRED = {"num_steps": 4}  # settings of algorithms that became constants


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
class TrainConfig:
    """One training run. Resolved, `algo_options` holds every setting of the algorithm."""

    task: str = setting("cartpole", "name of a task, a Gymnasium id, or bridge:ID")
    algo: str = setting("orpo-dr", "name of an algorithm")
    steps: int = setting(200_000, "environment steps of each seed", low=1, high=10**12)
    seeds: int = setting(10, "number of seeds", low=1, high=100_000)
    seed: int = setting(0, "first seed", low=0, high=2**31 - 1)
    preset: str = setting("default", "name of a set of defaults")
    task_options: FieldsView = field(default_factory=dict)
    algo_options: FieldsView = field(default_factory=dict)
    cost_limits: tuple[float, ...] | None = setting(None, "limits of the costs, instead of the task's", low=0.0)
    cost_sum_limit: float | None = setting(None, "one limit on the sum of all costs", low=0.0)
    cost_fn: str | None = setting(None, "MODULE:FUNCTION that computes the costs of a Gymnasium environment")
    seed_axis: str = setting("auto", "how seeds run together", choices=("auto", "map", "vmap"))


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays, also in a list, as Python's, which JSON and a fingerprint take."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    return value.tolist() if hasattr(value, "tolist") else value


def _coerce(name: str, value: object, hint: Any) -> Any:
    """Return `value` as the type `hint`, or say what was expected."""
    text, value = str(hint), plain(value)
    if value is None and "None" in text:
        return None
    if text.startswith("tuple"):
        element = int if "int" in text else float
        if isinstance(value, str) or not isinstance(value, Sequence):
            value = (value,)
        return tuple(_coerce(name, v, element) for v in value)
    if hint is float or "float" in text:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name}={_short(value)} is not a number.")
        # Python's whole numbers have no end, those of a float do.
        if not abs(value) < 1e300:
            raise ConfigError(f"{name}={_short(value)} is not finite.")
        return float(value)
    if hint is int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name}={_short(value)} is not a whole number.")
        return value
    if (hint is str or "str" in text) and "Mapping" not in text and not isinstance(value, str):
        raise ConfigError(f"{name}={_short(value)} is not a name.")
    return value


def _short(value: object) -> str:
    """A value in an error's line, which must stay one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, lists in lists without end
        return f"({type(value).__name__})"
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_config(config: T) -> T:
    """Return the configuration with its values coerced to their types, or raise `ConfigError` for the first bad one."""
    found = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}  # type: ignore[arg-type]
    checked = dataclasses.replace(config, **_checked(type(config), found))  # type: ignore[type-var]
    _check_seeds(checked)
    return checked


def _check_seeds(config: object) -> None:
    if isinstance(config, TrainConfig) and config.seed + config.seeds > 2**31:
        raise ConfigError(
            f"seed={config.seed} with seeds={config.seeds} ends above {2**31 - 1}: start lower, or train fewer seeds."
        )


def _checked(kind: type[Any], given: FieldsView) -> Fields:
    """The values given for fields of a class, coerced to their types."""
    hints = get_type_hints(kind)
    values = {}
    for item in (own for own in dataclasses.fields(kind) if own.name in given):
        value = _coerce(item.name, given[item.name], hints[item.name])
        low, high, choices = (item.metadata.get(k) for k in ("low", "high", "choices"))
        for element in value if isinstance(value, tuple) else (value,):
            if element is None or isinstance(element, Mapping):
                continue
            if (low is not None and element < low) or (high is not None and element > high):
                bounds = f">= {low:g}" if high is None else f"between {low:g} and {high:g}"
                raise ConfigError(f"{item.name}={_short(element)} is out of range: expected a value {bounds}.")
            if choices and element not in choices and not (item.metadata.get("path") and ":" in element):
                raise ConfigError(
                    f"{item.name}={_short(element)} is not one of {', '.join(choices)}."
                    f"{did_you_mean(str(element), choices)}"
                )
        values[item.name] = value
    return values


def config_from_mapping(kind: type[T], values: FieldsView, owner: str) -> T:
    """Build and check a configuration from names and values; an unknown name gets a suggestion."""
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise UnknownNameError(f"{owner} has no option '{name}'.{did_you_mean(name, names)}")
    return kind(**_checked(kind, values))


def without_retired(stored: FieldsView) -> Fields:
    """The content of a config.json without settings that are constants now, where they had that value."""
    options = stored.get("algo_options")
    if not isinstance(options, Mapping):
        return dict(stored)
    kept = {name: value for name, value in options.items() if name not in RETIRED or RETIRED[name] != value}
    return {**stored, "algo_options": kept}


def parse_value(text: str) -> Any:
    """Read an option's value from the command line: JSON where it is JSON, `a,b,c` a tuple, otherwise the text."""
    if len(text) > LONGEST_VALUE:
        raise ConfigError(f"the value {_short(text)} has {len(text)} characters, at most {LONGEST_VALUE} are read.")
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        raise ConfigError(f"the value {_short(text)} holds lists in lists without end.") from None
    if "," in text:
        return tuple(parse_value(part) for part in text.split(",") if part)
    return text


def fingerprint(config: TrainConfig) -> str:
    """A short hash of everything that decides the numbers of a run."""
    return stored_fingerprint(dataclasses.asdict(config))


def stored_fingerprint(config: FieldsView) -> str:
    """The fingerprint of a configuration as config.json holds it, whichever version wrote it."""
    text = json.dumps(config, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
