"""Result files of learning jobs, read back: one entry per task and algorithm, blocks of seeds put together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from awavo.errors import InputError
from awavo.paper.job import Job, JobSettings, ResultFile, ResultRow
from awavo.results.statistics import mean_estimate

__all__ = ["Band", "MethodResult", "Point", "device_text", "load_method_results", "read_results"]

Floats = NDArray[np.float64]
# Settings that 0 or an empty list leaves to the rule of sizes.
SIZES = {"num_envs", "rollout_length", "num_updates", "batch_size", "warmup_steps", "hidden"}


@dataclass(frozen=True)
class Point:
    """What every seed had reached after `env_steps`: returns `[S]` and costs `[S, C]`."""

    env_steps: int
    returns: Floats
    costs: Floats
    wall_s: float


@dataclass(frozen=True)
class Band:
    """Return, then each cost, as means over seeds with their intervals `[1 + C]`, of training at `env_steps`."""

    env_steps: int
    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class MethodResult:
    """One task, one algorithm, all seeds: final evaluation, checkpoints (greedy), training curve (exploring)."""

    task: str
    algo: str
    variant: str
    seeds: list[int]
    env_steps: int
    final: Point
    checkpoints: list[Point]
    curve: list[Band]
    cost_names: tuple[str, ...]
    limits: tuple[float, ...]
    episodes: int
    wall_s: float
    compile_s: float
    family: str
    source: dict[str, str]


def read_results(folder: Path, figure: str) -> list[ResultFile]:
    """Every readable result file of a figure below a folder, with its path; foreign JSON is left alone."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"'{path}' is not a readable result file ({error}): remove it.") from error
        rows = content.get("rows") if isinstance(content, dict) else None
        own = isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
        job = content.get("job", {}) if own else None
        if isinstance(job, dict) and job.get("figure", "learning") == figure:
            found.append({**content, "path": path})
    return found


def load_method_results(
    results: Iterable[ResultFile], wanted: Sequence[Job] = ()
) -> tuple[list[MethodResult], list[str]]:
    """Entries of the results, and notes on what was left out.

    Where several families (settings) of one task, algorithm and variant are there, one with the settings of a `wanted`
    job counts, else the one with the most seeds.
    """
    families: dict[tuple[str, str, str], dict[str, list[tuple[ResultRow, ResultFile]]]] = {}
    for result in results:
        for row in result["rows"]:
            if "evaluation" in row and isinstance(row.get("task"), str) and isinstance(row.get("algo"), str):
                variant = str(result.get("job", {}).get("variant", ""))
                family = result.get("job", {}).get("family") or f"{row['task']}-{row['algo']}-{result['path'].stem}"
                key = (row["task"], row["algo"], variant)
                families.setdefault(key, {}).setdefault(family, []).append((row, result))
    entries, notes, foreign = [], [], []
    for (task, algo, variant), choices in families.items():
        try:
            ranks = {
                family: (
                    any(_same_settings(blocks[0][0], job) for job in wanted),
                    sum(row["seeds"] for row, _ in blocks),
                )
                for family, blocks in choices.items()
            }
            order = sorted(choices, key=lambda family: ranks[family], reverse=True)
            entries.append(_entry(task, algo, variant, order[0], choices[order[0]]))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            paths = ", ".join(sorted({f"'{result['path']}'" for blocks in choices.values() for _, result in blocks}))
            raise InputError(
                f"a result file of {algo} on {task} is damaged ({error!r:.200}), one of {paths}: remove it; the same "
                "command without --collect makes it anew."
            ) from error
        if wanted and not ranks[order[0]][0]:
            foreign.append(f"{algo} on {task}{f' ({variant})' if variant else ''}")
        notes += [f"{task}, {algo}: '{family}' was left out for '{order[0]}'." for family in order[1:]]
    if foreign:
        notes.append(f"made with other settings than those of this budget: {', '.join(foreign)}.")
    return entries, notes


def _same_settings(row: ResultRow, job: Job) -> bool:
    """Whether a row was made with a job's steps, limits and settings; settings that only one of them knows are new."""
    wanted = job.settings
    limits = [float(cost["limit"]) for cost in row["evaluation"]["greedy"]["costs"].values()]
    own: JobSettings = {key: list(v) if isinstance(v, tuple) else v for key, v in row.get("settings", {}).items()}
    known = own.keys() & wanted["options"].keys()
    return (
        (row["task"], row["algo"]) == (wanted["task"], wanted["algo"])
        and 0
        <= row["env_steps_per_seed"] - wanted["steps"]
        < int(own.get("num_envs", 1)) * int(own.get("rollout_length", 1))
        and limits == [float(limit) for limit in wanted["cost_limits"]]
        and all(own[key] == wanted["options"][key] for key in known if not _by_rule(key, wanted["options"][key]))
    )


