"""Train an algorithm's preset on a task with several seeds, then evaluate every seed greedily and stochastically.

    python benchmarks/learning.py --algo crpo pcpo --task cartpole acrobot --seeds 10 --steps 2000000 \
        --out benchmarks/results/baselines_learning.json

Needs only jax, numpy, equinox and optax; run it with PYTHONPATH=src where the package is not installed. Seeds run in
one vmapped program on a GPU and one after the other on a CPU (`--seed-axis`). `--set name=value` changes settings,
`--cost-limits` the task's limits; `--checkpoints 5` also evaluates at five points on the way, `--actor-too` the actor
alone where the algorithm has a planner.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np

from awavo.config import TrainConfig, parse_value
from awavo.experiment import Problem, build_problem, resolve_config
from awavo.provenance import device_info, source_commit
from awavo.results.statistics import evaluation_summary, mean_estimate
from awavo.training.compilation import enable_cache
from awavo.training.evaluation import evaluate_env, evaluate_host, evaluate_hosts
from awavo.training.host_loop import HostRunner
from awavo.training.loop import MAX_CHUNK, CompiledRunner, chunk_fn, init_fn
from awavo.training.rollout import EpisodeTotals

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
    overrides = {k: parse_value(v) for k, v in (item.split("=", 1) for item in args.set)}
    limits = tuple(args.cost_limits) if args.cost_limits else None
    run = TrainConfig(
        task=task, algo=algo, steps=args.steps, preset=args.preset, algo_options=overrides, cost_limits=limits
    )
    problem = build_problem(resolve_config(run))
    spec, algorithm, config, env, make_host = problem
    axis = args.seed_axis if args.seed_axis != "auto" else ("map" if jax.default_backend() == "cpu" else "vmap")
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    if make_host is not None:
        runner = HostRunner(seeds, make_host, algorithm, config.rollout_length, axis)
    else:
        assert env is not None
        init, chunk_of = init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length)
        runner = CompiledRunner(seeds, init, chunk_of, axis)
    runner.compile()
    per_iteration = config.num_envs * config.rollout_length
    iterations = -(-args.steps // per_iteration)
    chunk = max(1, min(MAX_CHUNK, iterations // args.points))
    judge = Judge(problem, seeds, args.episodes, axis)
    curve, checkpoints, wall, cpu = [], [], 0.0, 0.0
    for start in range(0, iterations, chunk):
        began, busy = time.perf_counter(), time.process_time()
        outputs = runner.run(min(chunk, iterations - start))
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - busy
        done = min(start + chunk, iterations)
        row = curve_row(done * per_iteration, outputs, spec.num_costs)
        if args.checkpoints and done * args.checkpoints // iterations > start * args.checkpoints // iterations:
            checkpoints.append({**judge(runner.states, True), "env_steps": done * per_iteration})
            if args.verbose:
                show_result("greedy", checkpoints[-1], args.seeds)
        if row:
            curve.append(row)
            if args.verbose:
                costs = " ".join(f"{c['value']:7.2f}" for c in row["costs"])
                print(f"{row['env_steps']:9d} return {row['return']['value']:7.2f} costs {costs}", flush=True)
    kinds = {"greedy": True} if args.greedy_only else {"greedy": True, "stochastic": False}
    evaluation = {name: judge(runner.states, greedy) for name, greedy in kinds.items()}
    if args.actor_too and algorithm.plan is not None:
        without = problem._replace(algorithm=algorithm._replace(start=None, plan=None))
        alone = Judge(without, seeds, args.episodes, axis)
        evaluation["actor alone"] = alone(runner.states, True)
    total = iterations * per_iteration * args.seeds
    last = outputs[0].info._fields
    return {
        "algo": algo,
        "task": task,
        "preset": args.preset,
        "seeds": args.seeds,
        "env_steps_per_seed": iterations * per_iteration,
        "settings": dataclasses.asdict(config),
        "seed_axis": axis,
        "compile_s": runner.compile_seconds,
        "train_wall_s": wall,
        "train_cpu_s": cpu,
        "steps_per_second": total / wall,
        "steps_per_cpu_second": total / cpu,
        "last_info": {k: np.mean([np.asarray(getattr(o.info, k))[-1] for o in outputs], 0).tolist() for k in last},
        "curve": curve,
        "checkpoints": checkpoints,
        "overrides": overrides,
        "evaluation": evaluation,
    }


@jax.jit
def stack(trees: list):
    return jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *trees)


class Judge:
    """Fresh episodes of every seed's state, summarised; compiled once for each kind of action."""

    def __init__(self, problem: Problem, seeds: list[int], episodes: int, axis: str):
        self.problem, self.seeds, self.episodes = problem, seeds, episodes
        self.hosts: list = []
        self.vmap = axis == "vmap"
        if problem.env is not None:
            plays = {g: evaluate_env(problem.env, problem.algorithm, episodes, g) for g in (True, False)}
            self.plays = {g: jax.jit(jax.vmap(play) if self.vmap else play) for g, play in plays.items()}

    def play_hosts(self, keys: list, learnt: list, stacked, greedy: bool) -> EpisodeTotals:
        """Whole episodes of a host task, the seeds in step or one after the other."""
        algorithm, make_host = self.problem.algorithm, self.problem.make_host
        assert make_host is not None
        starts = [int(jax.random.randint(key, (), 0, 2**31 - 1)) for key in keys]
        if not self.hosts:
            self.hosts = [make_host() for _ in (keys if self.vmap else keys[:1])]

            def decide(key, state, obs, memory, greedy):
                return algorithm.decide(key, state, obs, memory, greedy)[::2]

            self.decides = {
                g: jax.jit(jax.vmap(partial(decide, greedy=g)) if self.vmap else partial(decide, greedy=g))
                for g in (True, False)
            }
        decide, fresh = self.decides[greedy], algorithm.begin(self.hosts[0].num_envs)
        if self.vmap:

            def together(keys, obs, memory):
                return decide(keys, stacked, obs, memory)

            played = evaluate_hosts(self.hosts, together, fresh, self.episodes, starts)
        else:
            played = [
                evaluate_host(self.hosts[0], lambda k, o, m, s=own: decide(k, s, o, m), fresh, self.episodes, start)
                for own, start in zip(learnt, starts, strict=True)
            ]
        returns, costs, lengths = (np.stack(x) for x in zip(*played, strict=True))
        return EpisodeTotals(returns=returns, costs=costs, length=lengths)

    def __call__(self, states: list, greedy: bool) -> dict:
        """Play and summarise."""
        base = jax.random.key(EVALUATION_SEED)
        keys = [jax.random.fold_in(jax.random.fold_in(base, seed), greedy) for seed in self.seeds]
        learnt = [state.algorithm for state in states]
        stacked = stack(learnt) if self.vmap else None
        if self.problem.make_host is not None:
            totals = self.play_hosts(keys, learnt, stacked, greedy)
        elif self.vmap:
            totals = jax.tree.map(np.asarray, self.plays[greedy](jax.numpy.stack(keys), stacked))
        else:
            played = [self.plays[greedy](key, state) for key, state in zip(keys, learnt, strict=True)]
            totals = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *played)
        spec = self.problem.spec
        return evaluation_summary(
            totals.returns,
            totals.costs,
            totals.length,
            cost_names=spec.cost_names,
            cost_limits=spec.cost_limits,
            tolerance=self.problem.settings.tolerance,
        )


def show(row: dict) -> None:
    """Print one row for a person."""
    print(
        f"{row['algo']} on {row['task']}: {row['seeds']} seeds x {row['env_steps_per_seed']} steps in "
        f"{row['train_wall_s']:.1f} s (compile {row['compile_s']:.1f} s, {row['steps_per_second']:.0f} steps/s, "
        f"{row['steps_per_cpu_second']:.0f} per CPU-second)"
    )
    for name, result in row["evaluation"].items():
        show_result(name, result, row["seeds"])


def show_result(name: str, result: dict, num_seeds: int) -> None:
    mean = result["return"]
    at = f"{result['env_steps']:9d} " if result["env_steps"] else ""
    print(
        f"  {at}{name:10s} return {mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}] "
        f"within limits {result['feasible_seeds']}/{num_seeds}"
    )
    print("    returns", np.round(mean["per_seed"], 1).tolist())
    for cost, figures in result["costs"].items():
        print(f"    {cost}", np.round(figures["per_seed"], 1).tolist(), flush=True)


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
    parser.add_argument("--greedy-only", action="store_true", help="no evaluation of the stochastic policy")
    parser.add_argument("--actor-too", action="store_true", help="evaluate a planner's actor alone as well")
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
