"""Several runs in one picture: each figure with its interval against its limit, and performance profiles."""

from __future__ import annotations

import numpy as np

from awavo.results.charts import look, round_numbers
from awavo.results.compare import Comparison, Group
from awavo.results.outcome import format_estimate
from awavo.results.page import Section, problem_title, render
from awavo.results.statistics import performance_profile
from awavo.types import Estimate, Fields

__all__ = ["aggregate_section", "interval_chart", "profile_chart"]

LEVELS = 60


def aggregate_section(comparison: Comparison) -> Section | None:
    """Interval plots and a profile for every problem that several runs share."""
    groups, charts = [], []
    for number, group in enumerate(comparison.groups):
        if len(group.rows) < 2:
            continue
        named = [("return", "Return (IQM)"), *((name, f"Cost: {name} (mean)") for name in group.limits)]
        made = [interval_chart(f"interval-{number}-{i}", group, *pair) for i, pair in enumerate(named)]
        made.append(profile_chart(f"profile-{number}", group))
        legend = [{"name": row.label, **look(row)} for row in group.rows]
        groups.append({"title": problem_title(group), "charts": made, "legend": legend})
        charts += made
    if not groups:
        return None
    html = render("sections/aggregates.html", groups=groups, several=len(comparison.groups) > 1)
    return Section("aggregates", "Runs side by side", html, charts)


def interval_chart(id: str, group: Group, name: str, title: str) -> Fields:
    """One bar a run: the figure and its 95% interval, for a cost with its limit."""
    rows, told = [], []
    for row in group.rows:
        estimate: Estimate = row.outcome.iqm() if name == "return" else row.outcome.mean(name)
        value, low, high = (round_numbers(np.array([number]))[0] for number in estimate[:3])
        rows.append({"name": row.label, **look(row), "value": value, "low": low, "high": high})
        told.append(f"{row.label} {format_estimate(estimate)}")
    limit = group.limits.get(name)
    against = "" if limit is None else f", limit {limit:g}"
    return {
        "id": id, "kind": "interval", "title": title, "x_label": title, "limit": limit, "series": rows,
        "summary": f"{title} of each run with its 95% interval{against}: {'; '.join(told)}.",
    }  # fmt: skip


def profile_chart(id: str, group: Group) -> Fields:
    """Share of the seeds within their limits whose return exceeds each level."""
    returns = np.concatenate([row.outcome.returns for row in group.rows])
    finite = returns[np.isfinite(returns)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    levels = np.linspace(low - pad, high + pad, LEVELS)
    series = []
    for row in group.rows:
        # A seed that breaks a limit is above no level, whatever its return.
        scores = np.where(row.outcome.feasible & np.isfinite(row.outcome.returns), row.outcome.returns, -np.inf)
        share = performance_profile(scores, levels)
        series.append(
            {
                "name": row.label, **look(row), "x": round_numbers(levels), "y": round_numbers(share.value),
                "low": round_numbers(share.low), "high": round_numbers(share.high), "lines": [],
            }
        )  # fmt: skip
    ends = "; ".join(
        f"{row.label}: {row.outcome.feasible_seeds} of {len(row.outcome.seeds)} seeds" for row in group.rows
    )
    return {
        "id": id, "kind": "line", "title": "Performance profile", "x_label": "return", "limit": None, "fit_x": True,
        "series": series, "summary": f"Share of seeds within limits above each return. Within limits: {ends}.",
    }  # fmt: skip