def _by_rule(name: str, value: object) -> bool:
    """Whether a setting is left to the rule of sizes: the row has what the rule made of it."""
    return value == "auto" or name == "replay_capacity" or (name in SIZES and value in (0, [], ()))


def _entry(task: str, algo: str, variant: str, family: str, blocks: list[tuple[ResultRow, ResultFile]]) -> MethodResult:
    """Put the blocks of seeds of one family together; a seed that is there twice counts once."""
    names, limits = _costs_of(blocks[0][0])
    taken: dict[int, tuple[int, int]] = {}
    for number, (row, _) in enumerate(blocks):
        for index, seed in enumerate(row.get("seed_numbers", range(row["seeds"]))):
            taken.setdefault(seed, (number, index))
    seeds = sorted(taken)
    places = [taken[seed] for seed in seeds]

    def pool(parts: Sequence[ResultRow]) -> Point:
        """One moment of every block, as one."""
        costs = [part["costs"] if isinstance(part["costs"], dict) else dict(zip(names, part["costs"], strict=True))
                 for part in parts]  # fmt: skip
        returns = np.array([_of_seed(parts[b]["return"], i) for b, i in places])
        table = np.array([[_of_seed(costs[b][name], i) for name in names] for b, i in places])
        wall = max(float(part.get("wall_s", np.nan)) for part in parts)
        return Point(int(parts[0].get("env_steps", 0)), returns, table.reshape(len(places), len(names)), wall)

    def band(parts: Sequence[ResultRow]) -> Band:
        """Pool the seeds anew where they were kept, else take the first block's means."""
        point = pool(parts)
        if np.isfinite(point.returns).all():
            found = [mean_estimate(column) for column in (point.returns, *point.costs.T)]
            values = np.array([(e.value, e.low, e.high) for e in found])
        else:
            kept = [parts[0]["return"], *parts[0]["costs"]]
            values = np.array([(f["value"], f["low"], f["high"]) for f in kept], float)
        return Band(point.env_steps, *values.T)

    rows = [row for row, _ in blocks]
    finals = [row["evaluation"]["greedy"] for row in rows]
    first, steps = finals[0], rows[0]["env_steps_per_seed"]
    final = pool(finals)
    devices = dict.fromkeys(device_text(result) for _, result in blocks)
    return MethodResult(
        task, algo, variant, seeds, steps,
        Point(steps, final.returns, final.costs, max(row["train_wall_s"] for row in rows)),
        [pool(parts) for parts in _together([row.get("checkpoints", []) for row in rows])],
        [band(parts) for parts in _together([row.get("curve", []) for row in rows])],
        names, limits, int(first["episodes_per_seed"]),
        sum(row["train_wall_s"] for row in rows), sum(row["compile_s"] for row in rows), family,
        {
            "command": "; ".join(dict.fromkeys(str(result.get("command", "")) for _, result in blocks)),
            "commit": ", ".join(dict.fromkeys(str(result.get("commit")) for _, result in blocks)),
            "device": ", ".join(devices),
        },
    )  # fmt: skip


def _together(series: Sequence[Sequence[ResultRow]]) -> list[list[ResultRow]]:
    """Moments that every block has, in order."""
    by_steps = [{part["env_steps"]: part for part in parts} for parts in series]
    common = set.intersection(*(set(parts) for parts in by_steps)) if by_steps else set()
    return [[parts[steps] for parts in by_steps] for steps in sorted(common)]


def _of_seed(figure: ResultRow, index: int) -> float:
    """A seed's value; NaN where only the mean over seeds was kept."""
    per_seed = figure.get("per_seed")
    return float("nan") if per_seed is None else float(per_seed[index])


def _costs_of(row: ResultRow) -> tuple[tuple[str, ...], tuple[float, ...]]:
    costs = row["evaluation"]["greedy"]["costs"]
    return tuple(costs), tuple(float(cost["limit"]) for cost in costs.values())


def device_text(result: ResultFile) -> str:
    """The machine of a result file in a few words."""
    device = result.get("device") or {}
    kind = str(device.get("kind", "an unrecorded device"))
    return kind if kind != "cpu" else f"{device.get('cpu', 'cpu')}, {device.get('cores')} cores"
