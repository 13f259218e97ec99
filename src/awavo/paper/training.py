"""One learning job: an ordinary run, evaluated on the way and at the end, and the row its result file holds.

Needs jax, numpy, equinox and optax alone, so that it runs on a bare machine with an accelerator; where polars and
safetensors are installed too, the job has a run folder and resumes after a kill.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from awavo.files import locked
from awavo.paper.job import JobSettings, ResultRow, write_atomically
from awavo.paper.plans import train_config
from awavo.results.recorder import Recorder
from awavo.results.statistics import mean_estimate
from awavo.runs.evaluate import Evaluator
from awavo.runs.problem import build_problem
from awavo.runs.train import Training, seed_axis
from awavo.training.loop import MAX_CHUNK
from awavo.types import Fields

__all__ = ["checkpoint_iterations", "curve_iterations", "curve_rows", "run_learning"]

KINDS = {"greedy": True, "stochastic": False}
Say = Callable[[str], None]


def run_learning(
    settings: JobSettings,
    seeds: Sequence[int],
    *,
    axis: str = "auto",
    folder: Path | None = None,
    on_progress: Say = lambda line: None,
) -> ResultRow:
    """Train and evaluate the seeds; return the row that the result file holds.

    `settings`: task, algo, steps, and optionally preset, options, task_options, cost_limits, episodes, checkpoints,
    spacing (`log` or `linear`), points (of the curve), evaluate (among greedy, stochastic, actor).
    """
    config = train_config(settings, seeds, axis)
    problem = build_problem(config)
    if folder is not None and not all(map(find_spec, ("polars", "safetensors"))):
        on_progress("no polars or safetensors here: this job has no checkpoints")
        folder = None
    with locked(folder):
        training = Training(config, problem, folder)
        stops = checkpoint_iterations(training.total, settings.get("checkpoints", 0), settings.get("spacing", "linear"))
        episodes = settings.get("episodes", 100)
        evaluator = Evaluator(problem, seeds, episodes, axis=seed_axis(config))
        checkpoints = _Checkpoints(training, evaluator, on_progress)
        if training.iteration:
            on_progress(f"resumes at {training.env_steps} steps")
        for iteration in training.advance(stops):
            on_progress(_training_line(training))
            if iteration in stops:
                checkpoints.look()
        if stops:  # the last one, of a run that was killed just before it
            checkpoints.look()
        states = [state.algorithm for state in training.runner.states]
        wanted = settings.get("evaluate", ["greedy"])
        last = checkpoints.rows[-1] if stops and "greedy" in wanted else None
        evaluation = {
            kind: last if last and KINDS[kind] else evaluator.summarize(states, KINDS[kind])
            for kind in wanted
            if kind in KINDS
        }
        if "actor" in wanted and problem.algorithm.plan is not None:
            alone = Evaluator(problem, seeds, episodes, axis=seed_axis(config), planner=False)
            evaluation["actor alone"] = alone.summarize(states, True)
    for kind, result in evaluation.items():
        on_progress(_result_line(kind, result))
    cuts = curve_iterations(training.total, settings.get("points", 40), stops, MAX_CHUNK)
    wall, cpu = training_seconds(training)
    total = training.env_steps * len(seeds)
    return {
        "algo": settings["algo"],
        "task": settings["task"],
        "preset": settings.get("preset", "default"),
        "seeds": len(seeds),
        "seed_numbers": list(seeds),
        "env_steps_per_seed": training.env_steps,
        "settings": dataclasses.asdict(problem.settings),
        "seed_axis": seed_axis(config),
        "compile_s": training.runner.compile_seconds,
        "train_wall_s": wall,
        "train_cpu_s": cpu,
        "steps_per_second": total / wall,
        "steps_per_cpu_second": total / cpu,
        "last_info": last_info(training.recorder, problem.spec.cost_names),
        "curve": [
            {**row, "wall_s": training_seconds(training, row["env_steps"])[0]}
            for row in curve_rows(
                training.recorder,
                seeds,
                problem.spec.cost_names,
                [cut * training.per_iteration for cut in cuts],
                problem.settings.num_envs // 2,
            )
        ],
        "checkpoints": checkpoints.rows,
        "overrides": dict(settings.get("overrides", settings.get("options", {}))),
        "evaluation": evaluation,
    }


class _Checkpoints:
    """Evaluations on the way, kept in the run folder: none is made twice."""

    def __init__(self, training: Training, evaluator: Evaluator, on_progress: Say):
        self._training, self._evaluator, self._say = training, evaluator, on_progress
        self._path = None if training.out is None else training.out / "checkpoint_evaluations.json"
        self.rows: list[ResultRow] = []
        if self._path is not None and self._path.exists():
            self.rows = json.loads(self._path.read_text())

    def look(self) -> None:
        """Evaluate the present policies, unless that was done before the run was interrupted."""
        steps = self._training.env_steps
        if any(row["env_steps"] == steps for row in self.rows):
            return
        found = self._evaluator.summarize([state.algorithm for state in self._training.runner.states], True)
        self.rows.append({**found, "env_steps": steps, "wall_s": training_seconds(self._training)[0]})
        if self._path is not None:
            write_atomically(self._path, json.dumps(self.rows) + "\n")
        self._say(_result_line("greedy", self.rows[-1]))


def training_seconds(training: Training, env_steps: int | None = None) -> tuple[float, float]:
    """Seconds and CPU seconds that training took up to a step, over all its parts, from the table of metrics."""
    metrics = training.recorder.metrics
    rows = metrics["seed"] == training.seeds[0]
    rows &= metrics["env_steps"] <= (training.env_steps if env_steps is None else env_steps)
    speed = np.asarray(metrics["time/steps_per_second"][rows], float)
    cpu = np.asarray(metrics["time/cpu_seconds"][rows], float)
    return float(np.sum(training.per_iteration * len(training.seeds) / speed)), float(np.sum(cpu))


def last_info(recorder: Recorder, cost_names: Sequence[str]) -> Fields:
    """The learner's metrics after the last iteration, as means over the seeds; a list where there is one per cost."""
    metrics = recorder.metrics
    last = metrics["env_steps"] == metrics["env_steps"].max()
    means = {name: float(np.mean(column[last])) for name, column in metrics.items() if name.startswith("train/")}
    found: Fields = {}
    for name, value in means.items():
        cost = next((c for c in cost_names if name.endswith(f"_{c}")), None)
        if cost is None:
            found[name.removeprefix("train/")] = value
        else:
            found.setdefault(name.removeprefix("train/").removesuffix(f"_{cost}"), []).append(value)
    return found


