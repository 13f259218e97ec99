"""Many-moded posteriors: particles moved by A-GSWD beside the Gaussian engine, a pendulum whose height alone is seen.

    python benchmarks/assimilation/modes.py [--first 200] [--seeds 10]

Height is the cosine of the angle: left and right cannot be told apart, so the posterior has two mirrored modes of half
each. Scores: the share of the right half-plane among the particles (0.5 is exact), the share of the truth inside 90%
intervals, and the energy score of the trajectories (lower is better), of the particles and of the Gaussian draws.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from awavo.assimilation import MisfitError, infer_particles
from awavo.assimilation.examples import pendulum
from awavo.provenance import stamp


def height(x, theta):
    """What is seen: the cosine of the angle."""
    return jnp.cos(x[:1])


def energy_score(draws: np.ndarray, truth: np.ndarray) -> float:
    """Mean distance to the truth less half the mean distance among the draws."""
    flat, known = draws.reshape(len(draws), -1), truth.reshape(-1)
    near = np.linalg.norm(flat - known, axis=1).mean()
    among = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    return float(near - 0.5 * among.sum() / (len(flat) * (len(flat) - 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    rows = []
    for seed in range(options.first, options.first + options.seeds):
        rng = np.random.default_rng(seed)
        made = pendulum(rng)
        system = made.system._replace(observe=height, prior_mean=np.array([0.0, 0.0]))
        observed = np.cos(made.truth[1:, :1]) + 0.1 * rng.standard_normal((len(made.truth) - 1, 1))
        began = time.process_time()
        try:
            found = infer_particles(
                system, observed, 0.1, times=made.times[1:], start=0.0, num_particles=128, num_candidates=4096,
                seed=seed,
            )  # fmt: skip
        except MisfitError as error:
            rows.append({"seed": seed, "refused": str(error)})
            print(rows[-1], flush=True)
            continue
        spent = time.process_time() - began
        low, high = found.interval()
        one = found.gaussian
        inside = (made.truth >= low) & (made.truth <= high)
        alone = np.abs(made.truth - one.mean) <= 1.645 * one.std
        row = {
            "seed": seed, "modes": len(one.modes), "marked_by_gaussian": not one.fit.good,
            "shares": np.sort(found.shares)[::-1].round(3).tolist(), "right": float(np.mean(found.states[:, 0, 0] > 0)),
            "effective": found.effective, "distance": found.distance, "cpu_s": spent,
            "coverage90_particles": float(inside[1:].mean()), "coverage90_gaussian": float(alone[1:].mean()),
            "energy_particles": energy_score(found.states[:, 1:], made.truth[1:]),
            "energy_gaussian": energy_score(one.draws[:, 1:], made.truth[1:]),
        }  # fmt: skip
        rows.append(row)
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    kept = [r for r in rows if "refused" not in r]
    names = ("right", "marked_by_gaussian", "coverage90_particles", "coverage90_gaussian", "energy_particles",
             "energy_gaussian")  # fmt: skip
    summary = {name: float(np.mean([r[name] for r in kept])) for name in names}
    summary |= {"seeds": len(rows), "refused": len(rows) - len(kept)}
    print(summary)
    record = {"command": "python " + " ".join(sys.argv), **stamp(), "load": os.getloadavg(), "summary": summary}
    path = Path(__file__).parent / "results" / "modes.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
