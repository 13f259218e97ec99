"""Make docs/reproduce_results.md, docs/figures/reproduce_* and the README's table of the committed results.

    python benchmarks/reproduce_report.py [benchmarks/results/reproduce]

Reads result files of `awavo.reproduce.jobs` below the folder. What is missing there (a task and algorithm) is
filled in from the results of benchmarks/learning.py, which have the same format.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from awavo.paper.budgets import tasks_table
from awavo.paper.figures import FIGURES, load
from awavo.paper.job import missing_jobs
from awavo.paper.learning import METHODS, compare_all
from awavo.paper.learning_text import bounded_steps
from awavo.paper.method_results import load_method_results, read_results
from awavo.paper.names import ALGO_NAMES, TASK_NAMES
from awavo.paper.outputs import FigureFinding, FigureTask, provenance_lines, write_finding
from awavo.paper.page import write_page
from awavo.paper.plans import plan_jobs
from awavo.results.outcome import format_estimate

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
OLDER = [RESULTS / "awavo/cartpole_again.json", RESULTS / "awavo/acrobot.json"]
OLDER += [RESULTS / f"baselines/{name}.json" for name in ("cartpole", "cartpole_crpo", "acrobot", "paets")]
MARKS = ("<!-- reproduce -->", "<!-- end reproduce -->")


def learning_results(folder: Path) -> list[dict]:
    results = [r for r in read_results(folder, "learning") if "job" in r]
    there = {(row["task"], row["algo"]) for result in results for row in result["rows"]}
    for path in OLDER:
        content = json.loads(path.read_text())
        rows = [r for r in content["rows"] if r["algo"] in METHODS and (r["task"], r["algo"]) not in there]
        results += [{**content, "rows": rows, "path": path}] if rows else []
    return results


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "reproduce"
    found: dict[str, tuple[FigureTask, FigureFinding]] = {}
    parts = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, spec in FIGURES.items():
            results = learning_results(folder) if name == "learning" else read_results(folder, name)
            if not results:
                continue
            jobs = plan_jobs(name, "full")
            task = FigureTask(name, "full", results, jobs, Path(scratch), len(missing_jobs(jobs, folder)))
            finding = load(spec.collect)(task)
            write_finding(task, finding)
            found[name] = (task, finding)
            parts.append(section(task, finding))
        page = write_page(found, "full", ROOT / "docs/_static/reproduce.html")
    (ROOT / "docs/reproduce_results.md").write_text("\n\n".join(parts) + "\n")
    write_readme(readme_table(folder))
    print(f"docs/reproduce_results.md, README.md, {page} ({page.stat().st_size / 1e3:.0f} kB)")


def section(task: FigureTask, finding: FigureFinding) -> str:
    """One figure for the docs: text, table, pictures, where it comes from."""
    spec = FIGURES[task.figure]
    lines = [f"### {spec.title} ({spec.paper})", finding.text, finding.table]
    lines += [f"Note: {note}" for note in finding.notes]
    for picture in finding.pictures:
        for kind in ("svg", "png"):
            target = ROOT / f"docs/figures/reproduce_{task.figure}_{picture.name}.{kind}"
            shutil.copyfile(task.out / task.figure / f"{picture.name}.{kind}", target)
        name = f"figures/reproduce_{task.figure}_{picture.name}.png"
        lines.append(f"```{{image}} {name}\n:alt: {spec.title}\n```")
    lines.append("```text\n" + "\n".join(provenance_lines(task.results)) + "\n```")
    return "\n\n".join(line for line in lines if line)


def readme_table(folder: Path) -> str:
    """The short table of the README."""
    entries, _ = load_method_results(learning_results(folder), plan_jobs("learning", "full"))
    comparisons = compare_all(entries)
    head = ["task (limits)", "method", "steps a seed", "return", "costs", "seeds within", "steps until good"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for comparison in comparisons:
        for number, standing in enumerate(comparison.standings):
            entry = standing.entry
            limits = ", ".join(f"{limit:g}" for limit in entry.limits)
            name = ALGO_NAMES.get(entry.algo, entry.algo)
            place = standing is comparison.leader or entry.algo in comparison.tied()
            cells = [f"{TASK_NAMES[entry.task]} ({limits})" if number == 0 else "", f"**{name}**" if place else name]
            cells += [f"{entry.env_steps:,}", format_estimate(standing.mean)]
            cells += [
                ", ".join(map(format_estimate, standing.costs)),
                f"{standing.feasible_seeds} of {len(entry.seeds)}",
            ]
            lines.append("| " + " | ".join([*cells, bounded_steps(standing)]) + " |")
    good = ", ".join(f"{TASK_NAMES[c.task]} {tasks_table()[c.task]['threshold']:g}" for c in comparisons)
    lines += ["", f"Bold: first or statistically tied within limits. Good: within limits with a return of {good}."]
    return "\n".join(lines)


def write_readme(table: str) -> None:
    """Put the table between the marks of the README."""
    path = ROOT / "README.md"
    before, _, rest = path.read_text().partition(MARKS[0])
    path.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
