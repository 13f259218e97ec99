"""How much to train where nobody says, so that it ends in minutes, and a first guess at how long it takes.

Planning decides by imagining hundreds of action sequences: a step costs a hundred times one of a policy network alone.
SAC-Lagrangian and CAL take one gradient step or more for every environment step. On a CPU such an algorithm therefore
gets few steps of few seeds.
"""

from __future__ import annotations

from typing import NamedTuple

from awavo.config import TrainConfig
from awavo.runs.progress import time_text

__all__ = ["Budget", "default_budget", "default_episodes", "guess_time"]

BRIDGE = "bridge:"
PLANNING, OFF_POLICY = ("awavo", "paets"), ("sac-lagrangian", "cal")
# Seconds to compile with an empty cache, and environment steps a second of all seeds together on two CPU cores: of
# CartPole (each core did 77 with AWaVO, 3,700 with ORPO-DR, which stands for all others), of Pendulum and Navigation
# with the off-policy ones (85 and 32). For other tasks just a hint.
MEASURED = {"awavo": (100.0, 150.0), "paets": (100.0, 150.0), "sac-lagrangian": (20.0, 150.0), "cal": (20.0, 60.0)}
OTHERS = (30.0, 7_000.0)
# Of larger tasks (`sizes.is_small`) with ours, one gradient step of 256 x 256 for two environment steps: HalfCheetah,
# 120 steps a CPU-second (docs/learner.md).
LARGER, OURS = (30.0, 240.0), ("orpo-dr", "awavo")


class Budget(NamedTuple):
    """Environment steps of each seed, and seeds."""

    steps: int
    seeds: int


def default_budget(algo: str, platform: str, task: str = "") -> Budget:
    """The budget of an algorithm on a `cpu` or on an accelerator; every environment behind a bridge is a process."""
    if task.startswith(BRIDGE):
        return Budget(20_000, 1)
    if platform == "cpu" and algo in PLANNING + OFF_POLICY:
        return Budget(20_000, 2)
    return Budget(20_000 if algo in PLANNING else 200_000, 10)


def default_episodes(task: str) -> int:
    """Episodes of an evaluation where nobody says; behind a bridge, 100 would take hours."""
    return 10 if task.startswith(BRIDGE) else 100


def guess_time(config: TrainConfig, platform: str, small: bool = True) -> str:
    """One line on how long a training may take, before anything is compiled; measured figures follow it.

    Whether the task is a `small` one decides by the rule of sizes how much ours learn from a step.
    """
    what = f"{config.steps:,} steps of {config.seeds} {'seeds' if config.seeds > 1 else 'seed'} with {config.algo}"
    if config.task.startswith(BRIDGE):
        copies = config.seeds * int(config.algo_options.get("num_envs", 1))
        what += (
            f" in {copies} processes of the other interpreter (Safety-Gymnasium: 0.4 GB each, 300 steps a CPU second)"
        )
    if platform != "cpu":
        return f"{what}; how long that takes here is measured once it has compiled"
    larger = config.algo in OURS and not small
    compile_s, speed = LARGER if larger else MEASURED.get(config.algo, OTHERS)
    seconds = compile_s + config.steps * config.seeds / speed
    like = "a task of more than 12 numbers" if larger else "small tasks"
    guess = f"a guess of {time_text(seconds)}, from {like} on two CPU cores"
    return f"{what}: {guess}; measured here once it has compiled"
