"""The report: one HTML page for one or several runs that opens from disk and never calls the network."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from awavo.errors import InputError
from awavo.results.compare import Comparison, Row, compare_runs
from awavo.results.limits import STRICT, LimitRule
from awavo.results.outcome import verdict
from awavo.results.page import Section, SectionFn, frame, render
from awavo.results.sections import DEFAULT_SECTIONS
from awavo.results.store import RunData, to_plain, write_bytes
from awavo.types import Fields

__all__ = ["Section", "SectionFn", "embed", "render_report", "write_report"]


def write_report(
    runs: Sequence[RunData],
    out: str | os.PathLike[str],
    *,
    title: str | None = None,
    rule: LimitRule = STRICT,
    extra_sections: Sequence[SectionFn] = (),
) -> Path:
    """Write the page in one piece and return its path."""
    page = render_report(runs, title=title, rule=rule, extra_sections=extra_sections)
    target = Path(out)
    write_bytes(target, page.encode(errors="backslashreplace"))
    return target


def render_report(
    runs: Sequence[RunData],
    *,
    title: str | None = None,
    rule: LimitRule = STRICT,
    extra_sections: Sequence[SectionFn] = (),
) -> str:
    """Render the page. `extra_sections` come after the built-in ones; one that returns None is left out."""
    comparison = compare_runs(runs, rule=rule)
    made = [section_fn(comparison) for section_fn in (*DEFAULT_SECTIONS, *extra_sections)]
    sections = [section for section in made if section is not None]
    _check_ids(sections)
    rows = [row for group in comparison.groups for row in group.rows]
    return render(
        "report.html",
        title=title or _default_title(comparison),
        subtitle=_subtitle(rows),
        verdicts=[_verdict(row, len(rows) > 1) for row in rows],
        notes=comparison.notes,
        sections=sections,
        version=runs[0].meta.get("versions", {}).get("awavo", ""),
        charts=embed({chart["id"]: chart for section in sections for chart in section.charts}),
        **frame("chart.js", "chart_events.js", "page.js"),
    )


def embed(content: Fields) -> Markup:
    """JSON that cannot end its script element, whatever the names in it."""
    text = json.dumps(to_plain(content), allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _check_ids(sections: Sequence[Section]) -> None:
    ids = [section.id for section in sections] + [chart["id"] for section in sections for chart in section.charts]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two sections or charts of the report are called '{twice}': give each its own id.")


def _default_title(comparison: Comparison) -> str:
    rows = [row for group in comparison.groups for row in group.rows]
    if len(rows) == 1:
        return f"{rows[0].run.task} · {rows[0].label}"
    tasks = list(dict.fromkeys(group.task for group in comparison.groups))
    return f"{len(rows)} runs on {', '.join(tasks)}"


def _subtitle(rows: Sequence[Row]) -> str:
    if len(rows) > 1:
        return "Ranked within each problem: runs that keep their limits first, then by return."
    run = rows[0].run
    limits = ", ".join(f"{name} ≤ {limit:g}" for name, limit in zip(run.cost_names, run.cost_limits, strict=True))
    count = len(run.seeds)
    text = f"{count} seed{'s' if count != 1 else ''}, {run.env_steps:,} environment steps each"
    return f"{text}. Limits per episode: {limits}." if limits else f"{text}. No limits."


def _verdict(row: Row, several: bool) -> dict[str, str]:
    outcome = row.outcome
    everyone = outcome.feasible_seeds == len(outcome.seeds)
    state = "none" if not outcome.names else "bad" if not outcome.is_within else "ok" if everyone else "part"
    missing = _missing(row)
    if missing and state == "ok":
        state = "part"  # green is for what was trained to its end and judged on fresh episodes
    if outcome.evaluated:
        source = f"{outcome.source}, {outcome.episodes_per_seed:g} episodes per seed"
    else:
        source = f"not evaluated: {outcome.source}"
    rule = f"; {outcome.rule.text}" if outcome.names else ""
    label = f"{row.run.task} · {row.label}" if several else ""
    text = f"{missing} {verdict(outcome)}" if missing else verdict(outcome)
    return {"state": state, "text": text, "source": (source + rule).capitalize(), "label": label}


def _missing(row: Row) -> str:
    """What this run lacks for a verdict, in sentences; nothing where it was trained to its end and evaluated there."""
    run, outcome, found = row.run, row.outcome, []
    reached = max(run.env_steps, (outcome.env_steps or 0) if outcome.evaluated else 0)
    if reached < run.config.get("steps", 0):
        found.append(f"Training stopped at {reached:,} of {run.config['steps']:,} steps.")
    if not outcome.evaluated:
        found.append("Not evaluated: these are figures of training, of a policy that explores.")
    elif outcome.env_steps is not None and outcome.env_steps < run.env_steps:
        found.append(f"Evaluated after {outcome.env_steps:,} of {run.env_steps:,} steps only.")
    return " ".join(found)
