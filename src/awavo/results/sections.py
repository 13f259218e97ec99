"""Sections of the report page: curves, final figures, every seed, diagnostics, configuration, commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from awavo.results.aggregates import aggregate_section
from awavo.results.certificates import certificates_section
from awavo.results.charts import line_chart, look, scatter_chart
from awavo.results.compare import Comparison, Group, Row
from awavo.results.curves import diagnostic_names, learning_curve, training_curve
from awavo.results.episode_video import episode_section
from awavo.results.flight_path import flight_section
from awavo.results.glossary import TERMS, explain_metric
from awavo.results.outcome import MODES, Outcome, device_text, format_estimate, format_number, outcome_of
from awavo.results.page import Section, SectionFn, problem_title, render
from awavo.types import Estimate, Fields, FieldsView

__all__ = ["DEFAULT_SECTIONS"]


def curves_section(comparison: Comparison) -> Section:
    """Return and every cost during training, with limits and bands."""
    groups, charts = [], []
    for number, group in enumerate(comparison.groups):
        columns = ["return", *(f"cost_{name}" for name in group.limits)]
        titles = ["Return", *(f"Cost: {name}" for name in group.limits)]
        made = [
            line_chart(f"curve-{number}-{i}", title, group.rows, lambda row, c=column: learning_curve(row.run, c))
            for i, (column, title) in enumerate(zip(columns, titles, strict=True))
        ]
        groups.append({"title": problem_title(group), "charts": made, "legend": _legend(group)})
        charts += made
    html = render("sections/curves.html", groups=groups, several=len(_rows(comparison)) > 1)
    return Section("curves", "Learning curves", html, charts)


def diagnostics_section(comparison: Comparison) -> Section | None:
    """The algorithm's own metrics, for the runs that logged them."""
    groups, charts = [], []
    for number, group in enumerate(comparison.groups):
        names = list(dict.fromkeys(name for row in group.rows for name in diagnostic_names(row.run)))
        made = []
        for i, name in enumerate(names):
            rows = [row for row in group.rows if name in row.run.metrics.columns]
            chart = line_chart(f"train-{number}-{i}", name, rows, lambda row, n=name: training_curve(row.run, n))
            made.append({**chart, "meaning": explain_metric(name, list(group.limits))})
        if made:
            groups.append({"title": problem_title(group), "charts": made, "legend": _legend(group)})
            charts += made
    if not groups:
        return None
    html = render("sections/diagnostics.html", groups=groups)
    return Section("diagnostics", "Training diagnostics", html, charts)


def configuration_section(comparison: Comparison) -> Section:
    """What was run, with which versions, on which device; rows that differ between runs are tinted."""
    rows = _rows(comparison)
    labels = [row.label for row in rows]
    parts: list[tuple[str, Callable[[Fields], Any]]] = [
        ("Run", lambda meta: {**meta["config"], "algo_options": None, "fingerprint": meta.get("fingerprint")}),
        ("Algorithm options", lambda meta: meta["config"].get("algo_options")),
        ("Task", lambda meta: meta["spec"]),
        ("Versions", lambda meta: meta.get("versions")),
        ("Device", lambda meta: meta.get("device")),
    ]
    blocks = [
        {"title": title, "rows": _differences([part(row.run.meta) or {} for row in rows])} for title, part in parts
    ]
    html = render("sections/configuration.html", blocks=[block for block in blocks if block["rows"]], labels=labels)
    return Section("configuration", "Configuration", html)


def reproduce_section(comparison: Comparison) -> Section:
    """The commands that made each run."""
    runs = []
    for row in _rows(comparison):
        meta, entries = row.run.meta, row.run.evaluation or {}
        evaluations = dict.fromkeys(str(entry["command"]) for entry in entries.values() if entry.get("command"))
        runs.append(
            {
                "label": row.label,
                "commands": [str(meta.get("command") or "the command was not recorded"), *evaluations],
                "commit": meta.get("commit"),
                "created": meta.get("created") or "at an unrecorded time",
                "device": device_text(row.run),
            }
        )
    return Section("reproduce", "Reproduce", render("sections/reproduce.html", runs=runs))


