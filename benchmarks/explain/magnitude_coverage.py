"""Do the intervals of the magnitudes hold what they promise? They are not calibrated: this says by how much they miss.

    PYTHONPATH=src python benchmarks/explain/magnitude_coverage.py [--flights 3] [--every 12]
        [--out benchmarks/explain/results/magnitude_coverage.json]

Flights 300.. of 300 decisions in FT0 to FT3. The truth of a decision is the magnitude that a planner with 2048
candidates finds when its belief is centred at the true force. Wind is judged in all tasks, obstacles in FT2 and FT3,
where they are in reach.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

from awavo.explain.flight import flight_params, fly
from awavo.explain.flight_planner import FACTORS, ExplainedConfig, explained_planner, likelihoods
from awavo.explain.flight_report import UNITS, decision_points, decision_program
from awavo.explain.magnitude import resampled_magnitudes
from awavo.explain.measures import coalition_weights
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.quadrotor.references import lissajous
from awavo.training.compilation import enable_cache

CONFIG = ExplainedConfig()
LARGE = CONFIG._replace(num_candidates=2048)
STEPS, FIRST = 300, 300
TASKS = {"wind": ("FT0", "FT1", "FT2", "FT3"), "obstacles": ("FT2", "FT3")}


@jax.jit
def true_magnitudes(inputs, force, params):
    """Magnitudes [M, U] of a large pool, had the belief been centred at the true force."""
    planner = explained_planner(params, lissajous, LARGE)
    known = inputs.belief._replace(mean=inputs.belief.mean.at[:3].set(force))
    key = jax.random.fold_in(inputs.key, 2)
    found = planner.score(key, inputs.body, inputs.time, known, inputs.particles, inputs.forest)
    weights = coalition_weights(likelihoods(found.signals, LARGE), 1.0)
    points = decision_points(planner.model, inputs, found.candidates, params)
    return resampled_magnitudes(key, points, jnp.ones((1, weights.shape[-1])), weights)[0]


def cases(task: str, flights: int, every: int) -> np.ndarray:
    """Value, low, high and truth [4, n, M, U] of a task's decisions, none below 0."""
    params = flight_params(task)
    flight = jax.jit(lambda seed, params: fly(seed, params, CONFIG, STEPS))
    ask = decision_program(CONFIG, FACTORS)
    rows = []
    for seed in range(FIRST, FIRST + flights):
        trace = flight(seed, params)
        for t in range(every // 2, STEPS, every):
            inputs = jax.tree.map(lambda x, t=t: x[t], trace.inputs)
            band = ask(inputs, params).magnitude
            rows.append(np.stack([*band, true_magnitudes(inputs, trace.true_force[t], params)]))
    return np.maximum(np.stack(rows, 1), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flights", type=int, default=3)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    found = {}
    for task in TASKS["wind"]:
        found[task] = cases(task, options.flights, options.every)
        print(task, flush=True)
    results: dict = {}
    for i, name in enumerate(FACTORS):
        value, low, high, truth = np.concatenate([found[task] for task in TASKS[name]], 1)[:, :, i]
        for u, unit in enumerate(UNITS):
            # Where nothing is in reach both sides are 0, and every interval holds that.
            kept = np.maximum(high[:, u], truth[:, u]) > (0.5 if unit == "us" else 0.005)
            v, a, b, t = (x[kept, u] for x in (value, low, high, truth))
            results.setdefault(name, {})[unit] = {
                "coverage": float(((t >= a) & (t <= b)).mean()), "truth below": float((t < a).mean()),
                "truth above": float((t > b).mean()), "mean value": float(v.mean()), "mean truth": float(t.mean()),
                "mean width": float((b - a).mean()), "cases": int(kept.sum()),
            }  # fmt: skip
    print(json.dumps(results, indent=1))
    made |= {"seeds": list(range(FIRST, FIRST + options.flights)), "every": options.every, "load": os.getloadavg()}
    made |= {"planner": {**CONFIG._asdict(), "model": CONFIG.model._asdict()}, "level": 0.9}
    if options.out:
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
