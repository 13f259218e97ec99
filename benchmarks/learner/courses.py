"""Draw docs/figures/learner_courses.png: what learners thought of their costs on the way, and how they weighed them.

    python benchmarks/learner/courses.py

From the `course` of the rows that measure.py made. Beside them what the greedy policies, which are evaluated, did cost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
FIGURE = HERE.parents[1] / "docs" / "figures" / "learner_courses.png"
SAFETY = HERE.parent / "safety" / "results"
TASKS = {
    "Car Goal 1": SAFETY / "car-goal1.json",
    "Hopper velocity": SAFETY / "hopper-velocity.json",
    "HalfCheetah velocity": SAFETY / "halfcheetah-velocity.json",
    "Ant velocity": SAFETY / "ant-velocity.json",
}
LIMIT, TOP = 25.0, 100.0


def course(found: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, and of every seed estimate J and the weight's share, `[points, seeds]`."""
    points = [point for row in found["rows"] for point in row["course"]]
    first = {name: np.array([point[name] for point in points])[..., 0] for name in ("estimate", "weight")}
    return np.array([point["steps"] for point in points]), first["estimate"], first["weight"]


def main() -> None:
    figure, axes = plt.subplots(2, len(TASKS), figsize=(13, 5), sharex=True, layout="constrained")
    for column, (title, file) in zip(axes.T, TASKS.items(), strict=True):
        found = json.loads(file.read_text())
        steps, estimates, shares = course(found)
        for seed, color in enumerate(mpl.color_sequences["tab10"]):
            column[0].plot(steps / 1e6, np.minimum(estimates[:, seed], TOP), color=color, lw=0.9)
            column[1].plot(steps / 1e6, shares[:, seed], color=color, lw=0.9)
            for row in found["rows"]:
                column[0].plot(row["steps"] / 1e6, row["costs"][seed][0], "o", color=color, ms=4, mec="black", mew=0.5)
        column[0].axhline(LIMIT, color="red", ls="--", lw=1)
        column[0].set(title=title, ylim=(-2, TOP + 2))
        column[1].set(xlabel="environment steps, millions", ylim=(0, 1))
    axes[0, 0].set_ylabel("cost of an episode")
    axes[1, 0].set_ylabel("share of the cost in the objective")
    figure.savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
