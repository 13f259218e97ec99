"""The whole comparison as one page that opens from disk and never calls the network."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup, escape

from awavo.paper.figures import FIGURES
from awavo.paper.outputs import QUICK, FigureFinding, FigureTask, provenance_lines
from awavo.provenance import versions
from awavo.results.page import Section, frame, render
from awavo.results.report import embed
from awavo.results.store import write_bytes
from awavo.types import Fields, FieldsView

__all__ = ["to_html", "write_page"]

# Figures that compare methods task by task, with a chart for each.
COMPARED = ("learning", "safety")


def write_page(findings: Mapping[str, tuple[FigureTask, FigureFinding]], size: str, out: Path) -> Path:
    """Write the page of these findings in one piece."""
    learning = _compared(findings)
    sections = [*_learning_sections(learning)]
    sections += [_finding_section(name, *found) for name, found in findings.items() if name != "learning"]
    sections.append(_commands(findings))
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
        charts=embed({chart["id"]: chart for section in sections for chart in section.charts}),
        **frame("chart.js", "chart_events.js", "page.js", "comparison.js"),
    )
    write_bytes(out, str(page).encode())
    return out


def _compared(findings: Mapping[str, tuple[FigureTask, FigureFinding]]) -> Fields:
    """What is compared task by task, of both figures that do so: one choice of tasks and methods for all of them."""
    pages = [findings[name][1].page for name in COMPARED if name in findings and findings[name][1].page]
    if not pages:
        return {}
    algos = {algo["id"]: algo for page in pages for algo in page["algos"]}
    return {**pages[0], "algos": list(algos.values()), "tasks": [task for page in pages for task in page["tasks"]]}


def _verdict(task: FieldsView) -> dict[str, str]:
    first, *rest = task["answer"]
    return {"state": task["state"], "label": task["name"], "text": first, "source": " ".join(rest)}


def _learning_sections(data: FieldsView) -> list[Section]:
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


def to_html(text: str) -> Markup:
    """Blocks are separated by empty lines."""
    return Markup("\n").join(_block(block) for block in re.split(r"\n\s*\n", text.strip()) if block)


def _block(block: str) -> Markup:
    lines = block.splitlines()
    if lines[0].startswith("|"):
        return _table(lines)
    if all(line.startswith("* ") for line in lines):
        return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(_bold(x[2:])) for x in lines))
    return Markup("<p>{}</p>").format(_bold(" ".join(lines)))


def _bold(text: str) -> Markup:
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text))))


def _table(lines: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(cell) for cell in rows[0])
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_bold(cell)) for cell in row))
        for row in rows[2:]
    )
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>').format(
        head, body
    )
