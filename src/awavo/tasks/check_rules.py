"""What a random rollout of a Gymnasium environment must satisfy: values, flags, and the cost contract."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from awavo.checks import all_finite

__all__ = ["Finding", "Report", "Trace", "observe", "watch_step"]

REPORT_COST = (
    "Put a Python float into info['cost'] (several: float32 info['costs'] of shape (C,), or info['cost_<name>']) on "
    "every step, 0.0 when there is none, or pass a cost function."
)
AUTORESET_KEYS = ("final_obs", "final_observation", "terminal_observation", "final_info")


class Finding(NamedTuple):
    """One problem; `level` is "error" (training would fail or learn nonsense), "warning" or "info"."""

    level: str
    problem: str
    remedy: str


class Report:
    """Findings in order, the first of each kind only."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def errors(self) -> bool:
        """Whether an error was found."""
        return any(f.level == "error" for f in self.findings)

    def error(self, problem: str, remedy: str) -> None:
        """Note an error."""
        self._add(Finding("error", problem, remedy))

    def warning(self, problem: str, remedy: str) -> None:
        """Note a warning."""
        self._add(Finding("warning", problem, remedy))

    def info(self, problem: str, remedy: str) -> None:
        """Note something worth knowing."""
        self._add(Finding("info", problem, remedy))

    def _add(self, finding: Finding) -> None:
        # Problems carry numbers of the step: the remedy is what makes two of a kind.
        if all(f.remedy != finding.remedy for f in self.findings):
            self.findings.append(finding)


class Trace:
    """A rollout as lists; `lengths` and `ends` have one entry for each finished episode."""

    def __init__(self, space: spaces.Space, limit: int | None, num_costs: int | None, need_costs: bool):
        self.space, self.limit, self.num_costs, self.need_costs = space, limit, num_costs, need_costs
        self.starts: list[np.ndarray] = []
        self.start_infos: list[dict] = []
        self.obs: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.next_obs: list[np.ndarray] = []
        self.rewards: list[float] = []
        self.infos: list[dict] = []
        self.costs: list[np.ndarray] = []
        self.episode: list[int] = []
        self.ends: list[tuple[int, bool, bool]] = []
        self.keys: tuple[str, ...] | None = None
        self.time = 0
        self.last: object = None

    def begin(self, obs: object, info: dict) -> None:
        """Start an episode."""
        self.last, self.time = obs, 0
        self.starts.append(flat(self.space, obs))
        self.start_infos.append(info)


def flat(space: spaces.Space, obs: object) -> np.ndarray:
    """A flattened copy of an observation."""
    return np.array(spaces.flatten(space, obs), np.float64)


def observe(space: spaces.Space, obs: object, where: str, report: Report) -> None:
    """Check one observation against its space."""
    if space.contains(obs) and not _not_finite(space, obs):
        return
    if not isinstance(space, spaces.Box):
        report.error(
            f"{where}: expected an observation of {space}, saw {obs!r}.", "Return what observation_space declares."
        )
        return
    array = np.asarray(obs)
    if array.shape != space.shape:
        report.error(
            f"{where}: expected an observation of shape {space.shape}, saw {array.shape}.",
            "Make the observation and the shape of observation_space agree.",
        )
    elif _not_finite(space, obs):
        report.error(
            f"{where}: expected finite observations, saw {array}.", "Find the NaN or infinity in the dynamics."
        )
    elif not isinstance(obs, np.ndarray) or not np.can_cast(array.dtype, space.dtype or array.dtype):
        report.warning(
            f"{where}: expected an observation of dtype {space.dtype}, saw {type(obs).__name__} of {array.dtype}.",
            "Cast the observation to observation_space.dtype, np.float32 for most.",
        )
    else:
        index = int(np.argmax((array < space.low) | (array > space.high)))
        low, high, value = space.low.flat[index], space.high.flat[index], array.flat[index]
        report.warning(
            f"{where}: expected component {index} of the observation in [{low:g}, {high:g}], saw {value:g}.",
            "Widen observation_space or clip the observation.",
        )


def _not_finite(space: spaces.Space, obs: object) -> bool:
    array = np.asarray(obs) if isinstance(space, spaces.Box) else np.zeros(1)
    return array.dtype.kind == "f" and not all_finite(array)


