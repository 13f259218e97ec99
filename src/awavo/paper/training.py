"""One learning job: train the seeds of a block, evaluate them on the way and at the end.

Needs jax, numpy, equinox and optax alone, so that it runs on a bare machine with an accelerator.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from awavo.config import TrainConfig
from awavo.paper.judge import Judge
from awavo.paper.schedule import checkpoint_iterations, legs
from awavo.results.statistics import mean_estimate
from awavo.runs.problem import Problem, build_problem, resolve_config
from awavo.training.host_loop import HostRunner
from awavo.training.loop import MAX_CHUNK, CompiledRunner, Runner, chunk_fn, init_fn

__all__ = ["run_learning", "train_config"]

KINDS = {"greedy": True, "stochastic": False}


def train_config(settings: Mapping[str, Any]) -> TrainConfig:
    """The resolved training configuration of a learning job's settings."""
    limits = settings.get("cost_limits")
    return resolve_config(
        TrainConfig(
            task=settings["task"],
            algo=settings["algo"],
            steps=settings["steps"],
            preset=settings.get("preset", "default"),
            algo_options=settings.get("options", {}),
            task_options=settings.get("task_options", {}),
            cost_limits=None if limits is None else tuple(limits),
        )
    )


def run_learning(
    settings: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    axis: str = "auto",
    on_progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train and evaluate the seeds; return the row that the result file holds.

    `settings`: task, algo, steps, and optionally preset, options, task_options, cost_limits, episodes, checkpoints,
    spacing (`log` or `linear`), points (of the curve), evaluate (among greedy, stochastic, actor).
    """
    problem = build_problem(train_config(settings))
    algorithm, config = problem.algorithm, problem.settings
    axis = axis if axis != "auto" else ("map" if jax.default_backend() == "cpu" else "vmap")
    runner = _runner(problem, seeds, axis)
    runner.compile()
    per_iteration = config.num_envs * config.rollout_length
    iterations = -(-settings["steps"] // per_iteration)
    stops = checkpoint_iterations(iterations, settings.get("checkpoints", 0), settings.get("spacing", "linear"))
    judge = Judge(problem, seeds, settings.get("episodes", 100), axis)
    curve, checkpoints, pending, outputs, wall, cpu = [], [], [], [], 0.0, 0.0
    for leg in legs(iterations, settings.get("points", 40), stops, MAX_CHUNK):
        began, busy = time.perf_counter(), time.process_time()
        outputs = runner.run(leg.end - leg.start)
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - busy
        steps = leg.end * per_iteration
        pending.append(outputs)
        row = curve_row(steps, pending, problem.spec.num_costs, config.num_envs // 2)
        if row:
            pending = []
            curve.append({**row, "wall_s": wall})
            on_progress(_curve_line(row))
        if leg.is_checkpoint:
            checkpoints.append({**judge(runner.states, True), "env_steps": steps, "wall_s": wall})
            on_progress(_result_line("greedy", checkpoints[-1]))
    wanted = settings.get("evaluate", ["greedy"])
    last = checkpoints[-1] if stops and "greedy" in wanted else None
    evaluation = {
        kind: last if last and KINDS[kind] else judge(runner.states, KINDS[kind]) for kind in wanted if kind in KINDS
    }
    if "actor" in wanted and algorithm.plan is not None:
        without = problem._replace(algorithm=algorithm._replace(start=None, plan=None))
        evaluation["actor alone"] = Judge(without, seeds, settings.get("episodes", 100), axis)(runner.states, True)
    for kind, result in evaluation.items():
        on_progress(_result_line(kind, result))
    if isinstance(runner, HostRunner):
        runner.close()
    total = iterations * per_iteration * len(seeds)
    names = outputs[0].info._fields
    return {
        "algo": settings["algo"],
        "task": settings["task"],
        "preset": settings.get("preset", "default"),
        "seeds": len(seeds),
        "seed_numbers": list(seeds),
        "env_steps_per_seed": iterations * per_iteration,
        "settings": dataclasses.asdict(config),
        "seed_axis": axis,
        "compile_s": runner.compile_seconds,
        "train_wall_s": wall,
        "train_cpu_s": cpu,
        "steps_per_second": total / wall,
        "steps_per_cpu_second": total / cpu,
        "last_info": {k: np.mean([np.asarray(getattr(o.info, k))[-1] for o in outputs], 0).tolist() for k in names},
        "curve": curve,
        "checkpoints": checkpoints,
        "overrides": dict(settings.get("overrides", settings.get("options", {}))),
        "evaluation": evaluation,
    }


def curve_row(steps: int, legs_outputs: Sequence[Sequence[Any]], num_costs: int, least: int = 1) -> dict[str, Any]:
    """Pool per-seed means of the episodes finished in these legs over the seeds.

    Empty while a seed has fewer than `least`: where whole episodes end together, those between are the broken ones.
    """
    per_seed = list(zip(*legs_outputs, strict=True))
    returns = [np.concatenate([o.episode_return[o.done] for o in outputs]) for outputs in per_seed]
    costs = [np.concatenate([o.episode_costs[o.done] for o in outputs]) for outputs in per_seed]
    if any(len(finished) < max(1, least) for finished in returns):
        return {}
    mean_costs = np.array([c.mean(0) for c in costs])
    return {
        "env_steps": steps,
        "return": _figure(np.array([r.mean() for r in returns])),
        "costs": [_figure(mean_costs[:, i]) for i in range(num_costs)],
        "feasible_iterations": float(np.mean([o.info.feasible.mean() for o in legs_outputs[-1]])),
    }


def _runner(problem: Problem, seeds: Sequence[int], axis: str) -> Runner:
    config = problem.settings
    if problem.make_host is not None:
        return HostRunner(seeds, problem.make_host, problem.algorithm, config.rollout_length, axis)
    assert problem.env is not None
    init = init_fn(problem.env, problem.algorithm, config.num_envs)
    chunk = chunk_fn(problem.env, problem.algorithm, config.rollout_length)
    return CompiledRunner(seeds, init, chunk, axis)


def _figure(per_seed: np.ndarray) -> dict[str, Any]:
    estimate = mean_estimate(per_seed) if len(per_seed) > 1 else None
    low, high = (estimate.low, estimate.high) if estimate else (float("nan"),) * 2
    rounded = [float(f"{value:.6g}") for value in per_seed]
    return {"value": float(per_seed.mean()), "low": float(low), "high": float(high), "per_seed": rounded}


def _curve_line(row: Mapping[str, Any]) -> str:
    costs = " ".join(f"{cost['value']:8.2f}" for cost in row["costs"])
    return f"{row['env_steps']:9d} training return {row['return']['value']:8.2f} costs {costs}"


def _result_line(kind: str, result: Mapping[str, Any]) -> str:
    mean, at = result["return"], f"{result['env_steps']:9d} " if result["env_steps"] else " " * 10
    costs = " ".join(f"{name} {cost['value']:.2f}/{cost['limit']:g}" for name, cost in result["costs"].items())
    return (
        f"{at}{kind} return {mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}] {costs} "
        f"within limits {result['feasible_seeds']}/{result['seeds']}"
    )
