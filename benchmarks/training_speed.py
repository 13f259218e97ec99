"""Environment steps per second of ORPO-DR on CartPole, compile time cold and cached, memory.

    python benchmarks/training_speed.py [--seeds 1 10] [--seconds 20] [--out benchmarks/results/training_speed.json]

Needs only jax, numpy, equinox and optax; run it with PYTHONPATH=src where the package is not installed. Each
measurement is a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = dict(replay_capacity=512 * 400)


def measure(seeds: int, seconds: float, cache: str) -> dict:
    began = time.perf_counter()
    os.environ["AWAVO_CACHE_DIR"] = cache
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from awavo.algorithms.orpo_dr import OrpoDrConfig, orpo_dr
    from awavo.algorithms.sizes import resolve_sizes
    from awavo.registry import make_task
    from awavo.training.compilation import enable_cache
    from awavo.training.loop import CompiledRunner, chunk_fn, init_fn

    enable_cache()
    env = make_task("cartpole")
    config = resolve_sizes(env.spec, OrpoDrConfig(**SETTINGS))
    algorithm = orpo_dr(env.spec, config)
    axis = "map" if jax.default_backend() == "cpu" else "vmap"
    runner = CompiledRunner(
        range(seeds), init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length), axis
    )
    runner.compile()
    runner.run(1)
    first_step = time.perf_counter() - began
    per_iteration = config.num_envs * config.rollout_length * seeds
    runner.run(4)
    rates = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        at = time.perf_counter()
        runner.run(16)
        rates.append(16 * per_iteration / (time.perf_counter() - at))
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "seeds": seeds,
        "axis": axis,
        "steps_per_second_median": sorted(rates)[len(rates) // 2],
        "steps_per_second_best": max(rates),
        "chunks": len(rates),
        "compile_s": runner.compile_seconds,
        "process_start_to_first_step_s": first_step,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "device_peak_mib": stats.get("peak_bytes_in_use", 0) / 2**20,
        "updates_per_512_steps": config.num_updates,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.seconds, args.cache)))
        return
    rows = []
    for seeds in args.seeds:
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "cached"):
                command = [
                    sys.executable,
                    __file__,
                    "--one",
                    str(seeds),
                    "--seconds",
                    str(args.seconds),
                    "--cache",
                    cache,
                ]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
                rows.append({"cache": state, **json.loads(done.stdout.strip().splitlines()[-1])})
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        from awavo.provenance import source_commit

        args.out.parent.mkdir(parents=True, exist_ok=True)
        command = "python " + " ".join(sys.argv)
        args.out.write_text(
            json.dumps({"command": command, "commit": source_commit(), "cores": os.cpu_count(), "rows": rows}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
