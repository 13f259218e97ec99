"""A localised ensemble transform Kalman smoother (LETKS): the strong rival that data-assimilation packages do not ship.

    python benchmarks/lorenz/local_smoother.py --states 50 --seeds 20                   # frozen, held-out seeds
    python benchmarks/lorenz/local_smoother.py --tune --states 50 --seeds 4 --first 0   # the grid

At every time each site gets its own transform of the ensemble from the observations near it (Hunt et al. 2007, weights
tapered by Gaspari and Cohn); the same transform is applied to all earlier states of that site (Evensen and van
Leeuwen 2000). NumPy only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from record import summarise, write

from awavo.results.trajectory_scores import score
from awavo.tasks.lorenz96 import CLIMATE_MEAN, CLIMATE_STD, REGIMES, TIME_STEP, twin_experiment

FROZEN = {"members": 160, "radius": 16.0, "inflation": 1.0, "start_spread": 1.0}
GRID = {"members": (80, 160), "radius": (9.0, 12.0, 16.0), "inflation": (1.0, 1.02), "start_spread": (1.0,)}


def tendency(x: np.ndarray) -> np.ndarray:
    return (np.roll(x, -1, -1) - np.roll(x, 2, -1)) * np.roll(x, 1, -1) - x + 8.0


def advance(x: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        k1 = tendency(x)
        k2 = tendency(x + TIME_STEP / 2 * k1)
        k3 = tendency(x + TIME_STEP / 2 * k2)
        k4 = tendency(x + TIME_STEP * k3)
        x = x + TIME_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def taper(distance: np.ndarray, half: float) -> np.ndarray:
    """The fifth-order function of Gaspari and Cohn (1999), zero from twice `half`."""
    r = distance / half
    near = -(r**5) / 4 + r**4 / 2 + 5 * r**3 / 8 - 5 * r**2 / 3 + 1
    safe = np.maximum(r, 1e-9)
    far = r**5 / 12 - r**4 / 2 + 5 * r**3 / 8 + 5 * r**2 / 3 - 5 * r + 4 - 2 / (3 * safe)
    return np.where(r <= 1, near, np.where(r < 2, far, 0.0))


def smooth(observed, regime, *, members, radius, inflation, start_spread, seed):
    """Mean, deviation and members of all states [K + 1, I]."""
    rng = np.random.default_rng(10_000 + seed)
    num_times, sites = observed.shape
    # A climatological ensemble: draws of the prior that have run onto the attractor.
    ensemble = advance(CLIMATE_MEAN + start_spread * CLIMATE_STD * rng.standard_normal((members, sites)), 200)
    history = [ensemble]
    seen = np.flatnonzero(np.isfinite(observed[0]))
    gap = np.abs(np.arange(sites)[:, None] - seen)
    width = int(min(4 * radius, len(seen)))
    gap = np.minimum(gap, sites - gap)
    nearest = np.argsort(gap, 1)[:, :width]
    weight = taper(np.take_along_axis(gap, nearest, 1), radius) / regime.noise**2
    for k in range(num_times):
        history.append(advance(history[-1], regime.steps))
        mean = history[-1].mean(0)
        anomaly = inflation * (history[-1] - mean)
        history[-1] = mean + anomaly
        local = anomaly[:, seen][:, nearest].transpose(1, 0, 2)
        innovation = (observed[k, seen] - mean[seen])[nearest]
        scaled = local * weight[:, None, :]
        values, vectors = np.linalg.eigh(scaled @ local.transpose(0, 2, 1) + (members - 1) * np.eye(members))
        shift = vectors @ ((vectors.transpose(0, 2, 1) @ (scaled @ innovation[..., None])) / values[..., None])
        root = (vectors * np.sqrt((members - 1) / values)[:, None, :]) @ vectors.transpose(0, 2, 1)
        transform = shift + root
        for j in range(len(history)):
            centre = history[j].mean(0)
            history[j] = centre + np.einsum("mi,imn->ni", history[j] - centre, transform)
    history = np.stack(history, 1)
    return history.mean(0), history.std(0, ddof=1), history


def run(states: int, seed: int, regime_name: str, settings: dict) -> dict:
    regime, twin = REGIMES[regime_name], twin_experiment(states, regime=regime_name, seed=seed)
    began, processor = time.perf_counter(), time.process_time()
    mean, std, members = smooth(twin.observed, regime, seed=seed, **settings)
    times = {"solve_s": time.perf_counter() - began, "cpu_s": time.process_time() - processor}
    return {"seed": seed, **times, **score(mean, std, twin.truth, ~twin.seen, members)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--regime", choices=tuple(REGIMES), default="G")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.tune:
        found = []
        for values in itertools.product(*GRID.values()):
            settings = dict(zip(GRID, values, strict=True))
            rows = [run(options.states, seed, options.regime, settings) for seed in seeds]
            found.append((summarise(rows)["rmse"], settings, summarise(rows)))
            print({k: round(v, 3) for k, v in found[-1][2].items()}, settings, flush=True)
        best = min(found, key=lambda f: f[0])
        print("best", best[0], best[1])
        path = write(f"local_smoother_tuning_{options.states}", "LETKS, tuning", options.states, rows,
                     grid=[{"settings": s, **r} for _, s, r in found], best=best[1])  # fmt: skip
        print(path)
        return
    rows = []
    for seed in seeds:
        rows.append(run(options.states, seed, options.regime, FROZEN))
        print({k: round(v, 3) for k, v in rows[-1].items()}, flush=True)
    print(summarise(rows))
    name = f"local_smoother_{options.states}_{options.regime}"
    print(write(name, "local ensemble smoother", options.states, rows, settings=FROZEN, load=os.getloadavg()))


if __name__ == "__main__":
    main()
