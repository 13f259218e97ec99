"""Checks that the rooms share, of numbers and names that come from outside. No jax: host environments need none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from awavo.errors import InputError, plural

__all__ = [
    "LARGEST", "LARGEST_SEED", "MOST_EPISODES", "all_finite", "all_usable", "check_choice", "check_limits",
    "check_physics", "check_range", "check_seconds", "check_size", "check_whole",
]  # fmt: skip

LARGEST_SEED = 2**31 - 1
MOST_EPISODES = 1_000_000
"""Episodes of a seed that one evaluation plays at most."""
LARGEST = 1e30
"""Beyond this a number from an environment is taken for a fault: its square overflows what networks compute in."""
PHYSICS = (1e-9, 1e6)
"""Sizes that single precision can divide by and square."""


def all_finite(*values: ArrayLike) -> bool:
    """Whether no entry of the numbers or arrays is NaN or infinite."""
    return all(bool(np.isfinite(value).all()) for value in values)


def all_usable(values: ArrayLike) -> bool:
    """Whether every entry is a finite number of at most `LARGEST`."""
    return bool((np.abs(np.asarray(values)) <= LARGEST).all())  # NaN compares as false


def check_size(name: str, value: float) -> float:
    """Return the value, which must be a finite number >= 0."""
    if not all_finite(value) or value < 0:
        raise InputError(f"{name} is {value}, expected a finite number >= 0.")
    return float(value)


def check_seconds(name: str, value: object) -> float:
    """Return a time, which must be a finite number of seconds >= 0."""
    seconds = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not 0 <= seconds <= LARGEST:  # False for NaN too
        raise InputError(f"{name} is {value!r}, expected a finite number of seconds >= 0.")
    return seconds


def check_range(name: str, value: float, low: float, high: float) -> float:
    """Return the value, which must be a number from `low` to `high`, both included."""
    if not low <= value <= high:  # False for NaN too
        shown = f"{value:g}" if isinstance(value, float) else str(value) if abs(value) < 10**18 else "a huge number"
        ends = [f"{end:g}" if isinstance(end, float) else str(end) for end in (low, high)]
        raise InputError(f"{name} {shown} is out of range: expected a value between {ends[0]} and {ends[1]}.")
    return value


def check_whole(name: str, value: object, low: int, high: int) -> int:
    """Return a whole number, NumPy's too, from `low` to `high`, both included."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name} is {value!r}, expected a whole number.")
    return int(check_range(name, int(value), low, high))


def check_limits(limits: Sequence[float], names: Sequence[str]) -> tuple[float, ...]:
    """Return one limit for each cost as floats, or say what is wrong with them."""
    limits = tuple(float(b) for b in limits)
    if len(limits) != len(names):
        raise InputError(
            f"{plural(len(limits), 'cost limit')} given, but the task has {plural(len(names), 'cost')} "
            f"({', '.join(names)}): give one limit for each."
        )
    return tuple(check_size(f"the limit of cost '{name}'", limit) for name, limit in zip(names, limits, strict=True))


def check_physics(params: Any, positive: Sequence[str] = (), signed: Sequence[str] = ()) -> None:
    """Refuse parameters of a task that are no physics; those not named may be zero, and none may be negative."""
    small, large = PHYSICS
    for name, value in params._asdict().items():
        low = small if name in positive else -large if name in signed else 0.0
        if not all(low <= number <= large for number in np.ravel(value).tolist()):  # NaN compares as false
            raise InputError(f"{name}={value} is out of range: expected a number between {low:g} and {large:g}.")


def check_choice(keyword: str, value: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the choices."""
    if value not in choices:
        raise InputError(f"{keyword}={value!r} is not one of {', '.join(map(repr, choices))}.")
    return value
