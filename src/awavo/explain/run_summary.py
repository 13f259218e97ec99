"""Policies explained in words: mean influence of every factor, with an interval over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from awavo.explain.run_explanation import PolicyTrace

__all__ = ["policy_notes", "policy_summary"]


def policy_summary(traces: Sequence[PolicyTrace], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return mean (95% bootstrap over the episodes of all seeds), largest value and mean share of every factor."""
    rng = np.random.default_rng(0)
    found = {}
    for i, name in enumerate(names):
        means, shares, largest = [], [], 0.0
        for trace in traces:
            for e in range(len(trace.running)):
                on = trace.running[e]
                means.append(float(trace.influence[e, on, i].mean()))
                shares.append(float(trace.shares[e, on, i].mean()))
                largest = max(largest, float(trace.influence[e, on, i].max()))
        drawn = np.array(means)[rng.integers(0, len(means), (2000, len(means)))].mean(1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        found[name] = {
            "mean": float(np.mean(means)), "low": float(low), "high": float(high), "largest": largest,
            "share": float(np.mean(shares)), "episodes": len(means),
        }  # fmt: skip
    return found


def policy_notes(plans: bool) -> list[str]:
    """Say what this explanation leaves open."""
    notes = [
        "the policy is asked what it would do if it saw something else: how it came to be trained so is not explained",
        "influences hold for the law whose most probable action is the greedy one, not for that action alone",
    ]
    if plans:
        notes.append("this algorithm decides by planning: its actor is explained here, not its planner's posterior")
    return notes
