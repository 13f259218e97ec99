"""Costs of environments that report none: a user's own function of the transition, and of `info` if it asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from awavo.errors import InputError
from awavo.tasks.patience import watched

__all__ = ["CostFn", "InfoSource", "apply_cost_fn", "find_info", "takes_info"]

# cost_fn(obs, action, next_obs) or cost_fn(obs, action, next_obs, info), with one row for each environment.
CostFn: TypeAlias = Callable[..., Any]


def takes_info(cost_fn: CostFn | None) -> bool:
    """Whether the function has a parameter named `info`."""
    try:
        return cost_fn is not None and "info" in inspect.signature(cost_fn).parameters
    except (TypeError, ValueError):  # of some compiled functions nothing is known
        return False


class InfoSource(NamedTuple):
    """The numbers in the `info` of an environment's steps, by name and shape."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """How many numbers that is."""
        return sum(prod(shape) for _, shape in self.shapes)

    def read(self, info: Mapping[str, object]) -> Float[np.ndarray, " k"]:
        """All of them in a row; NaN where this step does not have an entry, or not as a number of that shape."""
        rows = [np.full(0, np.nan)]
        for name, shape in self.shapes:
            value = _number(info.get(name))
            fits = value is not None and value.shape == shape
            rows.append(value.ravel() if fits else np.full(prod(shape), np.nan))  # pyright: ignore[reportOptionalMemberAccess]
        return np.concatenate(rows)

    def unpack(self, rows: Float[np.ndarray, "E k"]) -> dict[str, np.ndarray]:
        """What a cost function gets: each entry with one row for each environment."""
        ends = np.cumsum([prod(shape) for _, shape in self.shapes])
        parts = np.split(rows, ends[:-1], axis=1) if self.shapes else []
        return {name: part.reshape(-1, *shape) for (name, shape), part in zip(self.shapes, parts, strict=True)}


def find_info(info: Mapping[str, object]) -> InfoSource:
    """What of the `info` of a step is a number or an array of numbers."""
    numbers = {name: _number(value) for name, value in sorted(info.items())}
    return InfoSource(tuple((name, value.shape) for name, value in numbers.items() if value is not None))


def _number(value: object) -> np.ndarray | None:
    if not isinstance(value, bool | int | float | list | tuple | np.ndarray | np.generic):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def apply_cost_fn(
    cost_fn: CostFn,
    obs: np.ndarray,
    action: np.ndarray,
    next_obs: np.ndarray,
    info: Mapping[str, np.ndarray] | None = None,
) -> Float[np.ndarray, "E C"]:
    """Call the user's cost function and bring its result to `[E, C]` float32; `info` goes to one that asks for it."""
    extra = {} if info is None else {"info": info}
    with watched("cost_fn"):
        costs = np.asarray(cost_fn(obs, action, next_obs, **extra), np.float32)
    if costs.ndim not in (1, 2) or costs.shape[0] != obs.shape[0]:
        raise InputError(
            f"cost_fn returned shape {costs.shape}, expected ({obs.shape[0]},) or ({obs.shape[0]}, C): "
            "it is called with a batch, one row for each environment."
        )
    return costs.reshape(obs.shape[0], -1)
