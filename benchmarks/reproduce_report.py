"""Make docs/reproduce_results.md and docs/figures/reproduce_* of the committed results.

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

from awavo.paper.figures import FIGURES, load
from awavo.paper.job import missing_jobs
from awavo.paper.learning import METHODS
from awavo.paper.method_results import read_results
from awavo.paper.outputs import FigureFinding, FigureTask, provenance_lines, write_finding
from awavo.paper.page import write_page
from awavo.paper.plans import plan_jobs

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
OLDER = [RESULTS / "awavo/cartpole_again.json", RESULTS / "awavo/acrobot.json"]
OLDER += [RESULTS / f"baselines/{name}.json" for name in ("cartpole", "cartpole_crpo", "acrobot", "paets")]


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
    print(f"docs/reproduce_results.md, {page} ({page.stat().st_size / 1e3:.0f} kB)")


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


if __name__ == "__main__":
    main()
