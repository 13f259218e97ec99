"""What a run achieved: its evaluation if there is one, else the end of its training, always labelled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from awavo.errors import InputError, RunFolderError
from awavo.results.limits import STRICT, LimitRule
from awavo.results.statistics import mean_estimate, stratified_bootstrap
from awavo.results.store import RunData
from awavo.types import Estimate, Fields

__all__ = ["MODES", "TRAINING", "Outcome", "device_text", "format_estimate", "format_number", "outcome_of", "verdict"]

MODES = ("greedy", "stochastic")
TRAINING = "last 10% of training episodes"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Per-seed figures `[S]` and `[S, C]` of one run, with where they come from."""

    source: str
    evaluated: bool
    seeds: list[int]
    returns: Floats
    costs: Floats
    lengths: Floats
    names: tuple[str, ...]
    limits: tuple[float, ...]
    env_steps: int
    episodes_per_seed: float
    entry: Fields | None
    rule: LimitRule

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each seed is within its limits."""
        return self.rule.seeds_within(self.costs, self.limits)

    @property
    def feasible_seeds(self) -> int:
        """Number of seeds within their limits."""
        return int(self.feasible.sum())

    @property
    def is_within(self) -> bool:
        """Whether as many seeds as the rule requires are within their limits."""
        return self.rule.holds(self.feasible_seeds, len(self.seeds))

    def iqm(self, name: str = "return") -> Estimate:
        """IQM over seeds of the return, the length or a cost."""
        return stratified_bootstrap(self.values(name), "iqm")

    def mean(self, name: str = "return") -> Estimate:
        """Mean over seeds; the interval recorded by the evaluation where there is one."""
        estimate = mean_estimate(self.values(name))
        if self.entry is None or len(self.seeds) > 1:
            return estimate
        figure = self.entry[name] if name in ("return", "length") else self.entry["costs"][name]
        return Estimate(
            estimate.value, _number(figure["low"]), _number(figure["high"]), 1, self.entry.get("method", "")
        )

    def values(self, name: str) -> Floats:
        """Per-seed values of the return, the length or a cost."""
        if name in ("return", "length"):
            return self.returns if name == "return" else self.lengths
        return self.costs[:, self.names.index(name)]


def outcome_of(run: RunData, mode: str = "greedy", rule: LimitRule = STRICT) -> Outcome:
    """Take the evaluation of this mode, or the last tenth of the training episodes if the run has none."""
    if mode not in MODES:
        raise InputError(f"mode is '{mode}': expected 'greedy' or 'stochastic'.")
    if run.evaluation is None or mode not in run.evaluation:
        return _from_training(run, rule)
    entry = run.evaluation[mode]
    try:
        returns = _numbers(entry["return"]["per_seed"])
        costs = [_numbers(entry["costs"][name]["per_seed"]) for name in run.cost_names]
        lengths = _numbers(entry["length"]["per_seed"])
        table = np.stack(costs, axis=1) if costs else np.zeros((len(returns), 0))
        facts = int(entry["env_steps"]), float(entry["episodes_per_seed"])
        _check_rates(entry.get("violation_rate") or {})
        if len(returns) == 1:  # its interval is the one recorded
            figures = [entry["return"], entry["length"], *(entry["costs"][name] for name in run.cost_names)]
            _numbers([figure[end] for figure in figures for end in ("low", "high")])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunFolderError(f"'{run.path}/evaluation.json' is damaged ({error!r}): evaluate the run again.") from error
    first = int(run.config.get("seed", 0))
    seeds = run.seeds if len(run.seeds) == len(returns) else [first + index for index in range(len(returns))]
    source = f"{mode} evaluation"
    return Outcome(source, True, seeds, returns, table, lengths, run.cost_names, run.cost_limits, *facts, entry, rule)


def _check_rates(rates: Any) -> None:
    """Refuse shares of single episodes that are no table of numbers."""
    for name, figure in rates.items():
        for key, value in (figure or {}).items():
            if value is not None and not isinstance(value, int | float | list):
                raise ValueError(f"the violation rate of {name} has {key}={value!r:.40}")


def _from_training(run: RunData, rule: LimitRule) -> Outcome:
    """Per-seed means of the episodes that ended in the last tenth of the steps, or of a seed's last ones before it."""
    ended = pl.col("env_steps")
    late = run.episodes.filter((ended > 0.9 * run.env_steps) | (ended == ended.max().over("seed")))
    # A seed that is left out would make a run look as if all of its seeds were within limits.
    without = sorted(set(run.seeds) - set(late["seed"].to_list()))
    if late.is_empty() or without:
        whose = f" of seed {without[0]}" if without else ""
        raise RunFolderError(
            f"'{run.path}' has no finished episode{whose} to report: train longer, or evaluate it first."
        )
    columns = ["return", "length", *(f"cost_{name}" for name in run.cost_names)]
    means = (
        late.group_by("seed").agg(*(pl.col(name).cast(pl.Float64).mean() for name in columns), pl.len()).sort("seed")
    )
    costs = means.select(columns[2:]).to_numpy().reshape(means.height, len(run.cost_names))
    returns, lengths = means["return"].to_numpy(), means["length"].to_numpy()
    facts = run.env_steps, late.height / means.height
    seeds = means["seed"].to_list()
    return Outcome(TRAINING, False, seeds, returns, costs, lengths, run.cost_names, run.cost_limits, *facts, None, rule)


def verdict(outcome: Outcome) -> str:
    """One line: how many seeds keep their limits, and the mean return with its interval."""
    total, num = len(outcome.seeds), len(outcome.names)
    limits = {1: "the limit", 2: "both limits"}.get(num, f"all {num} limits")
    seeds = f"{outcome.feasible_seeds} of {total} seed{'s' if total > 1 else ''}"
    kept = f"{seeds} within {limits}" if num else f"{total} seed{'s' if total > 1 else ''}, no limits"
    return f"{kept}; return {format_estimate(outcome.mean())}"


def device_text(run: RunData) -> str:
    """The machine in a few words, each said once."""
    device = run.meta.get("device") or {}
    words = [str(device[key]) for key in ("platform", "kind", "machine", "cpu") if device.get(key)]
    cores = [f"{device['cores']} cores"] if device.get("cores") else []
    return ", ".join(dict.fromkeys([*words, *cores])) or "an unrecorded device"


def format_number(value: float | None, like: float | None = None) -> str:
    """Four significant digits, or as many decimals as `like` gets."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value if like is None or not math.isfinite(like) else like)
    if size != 0 and not 1e-3 <= size < 1e6:
        return f"{value:.3g}"
    decimals = 3 - math.floor(math.log10(size)) if size >= 1e-3 else 1
    return f"{value:.{min(max(decimals, 0), 6)}f}"


def format_estimate(estimate: Estimate) -> str:
    """`198.3 [197.0, 199.4]`, or the value alone where there is no interval."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return format_number(estimate.value)
    # A value of 0 has no digits of its own to go by.
    scale = estimate.value or max(abs(estimate.low), abs(estimate.high))
    value, low, high = (format_number(number, scale) for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: list[Any]) -> Floats:
    return np.array([_number(value) for value in values], float)
