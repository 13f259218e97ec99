"""Write docs/learner_results.md from the results beside this file.

python benchmarks/learner/report.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "learner_results.md"
TITLES = (
    "task (limits)", "algorithm", "seeds", "steps a seed", "return", "costs", "seeds within", "asked for", "every seed",
)  # fmt: skip
# File (from the folder of results), task, limits, steps asked for (the last row up to a twentieth beyond them counts),
# return and seeds that were asked for before the measurement, and what rewards, costs and limits were multiplied by.
PROTOCOL, SAFETY = "../../protocol", "../../safety/results"
ROWS = (
    ("cartpole", "CartPole", (30, 10), 20_000, ">= 195, 9 of 10", 1),
    ("cartpole-thousandfold", "CartPole times 1,000", (30, 10), 20_000, "the same", 1_000),
    ("cartpole-thousandth", "CartPole times 0.001", (30, 10), 20_000, "the same", 0.001),
    (f"{PROTOCOL}/results/acrobot-awavo", "Acrobot", (50, 50), 240_000, ">= 300, 10 of 10", 1),
    ("drone", "Drone", (1,), 300_000, ">= 15, 9 of 10", 1),
    (f"{PROTOCOL}/again/drone-awavo", "Drone", (1,), 300_000, ">= 15, 9 of 10", 1),
    (f"{PROTOCOL}/again/drone-orpo-dr", "Drone", (1,), 300_000, ">= 15, 9 of 10", 1),
    ("drone-many", "Drone, 2,048 environments, 168 s", (1,), 4_128_768, ">= 25, 9 of 10", 1),
    (f"{PROTOCOL}/results/navigation-awavo", "Navigation", (2,), 12_000, ">= -8, 10 of 10", 1),
    (f"{PROTOCOL}/results/pendulum-awavo", "Pendulum", (20,), 60_000, ">= -170, 10 of 10", 1),
    ("walker-mjx", "Walker, torques, 2,048 environments, 335 s", (5,), 3_000_000, ">= 30, 3 of 3", 1),
    ("walker-few", "Walker, torques, 256 environments", (5,), 1_000_000, "", 1),
    ("walker-few", "Walker, torques, 256 environments", (5,), 2_000_000, ">= 5, 9 of 10", 1),
    ("eleventh/walker-few", "the same, other seeds", (5,), 1_000_000, "", 1),
    ("eleventh/walker-few", "the same, other seeds", (5,), 2_000_000, ">= 5, 9 of 10", 1),
    ("walker-gaits", "Walker, gaits", (5,), 180_000, ">= 20, 9 of 10", 1),
    (f"{SAFETY}/halfcheetah-velocity-early", "HalfCheetah velocity", (25,), 300_000, ">= 2,800, 9 of 10", 1),
    (f"{SAFETY}/halfcheetah-velocity", "HalfCheetah velocity", (25,), 1_000_000, ">= 2,950, 9 of 10", 1),
    (f"{SAFETY}/halfcheetah-velocity-before", "HalfCheetah, learner before", (25,), 1_000_000, ">= 2,950, 9 of 10", 1),
    (f"{SAFETY}/hopper-velocity-early", "Hopper velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/hopper-velocity", "Hopper velocity", (25,), 1_000_000, ">= 1,650, 9 of 10", 1),
    (f"{SAFETY}/hopper-velocity-before", "Hopper, learner before", (25,), 300_000, "", 1),
    (f"{SAFETY}/hopper-velocity-before", "Hopper, learner before", (25,), 1_000_000, ">= 1,650, 9 of 10", 1),
    (f"{SAFETY}/walker2d-velocity-early", "Walker2d velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/walker2d-velocity", "Walker2d velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/walker2d-velocity", "Walker2d velocity", (25,), 1_000_000, ">= 3,050, 9 of 10", 1),
    (f"{SAFETY}/walker2d-velocity-before", "Walker2d, learner before", (25,), 300_000, "", 1),
    (f"{SAFETY}/walker2d-velocity-before", "Walker2d, learner before", (25,), 1_000_000, ">= 3,050, 9 of 10", 1),
    (f"{SAFETY}/ant-velocity-early", "Ant velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/ant-velocity", "Ant velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/ant-velocity", "Ant velocity", (25,), 1_000_000, ">= 3,000, 9 of 10", 1),
    (f"{SAFETY}/ant-velocity-before", "Ant, learner before", (25,), 300_000, "", 1),
    (f"{SAFETY}/ant-velocity-before", "Ant, learner before", (25,), 1_000_000, ">= 3,000, 9 of 10", 1),
    (f"{SAFETY}/swimmer-velocity", "Swimmer velocity", (25,), 300_000, "", 1),
    (f"{SAFETY}/swimmer-velocity", "Swimmer velocity", (25,), 1_000_000, ">= 90, 9 of 10", 1),
    (f"{SAFETY}/point-goal1-early", "Point Goal 1", (25,), 300_000, "", 1),
    (f"{SAFETY}/point-goal1-early", "Point Goal 1", (25,), 650_000, "", 1),
    (f"{SAFETY}/point-goal1", "Point Goal 1", (25,), 1_000_000, ">= 25, 9 of 10", 1),
    (f"{SAFETY}/car-goal1-early", "Car Goal 1", (25,), 300_000, "", 1),
    (f"{SAFETY}/car-goal1-early", "Car Goal 1", (25,), 465_000, "", 1),
    (f"{SAFETY}/car-goal1", "Car Goal 1", (25,), 1_000_000, ">= 28, 9 of 10", 1),
    (f"{SAFETY}/point-goal1-before", "Point Goal 1, learner before", (25,), 1_000_000, ">= 25, 9 of 10", 1),
    (f"{SAFETY}/car-goal1-before", "Car Goal 1, learner before", (25,), 1_000_000, ">= 28, 9 of 10", 1),
    (f"{SAFETY}/point-goal2", "Point Goal 2", (25,), 300_000, "", 1),
    (f"{SAFETY}/point-goal2", "Point Goal 2", (25,), 1_000_000, "> 1.7, 9 of 10", 1),
    (f"{SAFETY}/humanoid-velocity", "Humanoid velocity", (25,), 1_000_000, ">= 5,500, 9 of 10", 1),
    (f"{SAFETY}/humanoid-velocity-before", "Humanoid, learner before", (25,), 300_000, "", 1),
    (f"{SAFETY}/humanoid-velocity-before", "Humanoid, learner before", (25,), 1_000_000, ">= 5,500, 9 of 10", 1),
    (f"{SAFETY}/humanoid-velocity-short", "Humanoid, learner before", (25,), 150_000, "", 1),
    (f"{SAFETY}/point-goal1-limit1", "Point Goal 1, limit 1", (1,), 300_000, "", 1),
    (f"{SAFETY}/point-goal1-limit1", "Point Goal 1, limit 1", (1,), 1_000_000, ">= 22, 9 of 10", 1),
    (f"{SAFETY}/car-goal2", "Car Goal 2", (25,), 300_000, "", 1),
    (f"{SAFETY}/car-goal2", "Car Goal 2", (25,), 1_000_000, "> 2.3, 9 of 10", 1),
    (f"{SAFETY}/point-button1", "Point Button 1", (25,), 300_000, "", 1),
    (f"{SAFETY}/point-button1", "Point Button 1", (25,), 1_000_000, "> 4.6, 9 of 10", 1),
    (f"{SAFETY}/point-button2", "Point Button 2", (25,), 300_000, "", 1),
    (f"{SAFETY}/point-button2", "Point Button 2", (25,), 1_000_000, "> 2.4, 9 of 10", 1),
    (f"{SAFETY}/car-button1", "Car Button 1", (25,), 300_000, "", 1),
    (f"{SAFETY}/car-button1", "Car Button 1", (25,), 1_000_000, "> 0, 9 of 10", 1),
    (f"{SAFETY}/car-button2", "Car Button 2", (25,), 300_000, "", 1),
    (f"{SAFETY}/car-button2", "Car Button 2", (25,), 1_000_000, "> 0, 9 of 10", 1),
)


def bounds(values: np.ndarray) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean over seeds."""
    draws = np.random.default_rng(0).choice(values, (10_000, len(values))).mean(1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def interval(values: np.ndarray) -> str:
    """Mean and the 95% bootstrap interval over seeds."""
    low, high = bounds(values)
    return f"{values.mean():.1f} [{low:.1f}, {high:.1f}]"


def last_row(found: dict, asked: int) -> dict:
    """The last row of a file up to the steps that were asked for."""
    return [row for row in found["rows"] if row["steps"] <= 1.05 * asked][-1]


def line(name: str, title: str, limits: tuple[float, ...], asked: int, wanted: str, scale: float) -> str:
    """What a file has of a task, for a person."""
    found = json.loads((HERE / "results" / f"{name}.json").read_text())
    row = last_row(found, asked)
    returns, costs = np.asarray(row["returns"]) / scale, np.asarray(row["costs"]) / scale
    within = int((costs <= np.asarray(limits)).all(-1).sum())
    spent = ", ".join(interval(cost) for cost in costs.T)
    steps = f"{row['steps']:,}" + ("" if row["steps"] >= 0.99 * asked else f" of {asked:,}")
    every = " ".join(f"{value:.4g}" for value in returns)
    bound = ", ".join(str(limit) for limit in limits)
    seeds = f"{found['seeds'][0]} to {found['seeds'][-1]}"
    return (
        f"| {title} ({bound}) | {found['algo']} | {seeds} | {steps} | {interval(returns)} | {spent} | "
        f"{within} of {len(returns)} | {wanted} | {every} |"
    )


def table() -> str:
    """All rows."""
    lines = [f"| {' | '.join(TITLES)} |", f"|{' --- |' * len(TITLES)}", *(line(*row) for row in ROWS)]
    walker = json.loads((HERE / "results" / "walker-mjx.json").read_text())
    on_c = walker["rows"][-1]["on_walker"]
    returns, costs = np.asarray(on_c["returns"]), np.asarray(on_c["costs"])
    lines.append(
        f"| the same walkers on C MuJoCo (5) | orpo-dr | {walker['seeds'][0]} to {walker['seeds'][-1]} | | "
        f"{interval(returns)} | {interval(costs[:, 0])} | "
        f"{int((costs <= 5).sum())} of {len(returns)} | >= 25, 3 of 3 | "
        f"{' '.join(f'{value:.4g}' for value in returns)} |"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
