"""The jobs of every figure, resolved to every setting, so that a job's name changes with any of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from awavo.config import TrainConfig
from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.paper.budgets import budget, check_names, tasks_table
from awavo.paper.figures import FIGURES, load
from awavo.paper.job import Job, JobSettings
from awavo.runs.problem import resolve_config
from awavo.types import Fields

__all__ = [
    "ablation_jobs", "learning_jobs", "learning_settings", "plan_jobs", "split_seeds", "table_jobs", "train_config",
]  # fmt: skip


def plan_jobs(figure: str, size: str, **options: object) -> list[Job]:
    """All jobs of a figure. Options: seeds, seeds_per_job, and for learning tasks and algos."""
    if figure not in FIGURES:
        raise UnknownNameError(f"no figure is named '{figure}'.{did_you_mean(figure, FIGURES)}")
    return load(FIGURES[figure].plan)(figure, size, **{k: v for k, v in options.items() if v is not None})


def learning_jobs(
    figure: str,
    size: str,
    seeds: int | None = None,
    seeds_per_job: int | None = None,
    tasks: Sequence[str] | None = None,
    algos: Sequence[str] | None = None,
) -> list[Job]:
    """The learning jobs of a budget; seeds 0 to N - 1, by default in one block per task and algorithm."""
    rows: list[Fields] = budget(figure, size)["jobs"]
    wanted_tasks = check_names(tasks, list(dict.fromkeys(row["task"] for row in rows)), "task")
    wanted_algos = check_names(algos, list(dict.fromkeys(row["algo"] for row in rows)), "algorithm")
    return [
        Job(figure, f"{row['task']}-{row['algo']}", learning_settings(row), block)
        for row in rows
        if row["task"] in wanted_tasks and row["algo"] in wanted_algos
        for block in _blocks(figure, size, seeds, seeds_per_job)
    ]


def ablation_jobs(figure: str, size: str, seeds: int | None = None, seeds_per_job: int | None = None) -> list[Job]:
    """AWaVO with one part changed at a time, on each task of the budget."""
    jobs = []
    for group in budget(figure, size)["groups"]:
        for variant, options in group["variants"].items():
            settings = {**learning_settings({**group["job"], "options": options}), "variant": variant}
            label = f"{settings['task']}-{settings['algo']}-{variant.replace(' ', '_')}"
            jobs += [Job(figure, label, settings, block) for block in _blocks(figure, size, seeds, seeds_per_job)]
    return jobs


def table_jobs(figure: str, size: str, seeds: int | None = None, seeds_per_job: int | None = None) -> list[Job]:
    """One job for each row of the table."""
    jobs = []
    for row in budget(figure, size)["jobs"]:
        settings = {key: value for key, value in row.items() if key != "label"}
        if "learning" in settings:
            settings["learning"] = learning_settings(settings["learning"])
        jobs += [Job(figure, row["label"], settings, block) for block in _blocks(figure, size, seeds, seeds_per_job)]
    return jobs


def _blocks(figure: str, size: str, seeds: int | None, per_job: int | None) -> list[tuple[int, ...]]:
    chosen = budget(figure, size)
    return split_seeds(chosen["seeds"] if seeds is None else seeds, per_job, chosen.get("first_seed", 0))


def learning_settings(row: Fields) -> Fields:
    """A row of the table with everything that presets and defaults fill in."""
    task = {**tasks_table("safety"), **tasks_table()}.get(row["task"], {})
    limits, task_options = row.get("cost_limits", task.get("cost_limits")), task.get("task_options", {})
    config = train_config({**row, "cost_limits": limits, "task_options": task_options})
    resolved = dataclasses.asdict(config)
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in resolved["algo_options"].items()}
    return {
        **{key: row[key] for key in ("task", "algo", "steps", "checkpoints", "spacing", "episodes")},
        "points": row.get("points", 40),
        "evaluate": row.get("evaluate", ["greedy"]),
        "cost_limits": limits,
        **({"task_options": task_options} if task_options else {}),
        "overrides": row.get("options", {}),
        "options": options,
    }


def train_config(settings: JobSettings, seeds: Sequence[int] = (0,), axis: str = "auto") -> TrainConfig:
    """The resolved training configuration of a learning job's settings; `seeds` are consecutive."""
    limits = settings.get("cost_limits")
    return resolve_config(
        TrainConfig(
            task=settings["task"],
            algo=settings["algo"],
            steps=settings["steps"],
            seed=seeds[0],
            seeds=len(seeds),
            preset=settings.get("preset", "default"),
            algo_options=settings.get("options", {}),
            task_options=settings.get("task_options", {}),
            cost_limits=None if limits is None else tuple(limits),
            seed_axis=axis,
        )
    )


def split_seeds(num_seeds: int, per_job: int | None, first: int = 0) -> list[tuple[int, ...]]:
    """Consecutive seeds in blocks."""
    if num_seeds < 1 or (per_job is not None and per_job < 1):
        jobs = "" if per_job is None else f" in jobs of {per_job}"
        raise InputError(f"{num_seeds} seeds{jobs}: expected at least one{'' if per_job is None else ' of each'}.")
    size, end = per_job or num_seeds, first + num_seeds
    return [tuple(range(start, min(start + size, end))) for start in range(first, end, size)]
