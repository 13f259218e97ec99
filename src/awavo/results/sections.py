"""Sections of the report page: curves, diagnostics, configuration, commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from awavo.results.certificates import certificates_section
from awavo.results.charts import line_chart, look
from awavo.results.compare import Comparison, Group, Row
from awavo.results.curves import diagnostic_names, learning_curve, training_curve
from awavo.results.final import final_section, seeds_section
from awavo.results.flight_path import flight_section
from awavo.results.outcome import device_text
from awavo.results.page import Section, SectionFn, problem_title, render

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
    return Section(
        "curves",
        "Learning curves",
        render("sections/curves.html", groups=groups, several=len(_rows(comparison)) > 1),
        charts,
    )


def diagnostics_section(comparison: Comparison) -> Section | None:
    """The algorithm's own metrics, for the runs that logged them."""
    groups, charts = [], []
    for number, group in enumerate(comparison.groups):
        names = list(dict.fromkeys(name for row in group.rows for name in diagnostic_names(row.run)))
        made = []
        for i, name in enumerate(names):
            rows = [row for row in group.rows if name in row.run.metrics.columns]
            made.append(line_chart(f"train-{number}-{i}", name, rows, lambda row, n=name: training_curve(row.run, n)))
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
    parts: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
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


DEFAULT_SECTIONS: tuple[SectionFn, ...] = (
    curves_section,
    final_section,
    seeds_section,
    certificates_section,
    flight_section,
    diagnostics_section,
    configuration_section,
    reproduce_section,
)


def _legend(group: Group) -> list[dict[str, Any]]:
    return [{"name": row.label, **look(row)} for row in group.rows]


def _rows(comparison: Comparison) -> list[Row]:
    return [row for group in comparison.groups for row in group.rows]


def _differences(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per key that any run has, with a mark where the runs differ."""
    keys = dict.fromkeys(key for part in parts for key, value in part.items() if value is not None)
    rows = []
    for key in keys:
        values = [_text(part.get(key)) for part in parts]
        rows.append({"key": key, "cells": values, "differs": len(set(values)) > 1})
    return rows


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
