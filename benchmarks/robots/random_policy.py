"""The goal task under a Gaussian policy (deviation 0.6): return, cost and goals an episode, against the fact sheet.

    PYTHONPATH=src python benchmarks/robots/random_policy.py [--episodes 128] [--robots drone] [--out FILE.json]

Whole episodes of 1000 steps, one an environment. The fact sheet's figures are of 16 episodes: mean and deviation; a
mean agrees when it lies within three standard errors of both samples together.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import numpy as np

from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_host_task, make_task

SHEET = {
    "walker": {"return": (0.1, 1.3), "cost": (1.5, 3.0), "goals": (0.25, None)},
    "drone": {"return": (-1.9, 1.8), "cost": (0.5, 1.0), "goals": (0.0, None)},
}
STEPS, SHEET_EPISODES = 1000, 16


def drone(episodes: int) -> dict[str, np.ndarray]:
    env = make_task("drone", horizon=STEPS + 1)

    def step(carry, key):
        state, totals = carry
        act_key, step_key = jax.random.split(key)
        action = 0.6 * jax.random.normal(act_key, (episodes, 4))
        keys = jax.random.split(step_key, episodes)
        state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, env.params)
        return (state, totals + jax.numpy.stack([out.reward, out.costs[:, 0], out.reward > 0.5])), None

    @jax.jit
    def run(key):
        start_key, run_key = jax.random.split(key)
        state, _ = jax.vmap(env.reset, (0, None))(jax.random.split(start_key, episodes), env.params)
        start = (state, jax.numpy.zeros((3, episodes)))
        return jax.lax.scan(step, start, jax.random.split(run_key, STEPS))[0][1]

    return dict(zip(("return", "cost", "goals"), np.asarray(run(jax.random.key(0))), strict=True))


def walker(episodes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    totals = np.zeros((3, episodes))
    with make_host_task("walker", num_envs=episodes, horizon=STEPS + 1) as env:
        env.reset(0)
        for _ in range(STEPS):
            out = env.step((0.6 * rng.standard_normal((episodes, 10))).astype(np.float32))
            totals += np.stack([out.reward, out.costs[:, 0], out.reward > 0.5])
    return dict(zip(("return", "cost", "goals"), totals, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--robots", nargs="+", default=["drone", "walker"], choices=["drone", "walker"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    for robot in options.robots:
        found = {"drone": drone, "walker": walker}[robot](options.episodes)
        results[robot] = {}
        for name, values in found.items():
            mean, std = float(values.mean()), float(values.std(ddof=1))
            sheet, spread = SHEET[robot][name]
            spread = std if spread is None else spread
            error = math.hypot(std / math.sqrt(len(values)), spread / math.sqrt(SHEET_EPISODES))
            results[robot][name] = {
                "mean": mean, "std": std, "sheet": sheet, "agrees": abs(mean - sheet) <= 3 * max(error, 0.02),
            }  # fmt: skip
        print(robot, json.dumps(results[robot]), flush=True)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, "episodes": options.episodes, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
