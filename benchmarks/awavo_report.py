"""Turn results of learning.py into the tables of docs/awavo.md: AWaVO on every task, and what each part is worth.

    python benchmarks/awavo_report.py

Reads benchmarks/results/awavo and its folder ablations, writes docs/awavo_results.md. Ablations are compared with rows
of AWaVO at the same commit, which are in that folder too.
"""

from __future__ import annotations

import json
from pathlib import Path

from awavo.results.limits import STRICT

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PRESETS = json.loads((ROOT / "src/awavo/algorithms/presets/awavo.json").read_text())["default"]
SHARES = (0.4, 1.0)
NAMES = {
    "planning": "no planning (actor alone)",
    "num_members": "one member instead of five",
    "slices": "random slices",
    "degree": "linear slices",
    "metric": "KL instead of A-GSWD",
    "rectify": "hard rectification",
    "imagined_batch": "no imagined transitions",
}


def figure(value: dict) -> str:
    return f"{value['value']:.1f} [{value['low']:.1f}, {value['high']:.1f}]"


def variant(row: dict) -> str:
    """The part an ablation leaves out; AWaVO itself where an override is the task's own setting."""
    own = PRESETS.get(row["task"], {})
    changed = [key for key, value in row["overrides"].items() if own.get(key) != value]
    return NAMES[changed[0]] if changed else "AWaVO"


def table(rows: list[dict]) -> list[str]:
    costs = rows[0]["evaluation"]["greedy"]["costs"]
    names = [f"{name} (limit {cost['limit']:g})" for name, cost in costs.items()]
    lines = [
        f"| variant | steps | return | {' | '.join(names)} | seeds within limits |",
        "|" + "---|" * (4 + len(names)),
    ]
    for row in rows:
        points = row["checkpoints"]
        for share in SHARES:
            point = points[round(share * len(points)) - 1]
            cells = [figure(point["return"]), *(figure(cost) for cost in point["costs"].values())]
            within = f"{STRICT.count_within(point)} of {row['seeds']}"
            lines.append(f"| {variant(row)} | {point['env_steps']:,} | {' | '.join(cells)} | {within} |")
    return lines


def section(title: str, folder: Path) -> list[str]:
    """The tables of one folder, task by task, and the commands that made them."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = [row for file in files for row in file["rows"] if row["checkpoints"]]
    lines = [f"## {title}", ""]
    for task in dict.fromkeys(row["task"] for row in rows):
        chosen = sorted((row for row in rows if row["task"] == task), key=lambda row: variant(row) != "AWaVO")
        lines += [f"### {task}", "", *table(chosen), ""]
    lines += ["Intervals are 95% over seeds; greedy decisions on fresh episodes. Commands:", "", "```text"]
    for file in files:
        lines.append(f"{file['command']}   # commit {str(file['commit'])[:12]}, {file['device'].get('kind', '')}")
    return [*lines, "```", ""]


def widths(folder: Path) -> list[str]:
    """Sizes of the networks, on tuning seeds."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = [
        "## Width of the networks",
        "",
        "| task | actor, critics | model | priors | seeds within limits at each tenth | return at the end |",
        "|---|---|---|---|---|---|",
    ]
    for file in files:
        row = file["rows"][0]
        sizes = [row["settings"][name][0] for name in ("hidden", "model_hidden")] + [file["prior_units"]]
        within = ", ".join(str(STRICT.count_within(point)) for point in row["checkpoints"])
        end = figure(row["checkpoints"][-1]["return"])
        lines.append(f"| {row['task']} | {' | '.join(map(str, sizes))} | {within} | {end} |")
    command, commit = files[0]["command"], files[0]["commit"]
    about = "Ten tuning seeds (100 to 109); the units of the priors were set in the source. One of the commands:"
    return [*lines, "", about, "", "```text", f"{command}   # commit {commit}, {files[0]['device']['kind']}", "```", ""]


def main() -> None:
    results = ROOT / "benchmarks/results/awavo"
    lines = section("AWaVO", results) + section("What its parts are worth", results / "ablations")
    lines += widths(results / "widths")
    (DOCS / "awavo_results.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
