"""The settings of the flight planner: one type for what is flown, recorded, explained and calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from awavo.checks import check_range
from awavo.errors import InputError

__all__ = ["MOVES", "PlannerConfig", "check_planner", "stored_planner"]

MOVES = ("resampling", "agswd", "cells")
# What the planner did before these were settings: records of that time do not name them.
UNNAMED = {"move": "resampling", "num_slices": 8, "num_steps": 3, "max_rate": 6.0}


class PlannerConfig(NamedTuple):
    """Sizes of the pool, temperature and move of the posterior; horizon, weights and margins of the model.

    `move` says how the particles q follow the weighted candidates: "resampling" draws these by weight, "agswd" descends
    the sliced distance from there along random slices (`num_slices`, `num_steps`), "cells" takes the cells of the best
    of `num_slices` slices, each ascended for this decision (`awavo.inference.cells`).
    """

    # The pool: decisions remembered (with noise) and new ones; braces lie around the believed force and around none.
    num_candidates: int = 512
    num_members: int = 2
    num_particles: int = 32
    memory_share: float = 0.6
    memory_noise: float = 0.05
    prior_std: float = 0.25
    brace_std: float = 0.8
    # The posterior.
    temperature: float = 0.05
    move: str = "cells"
    num_slices: int = 8
    num_steps: int = 3
    # The model: steps of dt seconds ahead, one decision every `period` seconds.
    horizon: int = 20
    dt: float = 0.05
    period: float = 0.02
    num_knots: int = 4
    rate_lag: float = 0.05
    lead: float = 0.06
    max_rate: float = 4.0
    num_near: int = 8
    # What a decision costs.
    velocity_weight: float = 0.1
    clearance_margin: float = 0.33
    clearance_weight: float = 60.0
    tilt_margin: float = 0.45
    tilt_weight: float = 20.0


# Ranges of the settings; the pool over its horizon is bounded as a whole.
RANGES = {
    "num_candidates": (1, 2**16), "num_members": (1, 256), "num_particles": (1, 2**16), "memory_share": (0, 1),
    "memory_noise": (0, 100), "prior_std": (0, 100), "brace_std": (0, 100), "temperature": (1e-6, 1e6),
    "num_slices": (1, 1024), "num_steps": (0, 1024), "horizon": (1, 1000), "dt": (1e-4, 10), "period": (1e-4, 10),
    "num_knots": (1, 64), "rate_lag": (0, 10), "lead": (0, 10), "max_rate": (0, 1000), "num_near": (1, 4096),
    "velocity_weight": (0, 1e6), "clearance_margin": (0, 1e3), "clearance_weight": (0, 1e6), "tilt_margin": (0, 10),
    "tilt_weight": (0, 1e6),
}  # fmt: skip
LARGEST_POOL = 2**25


def check_planner(config: PlannerConfig) -> PlannerConfig:
    """Return the settings, or say which one is wrong."""
    if config.move not in MOVES:
        raise InputError(f"move='{config.move}' is not one of {', '.join(MOVES)}.")
    for name, (low, high) in RANGES.items():
        check_range(name, getattr(config, name), low, high)
    check_range(
        "num_candidates x num_members x horizon", config.num_candidates * config.num_members * config.horizon, 1,
        LARGEST_POOL,
    )  # fmt: skip
    return config


def stored_planner(stored: Mapping[str, object]) -> PlannerConfig:
    """Return the settings that a file holds by name, those of the oldest records included; refuse what is none."""
    plain = dict(stored)
    model = plain.pop("model", {})
    if not isinstance(model, Mapping):
        raise ValueError(f"{model!r} are no settings")
    plain = {**UNNAMED, **plain, **model}
    kinds = {name: type(value) for name, value in PlannerConfig._field_defaults.items()}
    unknown, missing = sorted(set(plain) - set(kinds)), sorted(set(kinds) - set(plain))
    if unknown or missing:
        raise ValueError(f"settings of the planner unknown here: {unknown}, missing: {missing}")
    return check_planner(PlannerConfig._make(_value(plain[name], kind) for name, kind in kinds.items()))


def _value(value: object, kind: type) -> int | float | str:
    if kind is str and isinstance(value, str):
        return value
    if kind is str or isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
        raise ValueError(f"{value!r} is no setting")
    return int(value) if kind is int else float(value)