def watch_step(trace: Trace, action: object, result: tuple, report: Report) -> None:
    """Check one step and add it to the trace."""
    obs, reward, terminated, truncated, info = result
    observe(trace.space, obs, "step()", report)
    # A buffer that is written again would change what a replay has stored.
    if isinstance(obs, np.ndarray) and obs is trace.last:
        report.error("step(): expected a new observation, saw the same array again.", "Return a copy: obs.copy().")
    value = float(reward) if isinstance(reward, Real | np.floating | np.integer) else math.nan
    if not math.isfinite(value):
        report.error(f"step(): expected a finite float reward, saw {reward!r}.", "Return float(reward).")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            report.error(
                f"step(): expected {name} to be a bool, saw {type(flag).__name__}.", "Return bool(...) for both flags."
            )
    if not isinstance(info, dict):
        report.error(
            f"step(): expected info to be a dictionary, saw {type(info).__name__}.", "Return a dictionary, {} at least."
        )
        info = {}
    hidden = [key for key in AUTORESET_KEYS if key in info]
    if hidden:
        report.error(
            f"step(): expected no reset inside a single environment, saw info['{hidden[0]}'].",
            "Return the last observation of the episode and leave the reset to the caller or the vector environment.",
        )
    trace.time += 1
    trace.obs.append(flat(trace.space, trace.last))
    trace.actions.append(np.array(action))
    trace.next_obs.append(flat(trace.space, obs))
    trace.rewards.append(value)
    trace.infos.append(info)
    trace.costs.append(watch_costs(trace, info, report))
    trace.episode.append(len(trace.starts) - 1)
    trace.last = obs
    if terminated or truncated:
        trace.ends.append((trace.time, bool(terminated), bool(truncated)))


def cost_keys(info: Mapping[str, object]) -> tuple[str, ...]:
    """Entries of `info` that hold costs."""
    return tuple(sorted(k for k in info if k in ("cost", "costs") or k.startswith("cost_")))


def watch_costs(trace: Trace, info: Mapping[str, object], report: Report) -> np.ndarray:
    """Check the costs of one step; return those a host environment would read."""
    keys = cost_keys(info)
    if not keys and trace.need_costs:
        report.error(f"step(): expected costs in info, saw the keys {sorted(info)}.", REPORT_COST)
    if trace.keys is not None and keys != trace.keys and trace.need_costs:
        report.error(
            f"step(): expected the cost entries {list(trace.keys)} on every step, saw {list(keys)}.",
            "Report every cost on every step, 0.0 when there is none.",
        )
    trace.keys = keys if trace.keys is None else trace.keys
    for key in keys:
        _check_type(key, info[key], trace, report)
    numbers = {key: np.ravel(np.asarray(info[key], np.float64)) for key in keys if _is_numeric(info[key])}
    if "costs" in numbers and "cost" in numbers and not np.allclose(numbers["costs"].sum(), numbers["cost"], atol=1e-4):
        report.warning(
            f"step(): expected info['cost'] to be the sum of info['costs'] {numbers['costs']}, saw {numbers['cost']}.",
            "Set info['cost'] = float(info['costs'].sum()): tools that know one cost read that entry.",
        )
    chosen = next((numbers[key] for key in ("costs", "cost") if key in numbers), None)
    return np.concatenate([*numbers.values(), np.zeros(0)]) if chosen is None else chosen


def _is_numeric(value: object) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:
        return False


def _check_type(key: str, value: object, trace: Trace, report: Report) -> None:
    shown = f"info['{key}']"
    if not _is_numeric(value):
        report.error(f"step(): expected numbers in {shown}, saw {value!r}.", REPORT_COST)
        return
    array = np.asarray(value)
    if key == "costs":
        if array.ndim != 1 or (trace.num_costs is not None and array.shape != (trace.num_costs,)):
            report.error(
                f"step(): expected {shown} of shape ({trace.num_costs or 'C'},), saw {array.shape}.",
                "Report one entry for each cost, always the same number.",
            )
        trace.num_costs = array.size if trace.num_costs is None else trace.num_costs
    elif array.ndim != 0 and (key, array.shape) != ("cost", (1,)):
        report.error(
            f"step(): expected a float in {shown}, saw shape {array.shape}.", "Put an array into info['costs'] instead."
        )
    if array.dtype.kind != "f" or (key == "costs" and not isinstance(value, np.ndarray)):
        report.warning(
            f"step(): expected floats in {shown}, saw {type(value).__name__} of {array.dtype}.",
            "Report float(cost) or a float32 array: stacked, costs take the first one's type, and 0.7 becomes 0.",
        )
