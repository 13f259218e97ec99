"""Train an algorithm's preset on a task with several seeds, then evaluate every seed greedily and stochastically.

    python benchmarks/baselines_learning.py --algo crpo pcpo --task cartpole acrobot --seeds 10 --steps 1000000 \
        --out benchmarks/results/baselines_learning.json

Needs only jax, numpy, equinox and optax; run it with PYTHONPATH=src where the package is not installed. Seeds run in one vmapped program
on a GPU and one after the other on a CPU (`--seed-axis`). `--set name=value` changes settings of the algorithm.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np

from awavo.config import config_from_mapping, parse_value
from awavo.experiment import load_preset, settings_class
from awavo.provenance import device_info, source_commit
from awavo.registry import ALGORITHMS, make_task, resolve
from awavo.results.statistics import evaluation_summary, mean_estimate
from awavo.training.compilation import enable_cache
from awavo.training.evaluation import evaluate_env
from awavo.training.loop import MAX_CHUNK, CompiledRunner, chunk_fn, init_fn

EVALUATION_SEED = 1_000_003


def curve_row(steps: int, outputs: list, num_costs: int) -> dict:
    """Mean over the seeds (with its interval) of the episodes that finished in a chunk."""
    done = [o.done for o in outputs]
    if not all(d.any() for d in done):
        return {}
    returns = np.array([o.episode_return[d].mean() for o, d in zip(outputs, done, strict=True)])
    costs = np.array([o.episode_costs[d].mean(0) for o, d in zip(outputs, done, strict=True)])
    row = {"env_steps": steps, "return": figure(returns), "costs": [figure(costs[:, i]) for i in range(num_costs)]}
    return row | {"feasible_iterations": float(np.mean([o.info.feasible.mean() for o in outputs]))}


def figure(per_seed: np.ndarray) -> dict:
    estimate = mean_estimate(per_seed) if len(per_seed) > 1 else None
    low, high = (estimate.low, estimate.high) if estimate else (float("nan"),) * 2
    return {"value": float(per_seed.mean()), "low": float(low), "high": float(high)}


def train(algo: str, task: str, args: argparse.Namespace) -> dict:
    env = make_task(task)
    overrides = {k: parse_value(v) for k, v in (item.split("=", 1) for item in args.set)}
    config = config_from_mapping(settings_class(algo), {**load_preset(algo, args.preset, task), **overrides}, algo)
    algorithm = resolve(algo, ALGORITHMS, "algorithm")(env.spec, config)
    axis = args.seed_axis if args.seed_axis != "auto" else ("map" if jax.default_backend() == "cpu" else "vmap")
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    runner = CompiledRunner(
        seeds, init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length), axis
    )
    runner.compile()
    per_iteration = config.num_envs * config.rollout_length
    iterations = -(-args.steps // per_iteration)
    chunk = max(1, min(MAX_CHUNK, iterations // args.points))
    curve, began, cpu = [], time.perf_counter(), time.process_time()
    for start in range(0, iterations, chunk):
        outputs = runner.run(min(chunk, iterations - start))
        row = curve_row(min(start + chunk, iterations) * per_iteration, outputs, env.spec.num_costs)
        if row:
            curve.append(row)
            if args.verbose:
                costs = " ".join(f"{c['value']:7.2f}" for c in row["costs"])
                print(f"{row['env_steps']:9d} return {row['return']['value']:7.2f} costs {costs}", flush=True)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    states = jax.tree.map(lambda *x: np.stack(x), *[s.algorithm for s in runner.states])
    evaluation = {}
    for name, greedy in (("greedy", True), ("stochastic", False)):
        play = jax.jit(
            jax.vmap(evaluate_env(env, algorithm, args.episodes, greedy))
            if axis == "vmap"
            else evaluate_env(env, algorithm, args.episodes, greedy)
        )
        keys = [jax.random.fold_in(jax.random.fold_in(jax.random.key(EVALUATION_SEED), s), greedy) for s in seeds]
        if axis == "vmap":
            totals = play(jax.numpy.stack(keys), states)
        else:
            played = [play(k, jax.tree.map(lambda x, i=i: x[i], states)) for i, k in enumerate(keys)]
            totals = jax.tree.map(lambda *x: np.stack(x), *played)
        evaluation[name] = evaluation_summary(
            np.asarray(totals.returns), np.asarray(totals.costs), np.asarray(totals.length),
            cost_names=env.spec.cost_names, cost_limits=env.spec.cost_limits, tolerance=config.tolerance, env_steps=iterations * per_iteration,
        )  # fmt: skip
    total = iterations * per_iteration * args.seeds
    return {
        "algo": algo, "task": task, "preset": args.preset, "seeds": args.seeds, "env_steps_per_seed": iterations * per_iteration,
        "settings": dataclasses.asdict(config), "seed_axis": axis, "compile_s": runner.compile_seconds, "train_wall_s": wall,
        "train_cpu_s": cpu, "steps_per_second": total / wall, "steps_per_cpu_second": total / cpu,
        "last_info": {k: np.mean([np.asarray(getattr(o.info, k))[-1] for o in outputs], 0).tolist() for k in outputs[0].info._fields},
        "curve": curve, "evaluation": evaluation,
    }  # fmt: skip


def show(row: dict) -> None:
    print(f"{row['algo']} on {row['task']}: {row['seeds']} seeds x {row['env_steps_per_seed']} steps in {row['train_wall_s']:.1f} s "
          f"(compile {row['compile_s']:.1f} s, {row['steps_per_second']:.0f} steps/s, {row['steps_per_cpu_second']:.0f} per CPU-second)")  # fmt: skip
    for name, result in row["evaluation"].items():
        costs = [np.round(c["per_seed"], 1).tolist() for c in result["costs"].values()]
        print(f"  {name:10s} return {result['return']['value']:.1f} [{result['return']['low']:.1f}, {result['return']['high']:.1f}] "
              f"feasible {result['feasible_seeds']}/{row['seeds']}\n    returns {np.round(result['return']['per_seed'], 1).tolist()}\n    costs {costs}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", nargs="+", default=["crpo", "pcpo", "cpo", "trpo-lagrangian", "trpo-ipo"])
    parser.add_argument("--task", nargs="+", default=["cartpole", "acrobot"])
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=40, help="points of the learning curve")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed-axis", choices=("auto", "map", "vmap"), default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    enable_cache()
    rows = []
    for task in args.task:
        for algo in args.algo:
            rows.append(train(algo, task, args))
            show(rows[-1])
            if args.out:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                command = "python " + " ".join(sys.argv)
                head = {"command": command, "commit": source_commit(), "device": device_info()}
                args.out.write_text(json.dumps({**head, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
