"""Whole episodes of the navigation tasks and of Safety-Gymnasium under the same actions from the same seeds.

    SAFETY_PYTHON benchmarks/arena/episodes.py play TASK EPISODES FILE          (in its interpreter)
    PYTHONPATH=src python benchmarks/arena/episodes.py play TASK EPISODES FILE  (in ours)
    PYTHONPATH=src python benchmarks/arena/episodes.py compare THEIRS OURS      (prints one JSON line)

The policy looks at the goal's lidar alone and drives there, with noise, so that goals are met and things are hit.
Trajectories part ways within a second, so that only means can be compared: paired differences over equal layouts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

LIDAR = {"Goal": 0, "Button": 1, "Push": 3, "Circle": 0}  # which lidar the policy follows: goal, goal, box, circle


def drive(agent: str, seen: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Actions towards the strongest of 16 directions; a car's nose is at -y."""
    angle = (np.argmax(seen) + 0.5) * 2 * np.pi / 16
    if agent == "Point":
        off = (angle + np.pi) % (2 * np.pi) - np.pi
        action = np.array([1.0 if abs(off) < 0.3 else -0.02, np.clip(off, -1, 1)])
    else:
        off = (angle + np.pi / 2 + np.pi) % (2 * np.pi) - np.pi
        action = np.array([0.012 + 0.008 * np.sign(off), 0.012 - 0.008 * np.sign(off)])
    return action + noise * (0.1 if agent == "Point" else 0.005)


def play(task: str, episodes: int) -> tuple[str, np.ndarray]:
    """Return and total cost of each episode; both sides draw equal noise."""
    agent = "Point" if task.startswith("Point") else "Car"
    first = (12 if agent == "Point" else 24) + 16 * LIDAR[task[len(agent) : -1]]
    try:
        import safety_gymnasium

        env, who = safety_gymnasium.make(f"Safety{task}-v0"), f"safety-gymnasium {safety_gymnasium.__version__}"
    except ImportError:
        import gymnasium

        import awavo

        env, who = gymnasium.make(f"awavo/{task}-v0"), f"awavo {awavo.__version__}"
    totals = np.zeros((episodes, 2))
    for seed in range(episodes):
        rng, over = np.random.default_rng(seed), False
        obs, _ = env.reset(seed=seed)
        while not over:
            action = np.clip(drive(agent, obs[first : first + 16], rng.normal(size=2)), -1, 1).astype(np.float32)
            out = env.step(action)
            obs, over = out[0], bool(out[-3] or out[-2])
            totals[seed] += out[1], out[-1]["cost_sum"]
    return who, totals


def compare(theirs: str, ours: str) -> dict:
    """Means of both and the paired difference with its standard error."""
    sides = [json.loads(Path(path).read_text()) for path in (theirs, ours)]
    told = {"task": sides[0]["task"], "episodes": len(sides[0]["totals"]), "sides": [side["who"] for side in sides]}
    a, b = (np.array(side["totals"]) for side in sides)
    for i, name in enumerate(("return", "cost")):
        apart = b[:, i] - a[:, i]
        told[name] = {
            "theirs": a[:, i].mean(), "ours": b[:, i].mean(), "difference": apart.mean(),
            "standard_error": apart.std(ddof=1) / np.sqrt(len(apart)),
        }  # fmt: skip
    return told


def main() -> None:
    if sys.argv[1] == "play":
        task, episodes, path = sys.argv[2], int(sys.argv[3]), sys.argv[4]
        who, totals = play(task, episodes)
        Path(path).write_text(json.dumps({"task": task, "who": who, "totals": totals.tolist()}))
    else:
        from awavo.provenance import source_commit

        print(json.dumps(compare(*sys.argv[2:4]) | {"commit": source_commit()}))


if __name__ == "__main__":
    main()
