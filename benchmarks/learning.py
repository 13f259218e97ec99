"""Train an algorithm's preset on a task with several seeds, then evaluate every seed greedily and stochastically.

    python benchmarks/learning.py --algo crpo pcpo --task cartpole acrobot --seeds 10 --steps 2000000 \
        --out benchmarks/results/baselines_learning.json

One call, any settings, into one file; the whole comparison with fixed budgets is `python -m awavo.reproduce.jobs`,
which runs the same code. Needs only jax, numpy, equinox and optax; run it with PYTHONPATH=src where the package is not
installed. Seeds run in one vmapped program on a GPU and one after the other on a CPU (`--seed-axis`). `--set
name=value` changes settings, `--cost-limits` the task's limits; `--checkpoints 5` also evaluates at five points on the
way, `--actor-too` the actor alone where the algorithm has a planner.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from awavo.config import parse_value
from awavo.paper.training import run_learning
from awavo.provenance import device_info, source_commit
from awavo.training.compilation import enable_cache


def settings_of(algo: str, task: str, args: argparse.Namespace) -> dict:
    evaluate = ["greedy"] if args.greedy_only else ["greedy", "stochastic"]
    return {
        "task": task,
        "algo": algo,
        "preset": args.preset,
        "steps": args.steps,
        "points": args.points,
        "episodes": args.episodes,
        "checkpoints": args.checkpoints,
        "spacing": args.spacing,
        "options": {k: parse_value(v) for k, v in (item.split("=", 1) for item in args.set)},
        "cost_limits": args.cost_limits or None,
        "evaluate": [*evaluate, "actor"] if args.actor_too else evaluate,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", nargs="+", default=["crpo", "pcpo", "cpo", "trpo-lagrangian", "trpo-ipo"])
    parser.add_argument("--task", nargs="+", default=["cartpole", "acrobot"])
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--points", type=int, default=40, help="points of the learning curve")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed-axis", choices=("auto", "map", "vmap"), default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--cost-limits", nargs="*", type=float, help="instead of the task's")
    parser.add_argument("--checkpoints", type=int, default=0, help="evaluations on the way")
    parser.add_argument("--spacing", choices=("linear", "log"), default="linear", help="of the checkpoints")
    parser.add_argument("--greedy-only", action="store_true", help="no evaluation of the stochastic policy")
    parser.add_argument("--actor-too", action="store_true", help="evaluate a planner's actor alone as well")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    enable_cache()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    rows = []
    for task in args.task:
        for algo in args.algo:
            show = (lambda line: print(line, flush=True)) if args.verbose else (lambda line: None)
            rows.append(run_learning(settings_of(algo, task, args), seeds, axis=args.seed_axis, on_progress=show))
            summarize(rows[-1])
            if args.out:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                command = "python " + " ".join(sys.argv)
                head = {"command": command, "commit": source_commit(), "device": device_info()}
                args.out.write_text(json.dumps({**head, "rows": rows}) + "\n")


def summarize(row: dict) -> None:
    """Print one row for a person, every seed of it."""
    print(
        f"{row['algo']} on {row['task']}: {row['seeds']} seeds x {row['env_steps_per_seed']} steps in "
        f"{row['train_wall_s']:.1f} s (compile {row['compile_s']:.1f} s, {row['steps_per_second']:.0f} steps/s, "
        f"{row['steps_per_cpu_second']:.0f} per CPU-second)"
    )
    for name, result in row["evaluation"].items():
        mean = result["return"]
        print(
            f"  {name:10s} return {mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}] "
            f"within limits {result['feasible_seeds']}/{row['seeds']}"
        )
        for label, figures in {"return": mean, **result["costs"]}.items():
            print(f"    {label}", [round(value, 1) for value in figures["per_seed"]], flush=True)


if __name__ == "__main__":
    main()
