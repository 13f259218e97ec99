"""Policies explained in words: mean influence of every factor, with an interval over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from awavo.explain.run_explanation import PolicyTrace

__all__ = ["NECESSITY", "policy_costs", "policy_notes", "policy_summary"]

NECESSITY = (
    "Necessity is the least probability that the action taken would have been another one without the factor; over all "
    "actions, each with its own probability, it averages to the influence."
)


def _interval(values: Sequence[float]) -> dict[str, float]:
    """Mean with a 95% bootstrap interval over episodes."""
    drawn = np.array(values)[np.random.default_rng(0).integers(0, len(values), (2000, len(values)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def policy_summary(traces: Sequence[PolicyTrace], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return mean (95% bootstrap over the episodes of all seeds), largest value, necessity and share by factor."""
    episodes = [(trace, e, trace.running[e]) for trace in traces for e in range(len(trace.running))]
    found = {}
    for i, name in enumerate(names):
        values = [trace.influence[e, on, i] for trace, e, on in episodes]
        found[name] = {
            **_interval([float(v.mean()) for v in values]), "largest": max(float(v.max()) for v in values),
            "necessity": _interval([float(trace.necessity[e, on, i].mean()) for trace, e, on in episodes]),
            "share": float(np.mean([trace.shares[e, on, i].mean() for trace, e, on in episodes])),
            "episodes": len(values),
        }  # fmt: skip
    return found


def policy_costs(traces: Sequence[PolicyTrace], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the cost of an explained (pushed) episode, by name."""
    sums = [trace.costs[e, trace.running[e]].sum(0) for trace in traces for e in range(len(trace.running))]
    return {name: _interval([float(x[i]) for x in sums]) for i, name in enumerate(names)}


def policy_notes(plans: bool) -> list[str]:
    """Say what this explanation leaves open."""
    notes = [
        "the policy is asked what it would do if it saw something else: how it came to be trained so is not explained",
        "influences hold for the distribution whose most probable action is the greedy one, not for that action alone",
    ]
    if plans:
        notes.append("this algorithm decides by planning: its actor is explained here, not its planner's posterior")
    return notes
