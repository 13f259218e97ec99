"""What every figure writes: data (parquet), pictures (SVG, PNG) and a paragraph (markdown) with its provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from awavo.files import new_folder
from awavo.paper.figures import FIGURES
from awavo.paper.job import Job, ResultFile, ResultRow, write_atomically
from awavo.paper.method_results import device_text
from awavo.paper.plotting import new_figure, save
from awavo.results.limits import STRICT, LimitRule
from awavo.results.store import write_table
from awavo.types import Fields

__all__ = ["FigureFinding", "QUICK", "Picture", "FigureTask", "merge_blocks", "provenance_lines", "write_finding"]

QUICK = "Quick budget: fewer seeds and steps than the paper's comparison; a check that everything runs, no evidence."


@dataclass(frozen=True)
class FigureTask:
    """What a collector is given: result files, the jobs of the budget, how many of them are unfinished, the folder."""

    figure: str
    size: str
    results: Sequence[ResultFile]
    jobs: Sequence[Job]
    out: Path
    unfinished: int = 0
    rule: LimitRule = STRICT

    @property
    def rows(self) -> list[ResultRow]:
        """The rows of all files. Where several settings of one label are there, those of this budget count."""
        wanted = {job.family for job in self.jobs}
        labels = {result["job"]["label"] for result in self.results if result["job"]["family"] in wanted}
        kept = [r for r in self.results if r["job"]["family"] in wanted or r["job"]["label"] not in labels]
        return [row for result in kept for row in result["rows"]]

    @property
    def foreign(self) -> list[str]:
        """Labels whose results were made with other settings than this budget's; learning results say it themselves."""
        wanted = {job.family for job in self.jobs}
        kept = [
            r["job"]
            for r in self.results
            if "job" in r and r["job"]["figure"] not in ("learning", "ablation", "safety")
        ]
        own = {job["label"] for job in kept if job["family"] in wanted}
        return sorted({job["label"] for job in kept} - own)


@dataclass(frozen=True)
class Picture:
    """A picture's name, size in inches and the function that draws it."""

    name: str
    size: tuple[float, float]
    draw: Callable[[Figure], None]


@dataclass
class FigureFinding:
    """What was found, to be written and shown."""

    text: str
    data: Sequence[ResultRow]
    table: str = ""
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    page: Fields = field(default_factory=dict)


def write_finding(task: FigureTask, finding: FigureFinding) -> list[Path]:
    """Write data.parquet, the pictures and finding.md into OUT/FIGURE; return their paths, the paragraph's first."""
    spec, folder = FIGURES[task.figure], task.out / task.figure
    write_table(new_folder(folder) / "data.parquet", finding.data)
    lines = provenance_lines(task.results)
    about = f"{'quick budget; ' if task.size == 'quick' else ''}{short_provenance(task.results)}"
    written = [folder / "data.parquet"]
    for picture in finding.pictures:
        with new_figure(*picture.size) as figure:
            picture.draw(figure)
            written += save(figure, folder / picture.name, about)
    parts = [f"# {spec.title} ({spec.paper})"]
    parts += [f"> {QUICK}"] if task.size == "quick" else []
    parts += (
        [f"> {task.unfinished} of {len(task.jobs)} jobs of this budget are not finished."] if task.unfinished else []
    )
    if task.foreign:
        finding.notes.append(f"made with other settings than those of this budget: {', '.join(task.foreign)}.")
    parts += [finding.text, finding.table, *(f"Note: {note}" for note in finding.notes)]
    parts += [f"![{spec.title}]({picture.name}.png)" for picture in finding.pictures]
    parts += ["Where these figures come from:", "```text\n" + "\n".join(lines) + "\n```"]
    write_atomically(folder / "finding.md", "\n\n".join(part for part in parts if part) + "\n")
    return [folder / "finding.md", *written]


def merge_blocks(rows: Sequence[ResultRow], keys: Sequence[str], per_seed: Sequence[str]) -> list[Fields]:
    """Rows with equal `keys` put together: lists over seeds are joined, a seed that is there twice counts once."""
    merged: dict[tuple[object, ...], Fields] = {}
    for row in rows:
        known = merged.setdefault(tuple(row[key] for key in keys), {**row, **{n: [] for n in per_seed if n in row}})
        new = [i for i, seed in enumerate(row["seed_numbers"]) if seed not in known["seed_numbers"]]
        for name in (n for n in per_seed if n in row):
            known[name] = [*known[name], *(row[name][i] for i in new)]
    return list(merged.values())


def provenance_lines(results: Sequence[ResultFile]) -> list[str]:
    """One line for each command, with commit, seeds and machine."""
    lines: dict[str, None] = {}
    for result in results:
        seeds = sorted({s for row in result["rows"] for s in row.get("seed_numbers", range(row.get("seeds", 0)))})
        span = f"seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}" if seeds else "no seeds"
        lines[f"{result.get('command')}   # commit {result.get('commit')}, {span}, {device_text(result)}"] = None
    return list(lines)


def short_provenance(results: Sequence[ResultFile]) -> str:
    """Commits and machines in one line, for the foot of a picture."""
    commits = ", ".join(dict.fromkeys(str(result.get("commit")) for result in results))
    machines = ", ".join(dict.fromkeys(device_text(result) for result in results))
    return f"commit {commits}; {machines}"
