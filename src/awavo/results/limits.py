"""The ONE rule of what "within limits" means, for every command, table and page.

A seed is within its limits if the mean of every cost over its episodes is at most the limit. A run is within its limits
if all of its seeds are, or as many as `require` asks for. `slack` (the paper's tolerance tau_c) raises every limit; it
is 0 unless somebody asks for it, and whatever was judged with it says so.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from awavo.errors import InputError, plural
from awavo.types import FieldsView

__all__ = ["STRICT", "LimitRule"]


@dataclass(frozen=True)
class LimitRule:
    """What a cost may exceed its limit by, and how many seeds must keep theirs: `all`, a share (`80%`) or a number."""

    slack: float = 0.0
    require: str = "all"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slack) and self.slack >= 0):
            raise InputError(f"slack={self.slack:g}: expected a number >= 0, in units of the costs.")
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", self.require)
        positive = (share and 0 < float(share[1]) <= 100) or (self.require.isdecimal() and int(self.require) > 0)
        if self.require != "all" and not positive:
            raise InputError(f"require='{self.require}': expected all, a share such as 80%, or a number of seeds.")

    def seeds_within(self, costs: ArrayLike, limits: ArrayLike) -> NDArray[np.bool_]:
        """Say for each seed of mean costs `[S, C]` whether it is within its limits `[C]`."""
        means, bounds = _checked(costs, limits)
        return np.asarray((means <= bounds + self.slack).all(axis=1))

    def count_within(self, entry: FieldsView) -> int:
        """Number of seeds within their limits in an entry of evaluation.json, whatever rule it was written with."""
        figures = entry["costs"].values()
        table = [figure["per_seed"] for figure in figures]
        return int(self.seeds_within(np.array(table, float).T, [figure["limit"] for figure in figures]).sum())

    def excess(self, costs: ArrayLike, limits: ArrayLike) -> NDArray[np.float64]:
        """By what share of its limit the worst cost of each seed exceeds it; 0 within, absolute where a limit is 0."""
        means, bounds = _checked(costs, limits)
        over = (means - bounds - self.slack) / np.where(bounds > 0, bounds, 1.0)
        return np.maximum(over, 0.0).max(axis=1, initial=0.0)

    def needed(self, num_seeds: int) -> int:
        """Number of seeds that must be within for a run of `num_seeds` to be."""
        if self.require == "all":
            return num_seeds
        if self.require.endswith("%"):
            # However small the share: a run without any seed within its limits is not within them.
            return max(1, math.ceil(float(self.require[:-1]) / 100 * num_seeds - 1e-9))
        return int(self.require)

    def require_seeds(self, num_seeds: int) -> None:
        """Refuse a rule that asks for more seeds than there are."""
        if self.needed(num_seeds) > num_seeds:
            raise InputError(f"require='{self.require}' can never hold: the run has {plural(num_seeds, 'seed')}.")

    def holds(self, num_within: int, num_seeds: int) -> bool:
        """Whether a run with that many seeds within is within its limits."""
        return num_within >= self.needed(num_seeds)

    @property
    def seed_text(self) -> str:
        """The rule for one seed, as a clause."""
        return f"mean cost <= limit{f' + {self.slack:g} (slack)' if self.slack else ''}"

    @property
    def text(self) -> str:
        """The whole rule, as shown beside a verdict."""
        seeds = {"all": "all seeds"}.get(self.require, f"at least {self.require} of the seeds")
        return f"within limits: {self.seed_text}, in {seeds}"


STRICT = LimitRule()
"""Mean cost at most the limit, in all seeds: the default everywhere."""


def _checked(costs: ArrayLike, limits: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    means, bounds = np.asarray(costs, float), np.asarray(limits, float)
    if means.ndim != 2 or bounds.shape != means.shape[1:]:
        raise InputError(f"costs {means.shape} and limits {bounds.shape} do not match: expected [S, C] and [C].")
    return means, bounds
