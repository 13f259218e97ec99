r"""Latent factors: what each removes from the planner's model, and the coalitions of those that are left.

A coalition is a bit mask: bit i is set where factor i is present. The full mask is the planner's own model, 0 the model
with every factor removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from awavo.errors import InputError

__all__ = ["Factor", "check_factors", "coalition_models", "full_mask", "without"]

MAX_FACTORS = 6


class Factor(NamedTuple):
    """A named part of the planner's model. `remove(model)` returns the model without it, and leaves its draws alone."""

    name: str
    remove: Callable[[Any], Any]
    about: str = ""


def check_factors(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """Return the factors, or say what is wrong with them."""
    names = [factor.name for factor in factors]
    if not names:
        raise InputError("no factor was given: expected at least one Factor(name, remove).")
    if len(set(names)) < len(names):
        raise InputError(f"factors {', '.join(names)} do not have different names.")
    if len(names) > MAX_FACTORS:
        raise InputError(f"{len(names)} factors have {2 ** len(names)} coalitions: give at most {MAX_FACTORS}.")
    return tuple(factors)


def full_mask(num: int) -> int:
    """Return the coalition in which every factor is present."""
    return 2**num - 1


def without(num: int, index: int) -> int:
    """Return the coalition that misses factor `index` alone."""
    return full_mask(num) & ~(1 << index)


def coalition_models(factors: Sequence[Factor], model: Any) -> list[Any]:
    """Return the model of every coalition, by mask."""
    models = []
    for mask in range(2 ** len(factors)):
        kept = model
        for index, factor in enumerate(factors):
            if not mask >> index & 1:
                kept = factor.remove(kept)
        models.append(kept)
    return models
