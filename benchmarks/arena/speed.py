"""Steps a second of the navigation tasks, beside Safety-Gymnasium's own.

    PYTHONPATH=src python benchmarks/arena/speed.py [--envs 16 64 256] [--safety-python PYTHON] [--out FILE]

Random actions that last 10 steps each, so that agents travel and touch things. Environments start anew during the
measurement: the first episodes are cut at different steps, so that resets, layouts and goals are all in it. A figure is
the fastest of the slices by the wall clock; `cpu_us` is the mean processor time of a step over all slices. With
`--safety-python`, an interpreter that has safety-gymnasium 1.0.0, two of its processes run at once, one a core, over
whole episodes with their resets: `steps_per_s` is that of both together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import mujoco
import numpy as np

from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_host_task
from awavo.tasks.arena.settings import ARENAS

NAMES = [f"{agent}-{arena}" for agent in ("point", "car") for arena in ARENAS]
THEIRS = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, safety_gymnasium
env = safety_gymnasium.make(sys.argv[1])
rng, steps = np.random.default_rng(int(sys.argv[2])), int(sys.argv[3])
env.reset(seed=int(sys.argv[2]))
wall, cpu = time.perf_counter(), time.process_time()
for i in range(steps):
    if i % 10 == 0:
        action = rng.uniform(-1, 1, 2)
    _, _, _, ended, cut, _ = env.step(action)
    if ended or cut:
        env.reset()
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def ours(name: str, num_envs: int, slices: int) -> dict[str, float]:
    """The task under sticky random actions."""
    with make_host_task(name, num_envs=num_envs) as env:
        rng, walls, cpus, length = np.random.default_rng(0), [], [], 40
        env.reset(0)
        horizon = env.spec.horizon
        env._backend.bodies.steps[:] = rng.integers(0, horizon, num_envs)  # episodes end at different times
        for turn in range(slices + 1):
            wanted = rng.uniform(-1, 1, (length // 10, num_envs, 2)).astype(np.float32).repeat(10, 0)
            wall, cpu = time.perf_counter(), time.process_time()
            for action in wanted:
                env.step(action)
            if turn:
                walls.append(time.perf_counter() - wall)
                cpus.append(time.process_time() - cpu)
    steps = length * num_envs
    return {
        "steps_per_s": steps / min(walls), "median_steps_per_s": steps / float(np.median(walls)),
        "cpu_us": 1e6 * float(np.mean(cpus)) / steps,
    }  # fmt: skip


def theirs(python: str, name: str, episodes: int) -> dict[str, float]:
    """Two processes of Safety-Gymnasium at once."""
    agent, arena = name.split("-")
    task = f"Safety{agent.capitalize()}{arena.capitalize()}-v0"
    steps = episodes * (500 if "circle" in arena else 1000)
    started = [
        subprocess.Popen([python, "-c", THEIRS, task, str(seed), str(steps)], stdout=subprocess.PIPE, text=True)
        for seed in (0, 1)
    ]
    times = [tuple(map(float, process.communicate()[0].split()[-2:])) for process in started]
    return {
        "steps_per_s": sum(steps / wall for wall, _ in times),
        "cpu_us": 1e6 * float(np.mean([cpu for _, cpu in times])) / steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=NAMES)
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=2, help="of Safety-Gymnasium, in each process")
    parser.add_argument("--safety-python")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, dict] = {}
    for name in options.tasks:
        results[name] = {f"awavo {count}": ours(name, count, options.slices) for count in options.envs}
        if options.safety_python:
            results[name]["safety-gymnasium"] = theirs(options.safety_python, name, options.episodes)
        print(name, {k: {x: round(y) for x, y in row.items()} for k, row in results[name].items()}, flush=True)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info()}
        made |= {"versions": versions() | {"mujoco": mujoco.__version__}, "load": os.getloadavg()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