def _legend(group: Group) -> list[Fields]:
    return [{"name": row.label, **look(row)} for row in group.rows]


def _rows(comparison: Comparison) -> list[Row]:
    return [row for group in comparison.groups for row in group.rows]


def _differences(parts: Sequence[FieldsView]) -> list[Fields]:
    """One row per key that any run has, with a mark where the runs differ."""
    keys = dict.fromkeys(key for part in parts for key, value in part.items() if value is not None)
    rows = []
    for key in keys:
        values = [_text(part.get(key)) for part in parts]
        rows.append({"key": key, "cells": values, "differs": len(set(values)) > 1})
    return rows


def _text(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def final_section(comparison: Comparison) -> Section:
    """The final table: feasibility beside return, both policies, intervals."""
    several = sum(len(group.rows) for group in comparison.groups) > 1
    groups = [
        {
            "title": problem_title(group),
            "ranked": several,
            "limits": [(name, f"{limit:g}") for name, limit in group.limits.items()],
            "rows": [
                _final_row(row, outcome, _episodes(group) is not None)
                for row in group.rows
                for outcome in _outcomes(row)
            ],
            "caption": _final_caption(group, several),
        }
        for group in comparison.groups
    ]
    return Section("final", "Final figures", render("sections/final.html", groups=groups, terms=TERMS))


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


def _final_row(row: Row, outcome: Outcome, counted: bool) -> Fields:
    costs = []
    for name, limit in zip(outcome.names, outcome.limits, strict=True):
        mean = outcome.mean(name)
        costs.append(
            {"mean": _cell(mean), "ok": mean.value <= limit + outcome.rule.slack, "rate": _rate_cell(outcome, name)}
        )
    policy = outcome.source.removesuffix(" evaluation")
    return {
        "rank": row.rank,
        "label": row.label,
        "policy": policy if counted or not outcome.evaluated else f"{policy}, {outcome.episodes_per_seed:g} episodes",
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


def _episodes(group: Group) -> float | None:
    """Episodes of a seed, where all runs that were evaluated have as many; else each row has its own."""
    counts = {row.outcome.episodes_per_seed for row in group.rows if row.outcome.evaluated}
    return counts.pop() if len(counts) == 1 else None


def _final_caption(group: Group, several: bool) -> str:
    parts = [f"{group.rows[0].outcome.rule.text.capitalize()}."]
    episodes = _episodes(group)
    if episodes is not None:
        parts.append(f"{episodes:g} fresh episodes per seed and policy.")
    if several:
        parts.append("Runs within their limits come first, by IQM return; the others by how much they exceed them.")
    return " ".join(parts)


def _seed_table(row: Row, label: str) -> Fields:
    outcomes = _outcomes(row)
    parts = [{"source": o.source, "columns": ["Return", *o.names, *(["Limits"] if o.names else [])]} for o in outcomes]
    rows = [
        {"seed": seed, "parts": [_seed_cells(outcome, index) for outcome in outcomes]}
        for index, seed in enumerate(row.outcome.seeds)
    ]
    return {"label": label, "parts": parts, "rows": rows}


def _seed_cells(outcome: Outcome, index: int) -> Fields:
    costs = [
        {"value": format_number(cost), "ok": cost <= limit + outcome.rule.slack}
        for cost, limit in zip(outcome.costs[index].tolist(), outcome.limits, strict=True)
    ]
    return {"value": format_number(outcome.returns[index]), "costs": costs, "ok": bool(outcome.feasible[index])}


DEFAULT_SECTIONS: tuple[SectionFn, ...] = (
    curves_section, episode_section, final_section, aggregate_section, seeds_section, certificates_section,
    flight_section, diagnostics_section, configuration_section, reproduce_section,
)  # fmt: skip
