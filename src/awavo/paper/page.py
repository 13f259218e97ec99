"""The whole comparison as one page that opens from disk and never calls the network."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from awavo.paper.figures import FIGURES
from awavo.paper.markup import to_html
from awavo.paper.outputs import QUICK, FigureFinding, FigureTask, provenance_lines
from awavo.provenance import versions
from awavo.results.page import Section, render
from awavo.results.report import asset, content_policy, embed
from awavo.results.store import write_bytes

__all__ = ["write_page"]


def write_page(findings: Mapping[str, tuple[FigureTask, FigureFinding]], size: str, out: Path) -> Path:
    """Write the page of these findings in one piece."""
    learning = findings["learning"][1].page if "learning" in findings else {}
    sections = [*_learning_sections(learning)]
    sections += [_finding_section(name, *found) for name, found in findings.items() if name != "learning"]
    sections.append(_commands(findings))
    script = "\n".join(asset(name) for name in ("chart.js", "page.js", "comparison.js"))
    notes = [QUICK] if size == "quick" else []
    notes += [f"{FIGURES[name].title}: {note}" for name, (_, f) in findings.items() for note in f.notes]
    notes += [
        f"{FIGURES[name].title}: {task.unfinished} of {len(task.jobs)} jobs of this budget are not finished."
        for name, (task, _) in findings.items()
        if task.unfinished
    ]
    page = render(
        "report.html",
        title="AWaVO: the paper's comparison, reproduced",
        subtitle="Which method reaches the highest return within its limits, and after how many steps.",
        verdicts=[_verdict(task) for task in learning.get("tasks", [])],
        notes=notes,
        sections=sections,
        version=versions().get("awavo", ""),
        style=Markup(asset("style.css")),
        script=Markup(script),
        charts=embed({chart["id"]: chart for section in sections for chart in section.charts}),
        policy=content_policy(script),
    )
    write_bytes(out, str(page).encode())
    return out


def _verdict(task: Mapping[str, Any]) -> dict[str, str]:
    first, *rest = task["answer"]
    return {"state": task["state"], "label": task["name"], "text": first, "source": " ".join(rest)}


def _learning_sections(data: Mapping[str, Any]) -> list[Section]:
    if not data:
        return []
    charts = [chart for task in data["tasks"] for chart in task["charts"]]
    html = render("sections/comparison.html", tasks=data["tasks"], algos=data["algos"], rule=data["rule"])
    sections = [Section("learning", FIGURES["learning"].title, html, charts)]
    if data["pooled"]:
        scores = render("sections/scores.html", pooled=data["pooled"])
        sections.append(Section("scores", "All tasks together", scores, [data["pooled"]["chart"]]))
    if data["claims"]:
        html = render("sections/claims.html", claims=data["claims"])
        sections.append(Section("claims", "Against the paper (Figure 4)", html))
    return sections


def _finding_section(name: str, task: FigureTask, finding: FigureFinding) -> Section:
    """Text, table and pictures of a figure."""
    spec, folder = FIGURES[name], task.out / name
    pictures = [
        {"alt": spec.title, "data": base64.b64encode((folder / f"{picture.name}.png").read_bytes()).decode()}
        for picture in finding.pictures
    ]
    html = render(
        "sections/finding.html",
        html=to_html("\n\n".join(filter(None, [finding.text, finding.table]))),
        pictures=pictures,
    )
    return Section(name, f"{spec.title} ({spec.paper})", html)


def _commands(findings: Mapping[str, tuple[FigureTask, FigureFinding]]) -> Section:
    blocks = [
        {"title": FIGURES[name].title, "lines": provenance_lines(task.results)} for name, (task, _) in findings.items()
    ]
    return Section("commands", "Where these figures come from", render("sections/commands.html", blocks=blocks))