def curve_rows(
    recorder: Recorder, seeds: Sequence[int], cost_names: Sequence[str], cuts: Sequence[int], least: int = 1
) -> list[ResultRow]:
    """Points of the learning curve: per-seed means of the episodes finished between cuts (in steps), over the seeds.

    A point waits until every seed has `least` episodes: where whole episodes end together, those that end between are
    the broken ones.
    """
    episodes, metrics = recorder.episodes, recorder.metrics
    costs = np.stack([episodes[f"cost_{name}"] for name in cost_names], 1)
    rows, start = [], 0
    for previous, end in zip([0, *cuts], cuts, strict=False):
        finished = (episodes["env_steps"] > start) & (episodes["env_steps"] <= end)
        own = [finished & (episodes["seed"] == seed) for seed in seeds]
        if any(mask.sum() < max(1, least) for mask in own):
            continue
        mean_costs = np.array([costs[mask].mean(0) for mask in own])
        recent = (metrics["env_steps"] > previous) & (metrics["env_steps"] <= end)
        rows.append(
            {
                "env_steps": end,
                "return": _figure(np.array([episodes["return"][mask].mean() for mask in own])),
                "costs": [_figure(mean_costs[:, i]) for i in range(len(cost_names))],
                "feasible_iterations": float(np.mean(metrics["train/feasible"][recent])),
            }
        )
        start = end
    return rows


def _figure(per_seed: NDArray[np.float64]) -> dict[str, float | list[float]]:
    estimate = mean_estimate(per_seed) if len(per_seed) > 1 else None
    low, high = (estimate.low, estimate.high) if estimate else (float("nan"),) * 2
    rounded = [float(f"{value:.6g}") for value in per_seed]
    return {"value": float(per_seed.mean()), "low": float(low), "high": float(high), "per_seed": rounded}


def _training_line(training: Training) -> str:
    recent = " ".join(f"{name} {value:.2f}" for name, value in training.recorder.recent().items())
    return f"{training.env_steps:9d} training {recent}"


def _result_line(kind: str, result: ResultRow) -> str:
    mean, at = result["return"], f"{result['env_steps']:9d} " if result["env_steps"] else " " * 10
    costs = " ".join(f"{name} {cost['value']:.2f}/{cost['limit']:g}" for name, cost in result["costs"].items())
    return (
        f"{at}{kind} return {mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}] {costs} "
        f"within limits {result['feasible_seeds']}/{result['seeds']}"
    )


def checkpoint_iterations(iterations: int, count: int, spacing: str) -> list[int]:
    """At most `count` different iterations up to the last one: `linear`, or `log` (dense early)."""
    if count <= 0:
        return []
    if spacing == "linear" or count == 1:
        wanted = [round(iterations * (k + 1) / count) for k in range(count)]
    else:
        wanted = [round(iterations ** (k / (count - 1))) for k in range(count)]
    return sorted({min(max(k, 1), iterations) for k in wanted})


def curve_iterations(iterations: int, points: int, checkpoints: Sequence[int], longest: int) -> list[int]:
    """Where the stretches of a learning curve end: about `points` of at most `longest`, every checkpoint, the end."""
    stride = max(1, min(longest, iterations // points))
    return sorted({*range(stride, iterations, stride), *checkpoints, iterations})
