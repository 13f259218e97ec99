"""Comparisons for readers: a rich table for the terminal, markdown that survives the way to LaTeX, plain JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from awavo.results.compare import Comparison, Group, Row
from awavo.results.outcome import format_estimate, format_number
from awavo.results.store import to_plain
from awavo.types import Estimate, Fields

__all__ = ["comparison_dict", "comparison_markdown", "comparison_tables", "escape_markdown"]


def comparison_tables(comparison: Comparison) -> list[Table]:
    """One rich table per group, readable in 80 columns; notes stand in the caption of the last."""
    tables = []
    for group in comparison.groups:
        table = Table(title=Text(_title(group)), box=None, pad_edge=False, collapse_padding=True)
        table.caption_justify = table.title_justify = "left"
        costs = [f"{name}\nmean <= {limit:g}" for name, limit in group.limits.items()]
        steps = f"env steps\nto {format_number(group.threshold)}"
        header = ["#", "algorithm", "seeds\nwithin", "return\nIQM", *costs, steps]
        for index, name in enumerate(header):
            table.add_column(Text(name), justify="left" if index == 1 else "right", overflow="fold", no_wrap=index != 1)
        for row in group.rows:
            table.add_row(*(Text(cell) for cell in _terminal_cells(row)), style="" if row.outcome.is_within else "dim")
        tables.append(table)
    if tables and comparison.notes:
        tables[-1].caption = Text("\n".join(comparison.notes))
    return tables


def comparison_markdown(comparison: Comparison) -> str:
    """One markdown table per group, then the notes; every special character is escaped."""
    lines: list[str] = []
    for group in comparison.groups:
        lines += [f"**{escape_markdown(_title(group))}**", "", _line(map(escape_markdown, _header(group)))]
        lines += [_line(":--" if index in (1, 2) else "--:" for index in range(len(_header(group))))]
        for row in group.rows:
            rank, label, *figures = _cells(row)
            lines += [_line([rank, escape_markdown(label), *figures])]
        lines += [""]
    lines += [f"- {escape_markdown(note)}" for note in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def comparison_dict(comparison: Comparison) -> Fields:
    """Everything the tables show and the per-seed figures, as plain JSON."""
    groups = [
        {"task": g.task, "limits": g.limits, "threshold": g.threshold, "runs": [_row_dict(row) for row in g.rows]}
        for g in comparison.groups
    ]
    return to_plain({"groups": groups, "notes": comparison.notes})


def escape_markdown(text: str) -> str:
    """Escape what markdown, MathJax or LaTeX behind it would read as markup."""
    flat = " ".join(text.split()).replace("–", "-").replace("·", "/")
    brackets = {"[": "&#91;", "]": "&#93;"}
    return re.sub(r"[\\`*_{}\[\]<>#!|$%&~^]", lambda found: brackets.get(found[0], "\\" + found[0]), flat)


def _title(group: Group) -> str:
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in group.limits.items())
    return f"{group.task}: {limits or 'no limits'}"


def _header(group: Group) -> list[str]:
    costs = [f"{name} mean (limit {limit:g})" for name, limit in group.limits.items()]
    goal = f"steps to {format_number(group.threshold)}"
    return ["#", "algorithm", "verdict", "seeds within", "return IQM", *costs, "return mean", "env steps", goal]


def _terminal_cells(row: Row) -> list[str]:
    """Cells of two lines each, so that two costs fit into 80 columns."""
    rank, label, verdict, seeds, value, *costs, _, steps, reached = _cells(row)
    two_lines = [cell.replace(" [", "\n[") for cell in (value, *costs)]
    return [rank, label, f"{seeds}\n{verdict}", *two_lines, f"{steps}\n{reached}"]


def _cells(row: Row) -> list[str]:
    outcome = row.outcome
    # Limits are on means: an IQM leaves out the seeds that exceed them.
    costs = [format_estimate(outcome.mean(name)) for name in outcome.names]
    reached = "never" if row.steps_to_threshold is None else f"{row.steps_to_threshold:,}"
    return [
        str(row.rank),
        row.label if outcome.evaluated else f"{row.label} (training)",
        "within" if outcome.is_within else "outside",
        f"{outcome.feasible_seeds}/{len(outcome.seeds)}",
        format_estimate(outcome.iqm()),
        *costs,
        format_estimate(outcome.mean()),
        f"{outcome.env_steps:,}",
        reached,
    ]


def _row_dict(row: Row) -> Fields:
    outcome = row.outcome
    costs = {
        name: {**_figures(row, name), "limit": limit} for name, limit in zip(outcome.names, outcome.limits, strict=True)
    }
    better = row.first_is_better
    return {
        "rank": row.rank,
        "run": str(row.run.path),
        "label": row.label,
        "task": row.run.task,
        "algo": row.run.algo,
        "source": outcome.source,
        "return": _figures(row, "return"),
        "costs": costs,
        "feasible": outcome.is_within,
        "feasible_seeds": outcome.feasible_seeds,
        "seeds": len(outcome.seeds),
        "slack": outcome.rule.slack,
        "require": outcome.rule.require,
        "env_steps": outcome.env_steps,
        "env_steps_to_threshold": row.steps_to_threshold,
        "probability_first_is_better": None if better is None else _estimate(better),
    }


def _figures(row: Row, name: str) -> Fields:
    outcome = row.outcome
    return {
        "iqm": _estimate(outcome.iqm(name)),
        "mean": _estimate(outcome.mean(name)),
        "per_seed": outcome.values(name),
    }


def _estimate(estimate: Estimate) -> Fields:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "method": estimate.method}


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
