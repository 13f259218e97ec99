"""Tabular ORPO-DR on exact constrained problems: how the gap and the violation shrink with the horizon T."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from awavo.formal.cmdp import random_cmdp, solve
from awavo.formal.schedule import schedule
from awavo.formal.tabular_orpo import tabular_orpo
from awavo.paper.job import JobSettings, Progress, ResultRow

__all__ = ["DISCOUNT", "run_convergence"]

DISCOUNT = 0.9


def run_convergence(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Errors `[problem, seed, T]`: gap to the optimum of the occupancy LP, and largest violation.

    `settings`: rate c of the step size l_Q = c / sqrt(T), problems, horizons. One run for each T, as the step depends
    on it; critics are solved from the theorem's number of transitions, drawn afresh.
    """
    cmdps = [random_cmdp(number, discount=DISCOUNT) for number in range(settings["problems"])]
    batch = [cmdp for cmdp in cmdps for _ in seeds]
    best = np.repeat([solve(cmdp).value for cmdp in cmdps], len(seeds))
    limits = np.array([cmdp.limits for cmdp in batch])
    samples = schedule(DISCOUNT, 128, 2, 1).td_steps
    gaps, violations = [], []
    for horizon in settings["horizons"]:
        step, slack = settings["rate"] / np.sqrt(horizon), 0.1 * schedule(DISCOUNT, 128, 2, horizon).tolerance
        seed = horizon + 1_000_003 * min(seeds)
        out = tabular_orpo(batch, horizon, seed=seed, step_size=step, tolerance=slack, samples=samples)
        gaps.append(best - out.mean_totals[:, 0])
        violations.append(np.maximum(out.mean_totals[:, 1:] - limits, 0).max(1))
        on_progress(f"T = {horizon}: gap {gaps[-1].mean():.4f}, violation {violations[-1].mean():.4f}")
    shape = (len(cmdps), len(seeds), len(settings["horizons"]))
    return {
        "rate": settings["rate"],
        "seed_numbers": list(seeds),
        "horizons": list(settings["horizons"]),
        "gap": np.stack(gaps, -1).reshape(shape).tolist(),
        "violation": np.stack(violations, -1).reshape(shape).tolist(),
    }
