"""Write docs/protocol_results.md: what was chosen in the search, and the evaluation, of the files beside this one.

    python benchmarks/protocol/report.py

Within their limits with every seed first, by return; the others by how much they exceed them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from search import NUM, SETTINGS, SPACES, TASKS, choose, score  # noqa: E402

__all__ = ["HERE", "PAGE", "SETTINGS", "choose", "page"]
PAGE = HERE.parents[1] / "docs" / "protocol_results.md"
PENDULUM = [20.0]  # the limit of the task whose own is taken
DISCRETE = {"cartpole", "acrobot"}
CONTINUOUS_ONLY = {"sac-lagrangian", "cal"}


def interval(values: np.ndarray) -> str:
    """Mean and the 95% bootstrap interval over seeds."""
    draws = np.random.default_rng(0).choice(values, (10_000, len(values))).mean(1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{values.mean():.1f} [{low:.1f}, {high:.1f}]"


def evaluated(task: str) -> list[tuple[tuple[Any, ...], str]]:
    """The lines of a task's methods, each with what it is sorted by."""
    limits = np.asarray(TASKS[task][0] or PENDULUM)
    lines = []
    for file in sorted((HERE / "results").glob(f"{task}-*.json")):
        found = json.loads(file.read_text())
        row = found["rows"][-1]
        returns, costs = np.asarray(row["returns"]), np.asarray(row["costs"])
        within = int((costs <= limits).all(-1).sum())
        whole = within == len(returns)
        excess = float((np.maximum(costs - limits, 0) / limits).sum(-1).mean())
        device = found["device"]
        seeds = f"{found['seeds'][0]} to {found['seeds'][-1]}"
        cells = [
            f"**{found['algo']}**" if whole else found["algo"], seeds, f"{row['steps']:,}", interval(returns),
            ", ".join(interval(cost) for cost in costs.T), f"{within} of {len(returns)}",
            f"{row['seconds']:.0f} s on {'a CPU core' if device['platform'] == 'cpu' else device['kind']}",
            found["commit"], " ".join(f"{value:.4g}" for value in returns),
        ]  # fmt: skip
        lines.append(((not whole, 0.0 if whole else excess, -returns.mean()), f"| {' | '.join(cells)} |"))
    return sorted(lines)


def searched(task: str) -> list[str]:
    """For every method that takes the task's actions how far its search is, and its choice."""
    lines = []
    for algo in SPACES:
        if task in DISCRETE and algo in CONTINUOUS_ONLY:
            continue
        found = choose(task, algo, HERE / "tuned")
        if found:
            best, of = found
            within, mean = score(best, TASKS[task][0] or PENDULUM)
            choice = f"{best.stem[-2:]} ({within} of 3 within, {mean:.1f})" if of == NUM else "not complete"
            lines.append(f"| {task} | {algo} | {of} of {NUM} | {choice} |")
    return lines


def page() -> str:
    """The whole page."""
    parts = []
    for task, (limits, steps) in TASKS.items():
        lines = evaluated(task)
        if lines:
            bound = ", ".join(f"{limit:g}" for limit in limits or PENDULUM)
            parts.append(
                f"**{task}** (limits {bound}; {steps:,} steps)\n\n"
                "| method | seeds | steps a seed | return | costs | seeds within | training and evaluation | commit | "
                "every seed |\n" + "|---" * 9 + "|\n" + "\n".join(line for _, line in lines)
            )
    rows = [line for task in TASKS for line in searched(task)]
    parts.append(
        "The search, settings finished and the number of the one chosen (mean return of the three tuning seeds):\n\n"
        "| task | method | settings | chosen |\n|---|---|---|---|\n" + "\n".join(rows)
    )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
