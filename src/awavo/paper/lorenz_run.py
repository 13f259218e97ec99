"""Lorenz-96 twin experiments with a third of the states never observed: error and time against the number of states."""

from __future__ import annotations

import time
from collections.abc import Sequence

import jax
import numpy as np

from awavo.assimilation.assimilate import Posterior, assimilate, first_state
from awavo.assimilation.engine import Settings, System, compile_engine, make_data, make_engine
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.results.trajectory_scores import score
from awavo.tasks.lorenz96 import REGIMES, lorenz96_system, twin_experiment

__all__ = ["run_lorenz"]

KEPT = ("rmse", "coverage90", "lost", "median_absolute_error")


def run_lorenz(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Scores of every seed over the states never observed, seconds without compilation, and one trajectory to show."""
    states, regime = settings["states"], REGIMES["G"]
    system = System(**lorenz96_system(states))
    chosen = Settings(search=SearchSettings(slots=default_slots(states, jax.default_backend())))
    engine, compile_s = make_engine(system, regime.num_times, chosen), None
    scores: dict[str, list[float]] = {name: [] for name in (*KEPT, "solve_s")}
    shown: dict[str, np.ndarray | int] = {}
    for seed in seeds:
        twin = twin_experiment(states, seed=seed)
        data = make_data(system, twin.observed, regime.noise, chosen)
        if compile_s is None:
            engine, compile_s = compile_engine(engine, data, system.theta)
        began = time.perf_counter()
        posterior = list(assimilate(engine, data, first_state(data, system.theta)))[-1][0]
        assert isinstance(posterior, Posterior)
        scores["solve_s"].append(time.perf_counter() - began)
        found = score(posterior.mean, posterior.std, twin.truth, ~twin.seen, posterior.draws)
        for name in KEPT:
            scores[name].append(float(found[name]))
        if not shown:
            site = int(np.flatnonzero(~twin.seen)[0])
            columns = {"truth": twin.truth, "mean": posterior.mean, "std": posterior.std}
            shown = {"site": site, **{name: values[:, site] for name, values in columns.items()}}
        on_progress(f"{states} states, seed {seed}: rmse {scores['rmse'][-1]:.3f} in {scores['solve_s'][-1]:.2f} s")
    example = {name: np.asarray(value).round(4).tolist() for name, value in shown.items()}
    return {"states": states, "seed_numbers": list(seeds), "compile_s": compile_s, **scores, "example": example}
