"""What CRPO's two kinds of steps do to episodes on CartPole: their length and their cost per step.

    python benchmarks/crpo_steps.py --seeds 100 104 --out benchmarks/results/baselines/crpo_steps.json

Differences of the mean over the episodes that finish in an iteration, across two iterations (the step shows in the
next one), after the first 150 iterations; means with standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

from awavo.config import TrainConfig
from awavo.provenance import device_info, source_commit
from awavo.runs.problem import build_problem, resolve_config
from awavo.training.loop import CompiledRunner, chunk_fn, init_fn

CHUNKS, ITERATIONS, SETTLED = 8, 61, 150


def measure(seed: int) -> dict:
    """Train one seed; return length and cost rate, and how each kind of step changes them."""
    _, algorithm, config, env, _ = build_problem(resolve_config(TrainConfig(task="cartpole", algo="crpo")))
    assert env is not None
    start = init_fn(env, algorithm, config.num_envs)
    runner = CompiledRunner([seed], start, chunk_fn(env, algorithm, config.rollout_length), "map")
    outputs = [runner.run(ITERATIONS)[0] for _ in range(CHUNKS)]
    done = np.concatenate([o.done for o in outputs]).astype(float)
    count = np.maximum(done.sum((1, 2)), 1)
    length = (done * np.concatenate([o.episode_length for o in outputs])).sum((1, 2)) / count
    cost = (done * np.concatenate([o.episode_costs[..., 0] for o in outputs])).sum((1, 2)) / count
    feasible = np.concatenate([o.info.feasible for o in outputs])[SETTLED:-2] > 0
    rate = cost / np.maximum(length, 1)
    found = {"seed": seed, "mean_length": length[SETTLED:].mean(), "mean_cost": cost[SETTLED:].mean()}
    for kind, chosen in (("reward_step", feasible), ("cost_step", ~feasible)):
        for name, series in (("length", length), ("cost_rate", rate)):
            change = (series[SETTLED + 2 :] - series[SETTLED:-2])[chosen]
            found[f"{kind}_{name}"] = {"mean": change.mean(), "error": change.std() / np.sqrt(len(change))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 104])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = [measure(seed) for seed in args.seeds]
    for row in rows:
        print(json.dumps(row, default=float))
    if args.out:
        made = {"command": "python " + " ".join(sys.argv), "commit": source_commit(), "device": device_info()}
        args.out.write_text(json.dumps({**made, "rows": rows}, default=float, indent=1) + "\n")


if __name__ == "__main__":
    main()
