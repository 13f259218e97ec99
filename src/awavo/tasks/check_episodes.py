"""Checks over whole episodes: how they end, and how costs run through them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from awavo.checks import all_finite
from awavo.errors import plural
from awavo.tasks.check_rules import Report, Trace, cost_keys

__all__ = ["check_cost_series", "check_ends", "check_spread", "check_start_infos", "check_totals"]

SMALLEST_SPREAD = 1e-4
"""Standard deviation up to which networks take a component for a constant (`networks.normalizer`)."""


def check_ends(trace: Trace, report: Report) -> None:
    """Time limits, terminated against truncated, and resets hidden in `step`."""
    steps = len(trace.rewards)
    if not trace.ends:
        if trace.limit is None:
            report.error(
                f"step(): expected an episode to end, saw none in {steps} random steps and no time limit.",
                "Give it an attribute horizon = N, or register it with max_episode_steps=N.",
            )
        return
    lengths = [length for length, _, _ in trace.ends]
    if any(terminated and truncated for _, terminated, truncated in trace.ends):
        report.warning(
            "step(): expected terminated or truncated at the end of an episode, saw both.",
            "Report truncated only where the task did not end by itself: only a terminated state has value 0.",
        )
    if trace.limit is not None and max(lengths) > trace.limit:
        report.error(
            f"step(): expected episodes of at most {trace.limit} steps, saw one of {max(lengths)}.",
            "Make the environment's own time limit and max_episode_steps agree.",
        )
    if len(lengths) > 1 and len(set(lengths)) == 1 and all(terminated for _, terminated, _ in trace.ends):
        report.warning(
            f"step(): expected truncated=True when the time is up, saw terminated=True after {lengths[0]} steps "
            f"in all {len(lengths)} episodes.",
            "Report a time limit as truncated: a terminated state has value 0, one cut off by time has not.",
        )
    _check_hidden_reset(trace, report)


def _check_hidden_reset(trace: Trace, report: Report) -> None:
    """An environment that resets itself returns a first observation where the last one belongs."""
    if len(trace.ends) < 3:
        return
    starts = np.array(trace.starts)
    # Where first observations lie, a little widened.
    slack = 0.1 * np.ptp(starts, axis=0) + 1e-6
    low, high = starts.min(0) - slack, starts.max(0) + slack
    last = np.flatnonzero(np.diff(trace.episode, append=trace.episode[-1]))
    inside, before = (
        ((rows >= low) & (rows <= high)).all(-1) for rows in (np.array(trace.next_obs)[last], np.array(trace.obs)[last])
    )
    if inside.mean() > 0.9 and (inside & ~before).mean() > 0.6:
        report.warning(
            "step(): expected the last observation of the episode where it ends, saw one like those of reset().",
            "Do not call reset() inside step(): return the last observation and leave the reset to the caller.",
        )


def check_start_infos(trace: Trace, report: Report) -> None:
    """Costs in the `info` of `reset`."""
    if not trace.keys:
        return
    for info in trace.start_infos:
        if cost_keys(info) != trace.keys:
            report.warning(
                f"reset(): expected {list(trace.keys)} in info as in step(), saw {list(cost_keys(info))}.",
                "Report the costs in reset's info too, as zeros: stacked infos then always have the same entries.",
            )
            return
        totals = [float(np.sum(np.asarray(info[key], np.float64))) for key in trace.keys]
        if any(totals):
            report.error(
                f"reset(): expected costs of 0 in info, saw {totals} for {list(trace.keys)}.",
                "Set the costs to 0 in reset(): nothing was done yet.",
            )
            return


def check_spread(trace: Trace, report: Report) -> None:
    """Components in units so large that they hardly vary: networks centre them, and do not scale them up."""
    spread = np.std(np.array(trace.starts + trace.next_obs), axis=0)
    lost = np.flatnonzero((spread > 0) & (spread <= SMALLEST_SPREAD))
    if len(lost):
        report.warning(
            f"step(): expected components of the observation that vary, saw {plural(len(lost), 'component')} with a "
            f"standard deviation of at most {SMALLEST_SPREAD:g} (component {lost[0]}: {spread[lost[0]]:.2g}).",
            "Observe it in smaller units, so that it varies by about 1: below that a network takes it for a constant.",
        )


def check_cost_series(costs: Float[np.ndarray, "T C"], trace: Trace, report: Report) -> None:
    """Signs, sizes and running totals."""
    if not costs.size:
        return
    if not all_finite(costs):
        report.error("step(): expected finite costs, saw NaN or infinity.", "Find the NaN or infinity in the cost.")
        return
    if costs.min() < 0:
        report.warning(
            f"step(): expected costs >= 0, saw {costs.min():g}.",
            "Shift or clip the cost: a negative one lets a policy buy back violations.",
        )
    if not costs.any():
        report.info(
            f"step(): all costs were 0 in {len(costs)} random steps.",
            "Make sure that the cost can be positive at all; a constraint that is never active teaches nothing.",
        )
    episode = np.array(trace.episode)
    inside = np.diff(episode) == 0
    for column in costs.T:
        _check_running_total(column, inside, report)


def check_totals(costs: Float[np.ndarray, "T C"], limits: Sequence[float], trace: Trace, report: Report) -> None:
    """One limit for each cost, and whether random actions exceed any of them."""
    if len(limits) != costs.shape[1]:
        report.error(
            f"limits: expected {plural(costs.shape[1], 'limit')}, one for each cost, saw {len(limits)}.",
            "Give as many limits as there are costs, in their order.",
        )
        return
    whole = np.array(trace.episode) < len(trace.ends)
    if not whole.any():
        return
    totals = np.zeros((len(trace.ends), costs.shape[1]))
    np.add.at(totals, np.array(trace.episode)[whole], costs[whole])
    if (totals.mean(0) <= limits).all():
        seen, given = ([f"{number:g}" for number in row] for row in (totals.mean(0), limits))
        report.info(
            f"step(): random actions cost {', '.join(seen)} an episode, within the limits {', '.join(given)}.",
            "Make sure that what earns reward costs more than that: a limit that nobody exceeds teaches nothing.",
        )


def _check_running_total(cost: np.ndarray, inside: np.ndarray, report: Report) -> None:
    """A per-step cost goes up and down; a total only goes up."""
    rises = np.diff(cost)
    # Few values or any fall inside an episode: no running total.
    if len(np.unique(cost)) < 4 or (rises[inside] < 0).any():
        return
    if (~inside).any() and (rises[~inside] >= 0).all():
        report.error(
            f"step(): expected the cost of this step, saw a total that runs on through resets, up to {cost.max():g}.",
            "Report the cost of the single step; set what is summed up to 0 in reset().",
        )
    else:
        report.warning(
            f"step(): expected the cost of this step, saw one that only rises in an episode, up to {cost.max():g}.",
            "Report the cost of the single step, not the total so far: totals are summed up by the training loop.",
        )
