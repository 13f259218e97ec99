"""Steps a second of the velocity tasks, beside Gymnasium's own vector environments and `mujoco.rollout`.

    PYTHONPATH=src python benchmarks/velocity/speed.py [--envs 16] [--out benchmarks/velocity/results/speed_NAME.json]

Needs the extra `mujoco`. All rivals of a task take turns in short slices of random actions, auto-resets included, so
that other work on the machine meets all of them. A figure is the fastest slice; `cpu_us` is the least processor time of
a step (for the asynchronous rival, whose processes are others, it is not known). `physics` compares two ways to step
bare simulations: threads of our own over `mj_step`, and `mujoco.rollout`, which the tasks do not use.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
from mujoco import rollout

from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_host_task
from awavo.tasks.mujoco_host import StepThreads
from awavo.tasks.velocity.bodies import BODIES, Body
from awavo.tasks.velocity.task import load_body

IDS = {
    "halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4", "ant": "Ant-v4",
    "swimmer": "Swimmer-v4", "humanoid": "Humanoid-v4",
}  # fmt: skip
Play = Callable[[np.ndarray], None]  # a slice of actions [T, E, a]


def ours(name: str, num_envs: int) -> Play:
    env = make_host_task(f"{name}-velocity", num_envs=num_envs)
    env.reset(0)

    def play(actions: np.ndarray) -> None:
        for action in actions:
            env.step(action)

    return play


def theirs(name: str, num_envs: int, mode: str) -> Play:
    env = gym.make_vec(IDS[name], num_envs=num_envs, vectorization_mode=mode)
    env.reset(seed=0)

    def play(actions: np.ndarray) -> None:
        for action in actions:
            env.step(action)

    return play


def threads(body: Body, num_envs: int) -> Play:
    model = load_body(body, "v4")
    datas = [mujoco.MjData(model) for _ in range(num_envs)]
    pool = StepThreads(lambda data: mujoco.mj_step(model, data, body.substeps), num_envs)

    def play(actions: np.ndarray) -> None:
        for data in datas:
            mujoco.mj_resetData(model, data)
        for action in actions:
            for data, control in zip(datas, action, strict=True):
                data.ctrl[:] = control
            pool.run(datas)

    return play


def rollouts(body: Body, num_envs: int) -> Play:
    model, cores = load_body(body, "v4"), len(os.sched_getaffinity(0))
    kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
    size = mujoco.mj_stateSize(model, kind)
    datas = [mujoco.MjData(model) for _ in range(cores)]
    states, felt = np.zeros((num_envs, body.substeps, size)), np.zeros((num_envs, body.substeps, model.nsensordata))
    pool, first = rollout.Rollout(nthread=cores), np.zeros(size)
    mujoco.mj_getState(model, mujoco.MjData(model), first, kind)

    def play(actions: np.ndarray) -> None:
        state = np.tile(first, (num_envs, 1))
        for action in actions:
            control = np.repeat(action[:, None].astype(np.float64), body.substeps, 1)
            pool.rollout(
                [model] * num_envs, datas, state, control, skip_checks=True, nstep=body.substeps, state=states,
                sensordata=felt, chunk_size=1,
            )  # fmt: skip
            state = np.ascontiguousarray(states[:, -1])

    return play


def race(rivals: dict[str, Play], actions: np.ndarray, rounds: int) -> dict[str, dict[str, float]]:
    """The fastest slice of each, after one to warm up."""
    steps = actions.shape[0] * actions.shape[1]
    times = {name: [] for name in rivals}
    for turn in range(rounds + 1):
        for name, play in rivals.items():
            wall, cpu = time.perf_counter(), time.process_time()
            play(actions)
            if turn:
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    best = {name: [min(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    return {name: {"steps_per_s": steps / wall, "cpu_us": 1e6 * cpu / steps} for name, (wall, cpu) in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=int, default=25, help="steps of all environments in one slice")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for name, body in BODIES.items():
        model = load_body(body, "v4")
        shape = (options.slice, options.envs, model.nu)
        high = model.actuator_ctrlrange[:, 1]
        actions = (high * np.random.default_rng(0).uniform(-1, 1, shape)).astype(np.float32)
        tasks = {
            "awavo": ours(name, options.envs),
            "gymnasium sync": theirs(name, options.envs, "sync"),
            "gymnasium async": theirs(name, options.envs, "async"),
        }
        physics = {"threads": threads(body, options.envs), "mujoco.rollout": rollouts(body, options.envs)}
        results[name] = {
            "task": race(tasks, actions, options.rounds), "physics": race(physics, actions, options.rounds)
        }  # fmt: skip
        del results[name]["task"]["gymnasium async"]["cpu_us"]
        for part, rows in results[name].items():
            print(name, part, {rival: {k: round(v) for k, v in row.items()} for rival, row in rows.items()}, flush=True)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info()}
        made |= {"versions": versions() | {"mujoco": mujoco.__version__}}
        made |= {"envs": options.envs, "rounds": options.rounds, "slice": options.slice, "load": os.getloadavg()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
