"""CPU seconds until the first update of a host task, and environment steps per CPU-second after it.

    python benchmarks/learner/speed.py --algo awavo --task halfcheetah-velocity [--out FILE]

CPU time, not the clock: it says the same on a machine that is shared. The compile cache is not used. Where two
"cores" are the two threads of one, a second of both together does the work of little more than a second of one, and
steps per CPU-second halve although nothing is slower: `taskset -c 1 python benchmarks/learner/speed.py` keeps to one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

import jax

from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.algorithms.orpo_dr import OrpoDrConfig, orpo_dr
from awavo.algorithms.sizes import resolve_sizes
from awavo.provenance import device_info, source_commit
from awavo.registry import make_host_task
from awavo.training.host_loop import HostRunner

ALGORITHMS = {"orpo-dr": (OrpoDrConfig, orpo_dr), "awavo": (AwavoConfig, awavo)}


def cpu_seconds() -> float:
    """Of this process, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=sorted(ALGORITHMS), default="awavo")
    parser.add_argument("--task", default="halfcheetah-velocity")
    parser.add_argument("--iterations", type=int, default=32)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    kind, make = ALGORITHMS[args.algo]
    with make_host_task(args.task, num_envs=1) as probe:
        config = resolve_sizes(probe.spec, kind(replay_capacity=100_000))
        algorithm = make(probe.spec, config)
    begun = cpu_seconds()
    runner = HostRunner(
        [0], lambda: make_host_task(args.task, num_envs=config.num_envs), algorithm, config.rollout_length
    )
    runner.run(1)
    first = cpu_seconds() - begun
    begun, clock = cpu_seconds(), time.perf_counter()
    runner.run(args.iterations)
    spent, clock = cpu_seconds() - begun, time.perf_counter() - clock
    runner.close()
    steps = args.iterations * config.num_envs * config.rollout_length
    row = {
        "algo": args.algo, "task": args.task, "first_update_cpu_s": round(first, 1), "steps": steps,
        "steps_per_cpu_s": round(steps / spent, 1), "gradient_steps": args.iterations * config.num_updates,
        "cores": len(os.sched_getaffinity(0)), "steps_per_s": round(steps / clock, 1),
        "command": "python " + " ".join(sys.argv), "commit": source_commit(), "device": device_info(),
    }  # fmt: skip
    print(json.dumps(row))
    if args.out:
        args.out.write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
