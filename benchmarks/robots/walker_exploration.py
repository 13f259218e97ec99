"""Where random actions carry the walker: torques drawn every step, oscillating torques, and the task's gaits.

PYTHONPATH=src python benchmarks/robots/walker_exploration.py [--out FILE]

Each of 128 walkers keeps its own draw for 8 s; the figure is the length of its mean velocity after the first second.
Then whole episodes of gaits drawn anew every step (Gaussian, deviation 0.6, as in random_policy.py): return and cost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from awavo.provenance import command_line, device_info, source_commit
from awavo.tasks.goal.walker import walker

WALKERS, STEPS, SETTLED, DT, VELOCIMETER = 128, 160, 20, 0.05, slice(59, 61)


def speeds(gait_hz: float, action: Callable[[int], np.ndarray]) -> dict[str, float]:
    """Mean, median, 90th percentile and largest speed [m/s] of the walkers."""
    host = walker(num_envs=WALKERS, gait_hz=gait_hz)
    host.reset(1)
    seen = [host.step(np.clip(action(t), -1, 1).astype(np.float32)).obs[:, VELOCIMETER] for t in range(STEPS)]
    host.close()
    found = np.linalg.norm(np.mean(seen[SETTLED:], 0), axis=-1)
    median, high = np.quantile(found, [0.5, 0.9])
    return {"mean": float(found.mean()), "median": float(median), "p90": float(high), "largest": float(found.max())}


def episodes(gait_hz: float, steps: int = 1000) -> dict[str, float]:
    """Mean return, cost and goals of an episode under a Gaussian policy, with standard errors."""
    rng, totals = np.random.default_rng(0), np.zeros((3, WALKERS))
    host = walker(num_envs=WALKERS, gait_hz=gait_hz, horizon=steps + 1)
    host.reset(0)
    for _ in range(steps):
        out = host.step((0.6 * rng.standard_normal((WALKERS, 20))).astype(np.float32))
        totals += np.stack([out.reward, out.costs[:, 0], out.reward > 0.5])
    host.close()
    errors = totals.std(1, ddof=1) / np.sqrt(WALKERS)
    return {
        name: float(value)
        for kind, row in (("", totals.mean(1)), ("_error", errors))
        for name, value in zip((f"return{kind}", f"cost{kind}", f"goals{kind}"), row, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    middle, swing = rng.uniform(-1, 1, (2, WALKERS, 10))
    lags = np.repeat([0.0, np.pi], 5)
    rows = {"torques, uniform every step": speeds(0.0, lambda t: rng.uniform(-1, 1, (WALKERS, 10)))}
    for hz in (1.0, 2.0, 4.0):
        rows[f"torques, oscillating at {hz:g} Hz"] = speeds(
            0.0, lambda t, hz=hz: 0.5 * middle + swing * np.sin(2 * np.pi * hz * t * DT + lags)
        )
    for hz in (1.0, 2.0, 4.0):
        rows[f"gaits at {hz:g} Hz"] = speeds(hz, lambda t: np.concatenate([middle, swing], 1))
    for name, row in rows.items():
        print(f"{name:32s}", {k: round(v, 3) for k, v in row.items()})
    played = episodes(2.0)
    print("episodes of random gaits at 2 Hz", {k: round(v, 2) for k, v in played.items()})
    if args.out:
        head = {"command": command_line(), "commit": source_commit(), "device": device_info()}
        args.out.write_text(json.dumps({**head, "rows": rows, "episodes_at_2_hz": played}, indent=1) + "\n")


if __name__ == "__main__":
    main()
