"""How much to train where nobody says, so that it ends in minutes, and a first guess at how long it takes.

Planning decides by imagining hundreds of action sequences: a step costs a hundred times one of a policy network alone.
SAC-Lagrangian and CAL take one gradient step or more for every environment step. On a CPU such an algorithm therefore
gets few steps of few seeds.
"""

from __future__ import annotations

from typing import NamedTuple

from awavo.config import TrainConfig
from awavo.runs.progress import time_text

__all__ = ["Budget", "default_budget", "guess_time"]

KINDS = {"awavo": "planning", "paets": "planning", "sac-lagrangian": "off-policy", "cal": "off-policy"}
# Seconds to compile with an empty cache, and environment steps a second of all seeds together: CartPole on two CPU
# cores (each did 77 steps a second with AWaVO, 3,700 with ORPO-DR), Pendulum for the off-policy ones (85 with
# SAC-Lagrangian). For other tasks just a hint.
MEASURED = {"planning": (100.0, 150.0), "off-policy": (20.0, 150.0), "": (30.0, 7_000.0)}


class Budget(NamedTuple):
    """Environment steps of each seed, and seeds."""

    steps: int
    seeds: int


def default_budget(algo: str, platform: str) -> Budget:
    """The budget of an algorithm on a `cpu` or on an accelerator."""
    kind = KINDS.get(algo, "")
    if platform == "cpu" and kind:
        return Budget(20_000, 2)
    return Budget(20_000 if kind == "planning" else 200_000, 10)


def guess_time(config: TrainConfig, platform: str) -> str:
    """One line on how long a training may take, before anything is compiled; measured figures follow it."""
    what = f"{config.steps:,} steps of {config.seeds} {'seeds' if config.seeds > 1 else 'seed'} with {config.algo}"
    if platform != "cpu":
        return f"{what}; how long that takes here is measured once it has compiled"
    compile_s, speed = MEASURED[KINDS.get(config.algo, "")]
    seconds = compile_s + config.steps * config.seeds / speed
    guess = f"a guess of {time_text(seconds)}, from small tasks on two CPU cores"
    return f"{what}: {guess}; measured here once it has compiled"
