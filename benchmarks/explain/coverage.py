"""Do the intervals of an influence hold what they promise? Calibrate on some simulated flights, test on others.

    PYTHONPATH=src python benchmarks/explain/coverage.py [--flights 10] [--held-out 10] [--every 12] [--cache DIR]
        [--out benchmarks/explain/results/coverage.json] [--calibration src/awavo/explain/calibration.json]

Flights of 300 decisions in FT0 to FT3. The truth of a decision is the influence that a planner with 2048 candidates
finds when its belief is centred at the true force of the simulation. Wind is judged in all tasks, obstacles in FT2 and
FT3. Decisions whose influence is 0 on both sides (no obstacle in reach) are left out: every interval
holds them. Flights 100.. calibrate, flights 200.. are held out.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np
from size_cases import CONFIG, TASKS, flight_cases

from awavo.control.flight_planner import FACTORS
from awavo.explain.intervals import Band, alive, calibrate, calibrated_band
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.training.compilation import enable_cache


def cases(first: int, flights: int, every: int, folder: Path | None) -> dict[str, list[tuple[Band, np.ndarray]]]:
    """Bands and truths by task, one entry a flight."""
    found: dict[str, list] = {}
    for task in TASKS["wind"]:
        for seed in range(first, first + flights):
            value, low, high, truth = np.moveaxis(flight_cases(task, seed, every, folder)["influence"], 1, 0)
            found.setdefault(task, []).append((Band(value, low, high), truth))
        print(first, task, flush=True)
    return found


def gather(found: dict, tasks: tuple[str, ...], index: int) -> tuple[Band, np.ndarray]:
    pairs = [pair for task in tasks for pair in found[task]]
    band = Band(*(np.concatenate([np.asarray(b[i])[:, index] for b, _ in pairs]) for i in range(3)))
    return band, np.concatenate([t[:, index] for _, t in pairs])


def inside(band: Band, truth: np.ndarray) -> np.ndarray:
    return (truth >= band.low) & (truth <= band.high)


def score(found: dict, index: int, name: str, stretch) -> dict:
    def one(tasks):
        band, truth = gather(found, tasks, index)
        kept = alive(band, truth)
        return inside(calibrated_band(band, stretch), truth)[kept], inside(band, truth)[kept], kept

    held, before, kept = one(TASKS[name])
    band, truth = gather(found, TASKS[name], index)
    calibrated = calibrated_band(band, stretch)
    flights = np.repeat(np.arange(sum(len(found[task]) for task in TASKS[name])), len(found["FT0"][0][1]))[kept]
    rng = np.random.default_rng(0)
    groups = [held[flights == f] for f in np.unique(flights)]
    drawn = [np.concatenate([groups[k] for k in rng.integers(0, len(groups), len(groups))]).mean() for _ in range(2000)]
    return {
        "coverage": float(held.mean()),
        "coverage_interval_over_flights": np.quantile(drawn, [0.025, 0.975]).tolist(),
        "coverage_before_calibration": float(before.mean()),
        "by_task": {task: float(one((task,))[0].mean()) for task in TASKS[name]},
        "mean_width": float(np.mean((calibrated.high - calibrated.low)[kept])),
        "mean_absolute_error": float(np.abs(band.value - truth)[kept].mean()),
        "cases": int(kept.sum()),
        "left_out": int((~kept).sum()),
        "flights": len(groups),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flights", type=int, default=10, help="of each task, to calibrate")
    parser.add_argument("--held-out", type=int, default=10, help="of each task, to judge")
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calibration", type=Path)
    options = parser.parse_args()
    enable_cache()
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    first = cases(100, options.flights, options.every, options.cache)
    stretch = {name: calibrate(*gather(first, TASKS[name], i)) for i, name in enumerate(FACTORS)}
    second = cases(200, options.held_out, options.every, options.cache)
    results = {name: score(second, i, name, stretch[name]) for i, name in enumerate(FACTORS)}
    made |= {"planner": CONFIG._asdict(), "level": 0.9, "seeds": {"calibration": 100, "held_out": 200}}
    made |= {"flights_per_task": {"calibration": options.flights, "held_out": options.held_out}}
    stretches = {name: [part._asdict() for part in parts] for name, parts in stretch.items()}
    print(json.dumps({"stretch": stretches, "results": results}, indent=1))
    if options.out:
        options.out.write_text(json.dumps({"stretch": stretches, "results": results, **made}, indent=1) + "\n")
    if options.calibration:
        # What magnitude_coverage.py put there stays.
        stored = json.loads(options.calibration.read_text()) if options.calibration.is_file() else {}
        rest = {name: part for name, part in stored.items() if name == "measures"}
        options.calibration.write_text(json.dumps({"stretch": stretches, **made, **rest}, indent=1) + "\n")


if __name__ == "__main__":
    main()
