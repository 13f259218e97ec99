"""The section of the report about certificates: what is known of a policy, on what it rests, how to check it again."""

from __future__ import annotations

import json

from jinja2 import TemplateError
from markupsafe import Markup

from awavo.errors import RunFolderError, bound_text, confidence_text, share_text
from awavo.results.certificate_record import Record, is_about_policy, read_record, why_not_shown
from awavo.results.compare import Comparison, Row
from awavo.results.outcome import format_number
from awavo.results.page import Section, render
from awavo.results.store import RunData
from awavo.types import Fields, FieldsView

__all__ = ["certificates_section"]

_PARTS = {
    "operator": "Operators between likelihoods and returns",
    "calibration": "Critics: calibration as trained",
    "conformal": "Critics: after conformal correction",
    "bellman": "Distributional Bellman operator (on a fixed random CMDP, not on this task)",
    "metric": "Sliced Wasserstein distance (A-GSWD)",
    "rate": "Rate of convergence",
    "schedule": "Premises of the rate theorem",
}
_STATES = {"proved": "ok", "supported": "ok", "undecided": "part", "refuted": "bad"}
_MARKS = {"proved": "✓", "supported": "✓", "undecided": "?", "refuted": "✗"}


def certificates_section(comparison: Comparison) -> Section | None:
    """Certificates of every run that has some; None when no run has.

    Only those are shown that are bound to the run as it is now; of the others it is said why they are not.
    """
    rows = [row for group in comparison.groups for row in group.rows]
    parts = [_part(row, len(rows) > 1) for row in rows if (row.run.path / "certificates.json").is_file()]
    return Section("certificates", "Certificates", Markup("").join(parts)) if parts else None


def _part(row: Row, several: bool) -> Markup:
    run, path = row.run, row.run.path
    content = read_record(path)
    reasons = why_not_shown(path, content)
    label = row.label if several else ""
    try:
        shown = {"again": f"awavo certify {path.name}"} if reasons else _run(run, content)
        return render("sections/certificates.html", run=shown, label=label, unbound=reasons, marks=_MARKS)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration, TemplateError) as error:
        raise RunFolderError(f"'{path}/certificates.json' is damaged ({error}): certify the run again.") from error


def _run(run: RunData, content: Record) -> Fields:
    certificates = [_certificate(entry) for entry in content["certificates"]]
    safety = [c for c in certificates if is_about_policy(c["name"])]
    parts = [
        {"title": title, "certificates": [c for c in certificates if c["part"] == part]}
        for part, title in _PARTS.items()
    ]
    plan, seed = content["plan"], content["delivered_seed"]
    return {
        "state": "bad" if seed is None else "ok",
        "statement": _statement(content),
        "safety": safety,
        "rows": [_row(c) for c in safety],
        "names": [(name, format_number(limit)) for name, limit in zip(run.cost_names, run.cost_limits, strict=True)],
        "parts": [part for part in parts if part["certificates"]],
        "counts": [
            (about, ", ".join(f"{number} {verdict}" for verdict, number in content["counts"][part].items()))
            for part, about in (("policy", "the policies and their limits"), ("method", "the method and its parts"))
        ],
        "skipped": content.get("skipped", []),
        "confidence": confidence_text(plan["delta"]),
        "anytime": plan["anytime"],
        "command": content.get("command", ""),
        "recheck": f"awavo certify {run.path.name} --recheck",
        "created": content.get("created", ""),
        "commit": content.get("commit"),
    }


def _statement(content: Record) -> str:
    plan, seed = content["plan"], content["delivered_seed"]
    if seed is None:
        return "No policy of this run is certified to keep all its limits."
    entry = next(c for c in content["certificates"] if c["name"] == f"safety.seed_{seed}")
    parts = [
        f"mean {cost['cost']} at most {bound_text(cost['mean_bounds'][1], True)} "
        f"(limit {format_number(cost['limit'])}; {cost['violation']:.1%} of single episodes are above it)"
        for cost in entry["details"]["costs"]
    ]
    return f"Deliver the policy of seed {seed}: {', '.join(parts)}, at {confidence_text(plan['delta'])} confidence."


def _row(certificate: FieldsView) -> Fields:
    """A line of the safety table: one seed."""
    cells = []
    for cost in certificate["details"]["costs"]:
        low, high = cost["mean_bounds"]
        below, above = cost["violation_bounds"]
        cells.append(
            {
                "mean": format_number(cost["mean"]),
                "interval": f"[{bound_text(low, False)}, {bound_text(high, True)}]",
                "rate": f"{cost['violation']:.2%}",
                "rate_interval": f"[{share_text(below, False)}, {share_text(above, True)}]",
                "ok": cost["verdict"] != "refuted",
                "more": cost["episodes_needed"],
            }
        )
    return {
        "seed": certificate["name"].removeprefix("safety.seed_"),
        "cells": cells,
        "episodes": certificate["details"]["episodes"],
        "verdict": certificate["verdict"],
        "state": certificate["state"],
        "reason": certificate["reason"],
    }


def _certificate(entry: FieldsView) -> Fields:
    counter = entry.get("counterexample")
    return {
        **entry,
        "part": str(entry["name"]).split(".")[0],
        "state": _STATES[entry["verdict"]],
        "evidence": [_figure(item) for item in entry["evidence"]],
        "assumptions": [{**item, "state": _STATES[item["verdict"]]} for item in entry["assumptions"]],
        "counterexample": None if counter is None else _short(json.dumps(counter, ensure_ascii=False)),
    }


def _figure(item: FieldsView) -> Fields:
    low, high = item.get("low"), item.get("high")
    interval = "" if low is None or high is None else f"[{_number(low)}, {_number(high)}]"
    return {**item, "value": _number(item.get("value")), "interval": interval}


def _number(value: object) -> str:
    return "unbounded" if value is None else f"{value:.5g}"


def _short(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[:limit]} … (whole in certificates.json)"
