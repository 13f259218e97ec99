"""Where the runs ended: the final table, and every seed behind it."""

from __future__ import annotations

from typing import Any

from awavo.results.charts import scatter_chart
from awavo.results.compare import Comparison, Group, Row
from awavo.results.outcome import MODES, Outcome, format_estimate, format_number, outcome_of
from awavo.results.page import Section, problem_title, render
from awavo.types import Estimate

__all__ = ["final_section", "seeds_section"]


def final_section(comparison: Comparison) -> Section:
    """The final table: feasibility beside return, both policies, intervals."""
    several = sum(len(group.rows) for group in comparison.groups) > 1
    groups = [
        {
            "title": problem_title(group),
            "ranked": several,
            "limits": [(name, f"{limit:g}") for name, limit in group.limits.items()],
            "rows": [_final_row(row, outcome) for row in group.rows for outcome in _outcomes(row)],
            "caption": _final_caption(group, several),
        }
        for group in comparison.groups
    ]
    return Section("final", "Final figures", render("sections/final.html", groups=groups))


def seeds_section(comparison: Comparison) -> Section:
    """Every seed of every run, as marks and as a table."""
    groups, charts, tables = [], [], []
    for number, group in enumerate(comparison.groups):
        made = [scatter_chart(f"seeds-{number}-{i}", group, name) for i, name in enumerate(group.limits)]
        groups.append({"title": problem_title(group), "charts": made})
        charts += made
        tables += [_seed_table(row, f"{problem_title(group)}, {row.label}") for row in group.rows]
    return Section("seeds", "Every seed", render("sections/seeds.html", groups=groups, tables=tables), charts)


def _outcomes(row: Row) -> list[Outcome]:
    """The evaluated policies of a run, or what training says."""
    if not row.outcome.evaluated:
        return [row.outcome]
    both = [outcome_of(row.run, mode, row.outcome.rule) for mode in MODES]
    return [outcome for outcome in both if outcome.evaluated]


def _final_row(row: Row, outcome: Outcome) -> dict[str, Any]:
    costs = []
    for name, limit in zip(outcome.names, outcome.limits, strict=True):
        mean = outcome.mean(name)
        costs.append(
            {"mean": _cell(mean), "ok": mean.value <= limit + outcome.rule.slack, "rate": _rate_cell(outcome, name)}
        )
    return {
        "rank": row.rank,
        "label": row.label,
        "policy": outcome.source.removesuffix(" evaluation"),
        "seeds": f"{outcome.feasible_seeds} of {len(outcome.seeds)}",
        "ok": outcome.is_within,
        "mean": _cell(outcome.mean()),
        "iqm": _cell(outcome.iqm()),
        "costs": costs,
        "length": _cell(outcome.mean("length")),
    }


def _cell(estimate: Estimate) -> dict[str, str]:
    value, _, interval = format_estimate(estimate).partition(" ")
    return {"value": value, "interval": interval}


def _rate_cell(outcome: Outcome, name: str) -> dict[str, str]:
    """Share of single episodes above the limit, in percent, where it was evaluated."""
    figure = ((outcome.entry or {}).get("violation_rate") or {}).get(name) or {}
    value, low, high = (figure.get(key) for key in ("value", "low", "high"))
    interval = "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]"
    return {"value": "–" if value is None else f"{100 * value:.1f}%", "interval": interval}


def _final_caption(group: Group, several: bool) -> str:
    outcome = group.rows[0].outcome
    parts = [f"{outcome.rule.text.capitalize()}."]
    if outcome.evaluated:
        parts.append(f"{outcome.episodes_per_seed:g} fresh episodes per seed and policy.")
    if several:
        parts.append("Runs within their limits come first, by IQM return; the others by how much they exceed them.")
    return " ".join(parts)


def _seed_table(row: Row, label: str) -> dict[str, Any]:
    outcomes = _outcomes(row)
    parts = [{"source": o.source, "columns": ["Return", *o.names, *(["Limits"] if o.names else [])]} for o in outcomes]
    rows = [
        {"seed": seed, "parts": [_seed_cells(outcome, index) for outcome in outcomes]}
        for index, seed in enumerate(row.outcome.seeds)
    ]
    return {"label": label, "parts": parts, "rows": rows}


def _seed_cells(outcome: Outcome, index: int) -> dict[str, Any]:
    costs = [
        {"value": format_number(cost), "ok": cost <= limit + outcome.rule.slack}
        for cost, limit in zip(outcome.costs[index].tolist(), outcome.limits, strict=True)
    ]
    return {"value": format_number(outcome.returns[index]), "costs": costs, "ok": bool(outcome.feasible[index])}
