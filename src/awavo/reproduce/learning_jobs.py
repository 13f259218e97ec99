"""The jobs of Figure 4: task x algorithm, resolved to every setting, so that a job's name changes with any of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from awavo.config import TrainConfig
from awavo.errors import InputError
from awavo.experiment import resolve_config
from awavo.reproduce.budgets import budget, check_names, tasks_table
from awavo.reproduce.jobs import Job

__all__ = ["learning_jobs", "learning_settings", "split_seeds"]


def learning_jobs(
    size: str,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    algos: Sequence[str] | None = None,
    seeds_per_job: int | None = None,
) -> list[Job]:
    """The learning jobs of a budget; seeds 0 to N - 1, by default in one block per task and algorithm."""
    chosen = budget("learning", size)
    rows: list[dict[str, Any]] = chosen["jobs"]
    wanted_tasks = check_names(tasks, list(dict.fromkeys(row["task"] for row in rows)), "task")
    wanted_algos = check_names(algos, list(dict.fromkeys(row["algo"] for row in rows)), "algorithm")
    blocks = split_seeds(chosen["seeds"] if seeds is None else seeds, seeds_per_job)
    return [
        Job("learning", f"{row['task']}-{row['algo']}", learning_settings(row), block)
        for row in rows
        if row["task"] in wanted_tasks and row["algo"] in wanted_algos
        for block in blocks
    ]


def learning_settings(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table with everything that presets and defaults fill in."""
    limits = row.get("cost_limits", tasks_table().get(row["task"], {}).get("cost_limits"))
    config = resolve_config(
        TrainConfig(
            task=row["task"],
            algo=row["algo"],
            steps=row["steps"],
            algo_options=row.get("options", {}),
            cost_limits=None if limits is None else tuple(limits),
        )
    )
    resolved = dataclasses.asdict(config)
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in resolved["algo_options"].items()}
    return {
        **{key: row[key] for key in ("task", "algo", "steps", "checkpoints", "spacing", "episodes")},
        "points": row.get("points", 40),
        "evaluate": row.get("evaluate", ["greedy"]),
        "cost_limits": limits,
        "overrides": row.get("options", {}),
        "options": options,
    }


def split_seeds(num_seeds: int, per_job: int | None) -> list[tuple[int, ...]]:
    """Seeds 0 to N - 1 in blocks."""
    if num_seeds < 1 or (per_job is not None and per_job < 1):
        raise InputError(f"{num_seeds} seeds in jobs of {per_job}: expected at least one of each.")
    size = per_job or num_seeds
    return [tuple(range(start, min(start + size, num_seeds))) for start in range(0, num_seeds, size)]
