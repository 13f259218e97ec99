"""Explained flights: how much the external force (L0) and the obstacles (L1) influence decisions along the course."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.flight_planner import DEFAULT
from awavo.explain.simulation import at_mark, explained_flight, flight_params
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.tasks.quadrotor.flight import DT
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["MARKS", "run_interpretation"]

MARKS = (1, 2, 3, 4, 5, 6, 7)
STRIDE = 5


@partial(jax.jit, static_argnames="steps")
def _flight(seed, params, steps):
    trace = explained_flight(seed, params, DEFAULT, steps)
    return trace.inputs.time, trace.influence, trace.true_force, trace.alive


def run_interpretation(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Influence `[seed, mark, factor]` at the reference states, and along the flight on a common grid of phase.

    `settings`: flight (FT1, FT2, FT3), steps, physics (fields of the quadrotor, for another scene).
    """
    params = flight_params(settings["flight"], **settings.get("physics", {}))
    marks, lines, forces = [], [], []
    for seed in seeds:
        time, influence, force, alive = map(np.asarray, _flight(seed, params, settings["steps"]))
        if not alive.all():
            raise RuntimeError(f"{settings['flight']}, seed {seed}: the vehicle collided; its influences mean nothing.")
        marks.append([_at(influence, time, params, mark) for mark in MARKS])
        lines.append(influence[::STRIDE].round(5).tolist())
        forces.append(np.linalg.norm(force, axis=1)[::STRIDE].round(4).tolist())
        on_progress(f"{settings['flight']} seed {seed}: influence of the force at RS 02 {marks[-1][1][0]:.3f}")
    return {
        "flight": settings["flight"],
        "scene": settings.get("scene", "task"),
        "seed_numbers": list(seeds),
        "marks": list(MARKS),
        "at_marks": marks,
        "seconds": [round(k * STRIDE * DT, 3) for k in range(len(lines[0]))],
        "influence": lines,
        "force_n": forces,
    }


def _at(influence: np.ndarray, time: np.ndarray, params: QuadrotorParams, mark: int) -> list[float | None]:
    """Mean influence of both factors within half a second of a reference state; None if it is not passed."""
    near = np.asarray(at_mark(jnp.asarray(time), params, mark))
    return influence[near].mean(0).tolist() if near.any() else [None, None]
