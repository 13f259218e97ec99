"""Environment steps per second and compile time of the trust-region baselines, one seed on CartPole.

    python benchmarks/baselines_speed.py [--algo crpo pcpo] [--out benchmarks/results/baselines_speed.json]

Rates are per second of this process's CPU time as well as per second of the clock, since the machine may be shared.
Needs only jax, numpy, equinox and optax; run it with PYTHONPATH=src where the package is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax

from awavo.config import TrainConfig
from awavo.provenance import device_info, source_commit
from awavo.runs.problem import build_problem, resolve_config
from awavo.training.loop import CompiledRunner, chunk_fn, init_fn

CHUNK = 16


def measure(algo: str, steps: int) -> dict:
    _, algorithm, config, env, _ = build_problem(resolve_config(TrainConfig(task="cartpole", algo=algo, steps=steps)))
    assert env is not None
    runner = CompiledRunner(
        [0], init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length), "map"
    )
    cpu = time.process_time()
    runner.compile()
    compile_cpu = time.process_time() - cpu
    runner.run(1)
    per_chunk = CHUNK * config.num_envs * config.rollout_length
    rates, cpu_rates, done = [], [], 0
    while done < steps:
        clock, cpu = time.perf_counter(), time.process_time()
        runner.run(CHUNK)
        rates.append(per_chunk / (time.perf_counter() - clock))
        cpu_rates.append(per_chunk / (time.process_time() - cpu))
        done += per_chunk
    middle = len(rates) // 2
    return {
        "algo": algo,
        "steps": done,
        "steps_per_cpu_second": sorted(cpu_rates)[middle],
        "steps_per_second": sorted(rates)[middle],
        "compile_s": runner.compile_seconds,
        "compile_cpu_s": compile_cpu,
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", nargs="+", default=["crpo", "pcpo", "cpo", "trpo-lagrangian", "trpo-ipo"])
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for algo in args.algo:
        rows.append(measure(algo, args.steps))
        print(json.dumps(rows[-1]), flush=True)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        head = {"command": "python " + " ".join(sys.argv), "commit": source_commit(), "device": device_info()}
        args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
