"""The goal task under a Gaussian policy (deviation 0.6): return, cost and goals an episode, against the fact sheet.

    PYTHONPATH=src python benchmarks/robots/random_policy.py [--episodes 128] [--robots drone] [--out FILE.json]

Whole episodes of 1000 steps, one an environment. The fact sheet's figures are of 16 episodes: mean and deviation; a
mean agrees when it lies within three standard errors of both samples together. `chance` is the share of 100,000
resampled sets of 16 of our episodes whose mean is at least as far off as the sheet's, on the same side: costs have
a heavy tail, for which the sheet's own deviation says little.

"plain-walker" is a second implementation of the rules, in numpy around plain MuJoCo with the robot standing in the
arena itself: no jax, no turned frame, no code shared with the task but the model's XML.
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


def plain_layout(rng: np.random.Generator) -> np.ndarray:
    while True:
        placed = np.zeros((0, 2))
        for _ in range(10):
            drawn = rng.uniform(-1.6, 1.6, (100, 2))
            free = np.all(np.linalg.norm(drawn[:, None] - placed, axis=-1) >= 0.8, -1)
            placed = np.concatenate([placed, drawn[free][:1]])
        if len(placed) == 10:
            return placed


def plain_walker(episodes: int) -> dict[str, np.ndarray]:
    import mujoco

    from awavo.tasks.goal.walker_model import load_walker

    rng, model = np.random.default_rng(1), load_walker()
    data, torso = mujoco.MjData(model), model.body("torso").id
    totals = np.zeros((3, episodes))
    for episode in range(episodes):
        start, goal, *hazards = plain_layout(rng)
        yaw = rng.uniform(0, 2 * np.pi)
        model.body_pos[torso, :2], model.body_quat[torso] = start, [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
        mujoco.mj_resetData(model, data)
        last = np.linalg.norm(goal - start)
        for _ in range(STEPS):
            data.ctrl = np.clip(0.6 * rng.standard_normal(10), -1, 1)
            mujoco.mj_step(model, data, 10)
            mujoco.mj_kinematics(model, data)
            place = data.xpos[torso, :2]
            distance = np.linalg.norm(goal - place)
            cost = np.maximum(0.3 - np.linalg.norm(hazards - place, axis=1), 0).sum()
            totals[:, episode] += last - distance + (distance <= 0.5), cost, distance <= 0.5
            while distance <= 0.5:
                drawn = rng.uniform(-1.6, 1.6, 2)
                if np.all(np.linalg.norm([*hazards, place] - drawn, axis=1) >= 0.8):
                    goal, distance = drawn, np.linalg.norm(drawn - place)
            last = distance
    return dict(zip(("return", "cost", "goals"), totals, strict=True))


ROBOTS = {"drone": drone, "walker": walker, "plain-walker": plain_walker}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    for robot in options.robots:
        found = ROBOTS[robot](options.episodes)
        results[robot] = {}
        for name, values in found.items():
            mean, std = float(values.mean()), float(values.std(ddof=1))
            sheet, spread = SHEET[robot.removeprefix("plain-")][name]
            spread = std if spread is None else spread
            error = math.hypot(std / math.sqrt(len(values)), spread / math.sqrt(SHEET_EPISODES))
            draws = np.random.default_rng(0).choice(values, (100_000, SHEET_EPISODES)).mean(1)
            results[robot][name] = {
                "mean": mean, "standard_error": std / math.sqrt(len(values)), "std": std,
                "quantiles": dict(zip((10, 50, 90), np.percentile(values, (10, 50, 90)).tolist(), strict=True)),
                "zero_share": float((values == 0).mean()), "sheet": sheet,
                "agrees": abs(mean - sheet) <= 3 * max(error, 0.02),
                "chance": float((draws <= sheet if sheet < mean else draws >= sheet).mean()),
            }  # fmt: skip
        print(robot, json.dumps(results[robot]), flush=True)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, "episodes": options.episodes, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
