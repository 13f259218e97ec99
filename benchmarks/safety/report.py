"""Write docs/safety_results.md: Safety-Gymnasium's tasks, ours and baselines from files, beside published figures.

    python benchmarks/safety/report.py

`results/TASK.json` is ORPO-DR's, `results/TASK-early.json` the same learner's on other seeds with fewer steps,
`results/TASK-METHOD.json` a baseline's, each made by the command that it names.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from awavo.paper.budgets import tasks_table
from awavo.paper.names import ALGO_NAMES, TASK_NAMES

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "safety_results.md"
EARLY = 300_000
HEAD = ("task (limit)", "method", "seeds", "steps a seed", "return", "cost", "within", "commit")
METHODS = ("-early", "", "-sac-lagrangian", "-ppo-lagrangian")
# Files beside those of the tasks at their own limit: title and limit.
OTHERS = {
    **{
        f"{name.lower()}-velocity-before": (f"{name}, learner before", 25.0)
        for name in ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")
    },
    "point-goal1-before": ("Point Goal 1, learner before", 25.0),
    "car-goal1-before": ("Car Goal 1, learner before", 25.0),
    "point-goal1-limit1": ("Point Goal 1", 1.0),
    "humanoid-velocity-short": ("Humanoid, learner before, other seeds", 25.0),
}


def _learner() -> Any:
    spec = importlib.util.spec_from_file_location("learner_report", HERE.parent / "learner" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


interval = _learner().interval


def standings(file: Path, limit: float) -> list[list[str]]:
    """A method after few steps, where it was looked at there, and at its end."""
    found = json.loads(file.read_text())
    rows = [row for row in found["rows"] if row["steps"] <= 1.05 * EARLY][-1:] + found["rows"][-1:]
    lines = []
    for row in rows[:1] if rows[0] is rows[-1] else rows:
        costs = np.asarray(row["costs"])[:, 0]
        within = f"{int((costs <= limit).sum())} of {len(costs)}"
        name = ALGO_NAMES[found["algo"]]
        lines.append(
            [
                f"**{name}**" if (costs <= limit).all() else name, f"{found['seeds'][0]} to {found['seeds'][-1]}",
                f"{row['steps']:,}", interval(np.asarray(row["returns"])), interval(costs), within, found["commit"][:7],
            ]
        )  # fmt: skip
    return lines


def table() -> str:
    """Every task: ours, then the baselines, then what others published."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for task, facts in tasks_table("safety").items():
        limit = float(facts["cost_limits"][0])
        files = [HERE / "results" / f"{task}{method}.json" for method in METHODS]
        rows = [row for file in files if file.exists() for row in standings(file, limit)]
        rows += [
            [f"published: {p['method']}", "", f"{p['steps']:,.0f}", f"{p['return']:g}", f"{p['cost']:g}", "", ""]
            for p in facts["published"]
        ]
        lines += _titled(f"{TASK_NAMES[task]} ({limit:g})", rows)
    for name, (title, limit) in OTHERS.items():
        lines += _titled(f"{title} ({limit:g})", standings(HERE / "results" / f"{name}.json", limit))
    return "\n".join(lines) + "\n"


def _titled(title: str, rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(['' if number else title, *row])} |" for number, row in enumerate(rows)]


if __name__ == "__main__":
    PAGE.write_text(table())
