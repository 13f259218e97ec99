"""The budgets of every figure, read from one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.types import Fields

__all__ = ["BUDGETS", "budget", "check_names", "tasks_table"]

BUDGETS = ("quick", "full")


@lru_cache(maxsize=1)
def _table() -> Fields:
    return json.loads(resources.files("awavo.paper").joinpath("budgets.json").read_text())


def budget(figure: str, size: str) -> Fields:
    """What a figure may spend: its number of seeds and its jobs or settings."""
    if size not in BUDGETS:
        raise UnknownNameError(f"no budget is named '{size}'.{did_you_mean(size, BUDGETS)}")
    return _table()[figure][size]


def tasks_table(figure: str = "learning") -> dict[str, Fields]:
    """Limits and the return that counts as good, of every task of a comparison (learning or safety)."""
    return _table()[figure]["tasks"]


def check_names(given: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """The names asked for, in the table's order; all of them where none was."""
    for name in given or ():
        if name not in known:
            raise UnknownNameError(f"no {what} of this figure is named '{name}'.{did_you_mean(name, known)}")
    found = [name for name in known if not given or name in given]
    if not found:
        raise InputError(f"no {what} is left: expected some of {', '.join(known)}.")
    return found
