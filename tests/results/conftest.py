"""Synthetic run folders: CartPole-like curves of ten seeds, written with the package's own writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from awavo.config import stored_fingerprint
from awavo.results.statistics import evaluation_summary
from awavo.results.store import write_sealed, write_table

NAMES = ("position", "angle")


def _write_run(
    folder: Path,
    *,
    seeds: int = 10,
    steps: int = 20_000,
    task: str = "cartpole",
    algo: str = "orpo-dr",
    preset: str = "posterior",
    limits: tuple[float, ...] = (30.0, 10.0),
    level: float = 199.0,
    cost_level: float = 0.9,
    speed: float = 6.0,
    evaluated: bool = True,
    rng: int = 0,
    command: str | None = None,
) -> Path:
    """Write a run whose return climbs to `level` and whose costs fall to `cost_level * limit`."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(rng)
    command = command or f"awavo train {task} --algo {algo} --seeds {seeds} --steps {steps}"
    write_sealed(folder / "config.json", _config(task, algo, preset, limits, seeds, steps, command))
    episodes = [_episodes(random, seed, steps, limits, level, cost_level, speed) for seed in range(seeds)]
    write_table(folder / "episodes.parquet", {k: np.concatenate([e[k] for e in episodes]) for k in episodes[0]})
    metrics = [_metrics(random, seed, steps, episodes[seed]) for seed in range(seeds)]
    write_table(folder / "metrics.parquet", {k: np.concatenate([m[k] for m in metrics]) for k in metrics[0]})
    if evaluated:
        write_sealed(folder / "evaluation.json", _evaluation(random, seeds, steps, limits, level, cost_level, folder))
    return folder


def _config(task, algo, preset, limits, seeds, steps, command):
    content = {
        "format": 1,
        "fingerprint": "",
        "config": {
            "task": task,
            "task_options": {"horizon": 200},
            "algo": algo,
            "preset": preset,
            "algo_options": {"learning_rate": 3e-4, "discount": 0.99, "num_quantiles": 32, "rectification": preset},
            "cost_limits": None,
            "seeds": seeds,
            "seed": 0,
            "steps": steps,
        },
        "spec": {
            "name": task,
            "obs_dim": 4,
            "action_space": {"num": 2},
            "horizon": 200,
            "cost_names": list(NAMES[: len(limits)]),
            "cost_limits": list(limits),
        },
        "versions": {"awavo": "0.1.0", "jax": "0.9.2", "python": "3.11.2"},
        "device": {"platform": "cpu", "kind": "aarch64", "count": 1},
        "command": command,
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "created": "2026-11-15T12:00:00+00:00",
    }
    return {**content, "fingerprint": stored_fingerprint(content["config"])}


def _episodes(random, seed, steps, limits, level, cost_level, speed):
    ends, step = [], 0
    speed, cost_level = speed * random.uniform(0.6, 1.4), cost_level * random.normal(1, 0.03)
    while True:
        progress = 1 - np.exp(-speed * step / steps)
        length = int(np.clip(20 + (level - 20) * progress + random.normal(0, 12 * (1.1 - progress)), 8, 200))
        step += length
        if step > steps:
            break
        ends.append((step, length, progress))
    env_steps, length, progress = (np.array(column) for column in zip(*ends, strict=True))
    table = {"seed": np.full(len(ends), seed), "env_steps": env_steps, "return": length.astype(float), "length": length}
    for name, limit in zip(NAMES, limits, strict=False):
        bump = 1.6 * np.exp(-(((progress - 0.6) / 0.25) ** 2))
        shape = limit * (0.3 * (1 - progress) + cost_level * progress + bump * (1 - progress))
        table[f"cost_{name}"] = np.maximum(0, shape + random.normal(0, 0.08 * limit, len(ends)))
    return table


def _metrics(random, seed, steps, episodes):
    env_steps = np.arange(512, steps + 1, 512)
    x = env_steps / steps
    last = np.searchsorted(episodes["env_steps"], env_steps, side="right") - 1
    table = {"seed": np.full(len(x), seed), "env_steps": env_steps}
    for column in ("return", *(name for name in episodes if name.startswith("cost_")), "length"):
        table[f"rollout/{column}"] = np.where(last >= 0, episodes[column][np.maximum(last, 0)].astype(float), np.nan)
    table["train/critic_loss"] = np.exp(-3 * x) * (1 + 0.1 * random.normal(size=len(x)))
    table["train/actor_loss"] = -x + 0.05 * random.normal(size=len(x))
    table["train/entropy"] = 0.69 * np.exp(-2 * x) + 0.01 * random.normal(size=len(x))
    for name in (column for column in episodes if column.startswith("cost_")):
        table[f"train/{name.replace('cost_', 'cost_estimate_')}"] = table[f"rollout/{name}"]
    table["train/feasible"] = np.clip(x + 0.1 * random.normal(size=len(x)), 0, 1)
    table["time/steps_per_second"] = 30_000 + 500 * random.normal(size=len(x))
    return table


def _evaluation(random, seeds, steps, limits, level, cost_level, folder):
    entry = {}
    for mode, factor in (("greedy", 1.0), ("stochastic", 0.985)):
        shape = (seeds, 100)
        centre = level * factor + random.normal(0, 1, (seeds, 1))
        returns = np.minimum(200, centre + random.normal(0, 2, shape))
        mean = np.array(limits) * cost_level * (1 + random.normal(0, 0.03, (seeds, 1, 1)))
        costs = np.maximum(0, mean + random.normal(0, 1, (*shape, len(limits))))
        entry[mode] = evaluation_summary(
            returns,
            costs,
            returns,
            cost_names=NAMES[: len(limits)],
            cost_limits=limits,
            env_steps=steps,
            command=f"awavo evaluate runs/{folder.name} --episodes 100",
        )
    return entry


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    return _write_run


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return _write_run(tmp_path / "good")
