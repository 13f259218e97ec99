"""Turn results of learning.py into the table and the learning curves of docs/baselines.md.

    python benchmarks/learning_report.py benchmarks/results/baselines_learning.json [MORE.json ...]

Writes docs/baselines_results.md and docs/figures/baselines_TASK.svg; of two rows with the same algorithm and task the
later file's is used.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

from awavo.results.limits import STRICT

matplotlib.use("svg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"


def figure(value: dict) -> str:
    return f"{value['value']:.1f} [{value['low']:.1f}, {value['high']:.1f}]"


def table(task: str, rows: list[dict]) -> list[str]:
    costs = list(rows[0]["evaluation"]["greedy"]["costs"].items())
    names = [f"{name} (limit {cost['limit']:g})" for name, cost in costs]
    lines = [
        f"### {task}",
        "",
        "| algorithm | steps per seed | actions | return | " + " | ".join(names) + " | within limits |",
    ]
    lines.append("|" + "---|" * (5 + len(names)))
    for row in rows:
        for mode, result in row["evaluation"].items():
            cells = [figure(result["return"]), *(figure(result["costs"][name]) for name, _ in costs)]
            verdict = f"{STRICT.count_within(result)} of {row['seeds']}"
            lines.append(
                f"| {row['algo']} | {row['env_steps_per_seed']:,} | {mode} | {' | '.join(cells)} | {verdict} |"
            )
    return [*lines, "", f"```{{image}} figures/baselines_{task}.svg", f":alt: Learning curves on {task}", "```", ""]


def plot(task: str, rows: list[dict]) -> None:
    costs = list(rows[0]["evaluation"]["greedy"]["costs"].items())
    fig, axes = plt.subplots(1, 1 + len(costs), figsize=(4 * (1 + len(costs)), 3.2), layout="constrained")
    for row in rows:
        steps = [point["env_steps"] for point in row["curve"]]
        series = [[p["return"] for p in row["curve"]]] + [
            [p["costs"][i] for p in row["curve"]] for i in range(len(costs))
        ]
        for axis, values in zip(axes, series, strict=True):
            axis.plot(steps, [v["value"] for v in values], label=row["algo"], linewidth=1.2)
            axis.fill_between(steps, [v["low"] for v in values], [v["high"] for v in values], alpha=0.15)
    axes[0].set_title("return")
    for axis, (name, cost) in zip(axes[1:], costs, strict=True):
        axis.axhline(cost["limit"], color="black", linestyle="--", linewidth=0.8)
        axis.set_title(name)
    for axis in axes:
        axis.set_xlabel("environment steps")
    axes[0].legend(fontsize=7)
    (DOCS / "figures").mkdir(exist_ok=True)
    fig.savefig(DOCS / "figures" / f"baselines_{task}.svg", metadata={"Date": None})


def main() -> None:
    files = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    rows = {(row["task"], row["algo"]): row for file in files for row in file["rows"]}
    lines = []
    for task in dict.fromkeys(task for task, _ in rows):
        chosen = [row for (name, _), row in rows.items() if name == task]
        lines += table(task, chosen)
        plot(task, chosen)
    lines += ["Intervals are 95% over seeds; every seed plays 100 fresh episodes. Commands:", "", "```text"]
    for file in files:
        device = file["device"].get("kind", "")
        lines.append(f"{file['command']}   # commit {str(file['commit'])[:12]}, {device}")
    (DOCS / "baselines_results.md").write_text("\n".join([*lines, "```"]) + "\n")


if __name__ == "__main__":
    main()
