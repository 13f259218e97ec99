"""Do the intervals of magnitudes and of necessity hold what they promise? Calibrate on some flights, test on others.

    PYTHONPATH=src python benchmarks/explain/magnitude_coverage.py [--flights 5] [--held-out 4] [--every 12]
        [--cache DIR]
        [--out benchmarks/explain/results/magnitude_coverage.json] [--calibration src/awavo/explain/calibration.json]

Flights of 300 decisions in FT0 to FT3. The truth of a decision is what a planner with 2048 candidates finds when its
belief is centred at the true force. Wind is judged in all tasks, obstacles in FT2 and FT3, where they are in reach.
Flights 100.. calibrate, flights 200.. are held out; `--cache` shares them with coverage.py. `--calibration` adds the
constants to that file.
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
from awavo.explain.calibration import NECESSITY, UNITS
from awavo.explain.intervals import (
    LEVEL,
    PROBABILITY,
    Band,
    MeasureScale,
    Stretch,
    alive,
    calibrate,
    calibrated_band,
    with_value,
)
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.training.compilation import enable_cache

CALIBRATION, HELD_OUT = 100, 200
# Small and large apart for wind, together for obstacles: chosen on the calibration flights alone (leaving a seed out).
_WIND = {
    "N": MeasureScale(floor=0.01, edge=0.2, nothing=0.005),
    "rad/s": MeasureScale(floor=0.01, edge=0.15, nothing=0.005),
    "us": MeasureScale(floor=1.0, edge=27.0, nothing=0.5),
    NECESSITY: PROBABILITY,
}
SCALES = {m: {"wind": scale, "obstacles": scale._replace(edge=0.0)} for m, scale in _WIND.items()}
MEASURES = (*UNITS, NECESSITY)


def flown_cases(first: int, flights: int, every: int, folder: Path | None) -> dict[str, list[dict[str, np.ndarray]]]:
    """Cases by task, one entry a flight."""
    found: dict[str, list] = {task: [] for task in TASKS["wind"]}
    for seed in range(first, first + flights):
        for task, rows in found.items():
            rows.append(flight_cases(task, seed, every, folder))
        print(seed, flush=True)
    return found


def gather(found: dict, factor: str, measure: str, tasks: tuple[str, ...] = ()) -> tuple[Band, np.ndarray, np.ndarray]:
    """Bands, truths (none below 0) and the number of the flight, over the decisions of a factor's tasks."""
    flights = [flight for task in tasks or TASKS[factor] for flight in found[task]]
    column = FACTORS.index(factor)
    if measure == NECESSITY:
        parts = [flight["necessity"][:, :, column] for flight in flights]
    else:
        parts = [flight["magnitude"][:, :, column, UNITS.index(measure)] for flight in flights]
    value, low, high, truth = np.concatenate(parts).T
    return Band(value, low, high), np.maximum(truth, 0.0), np.repeat(np.arange(len(parts)), [len(x) for x in parts])


def inside(band: Band, truth: np.ndarray) -> np.ndarray:
    """Which truths an interval holds, shown as it is: its bounds are never below 0."""
    return (truth >= np.maximum(band.low, 0.0)) & (truth <= np.maximum(band.high, 0.0))


def judge(found: dict, factor: str, measure: str, stretches: list[Stretch]) -> dict:
    """Coverage before and after calibration, over flights, tasks and sizes."""
    scale = SCALES[measure][factor]
    band, truth, flights = gather(found, factor, measure)
    kept = alive(band, truth, scale)
    shown = with_value(calibrated_band(band, stretches, scale))
    held = inside(shown, truth)
    small = band.value < SCALES[measure]["wind"].edge
    groups = [held[kept & (flights == f)] for f in np.unique(flights[kept])]
    rng = np.random.default_rng(0)
    drawn = [np.concatenate([groups[k] for k in rng.integers(0, len(groups), len(groups))]).mean() for _ in range(2000)]
    by_task = {}
    for task in TASKS[factor]:
        part, part_truth, _ = gather(found, factor, measure, (task,))
        there = alive(part, part_truth, scale)
        by_task[task] = float(inside(with_value(calibrated_band(part, stretches, scale)), part_truth)[there].mean())
    return {
        "coverage": float(held[kept].mean()),
        "coverage_interval_over_flights": np.quantile(drawn, [0.025, 0.975]).tolist(),
        "coverage_before_calibration": float(inside(band, truth)[kept].mean()),
        "truth_below": float((truth < shown.low)[kept].mean()),
        "truth_above": float((truth > shown.high)[kept].mean()),
        "by_task": by_task,
        "by_size": {"small": float(held[kept & small].mean()), "large": float(held[kept & ~small].mean())},
        "mean_value": float(np.maximum(band.value, 0.0)[kept].mean()),
        "mean_truth": float(truth[kept].mean()),
        "mean_width": float((shown.high - shown.low)[kept].mean()),
        "mean_width_before": float((np.maximum(band.high, 0.0) - np.maximum(band.low, 0.0))[kept].mean()),
        "cases": int(kept.sum()),
        "flights": len(groups),
    }


def stored_scale(scale: MeasureScale) -> dict[str, float]:
    """A scale as JSON, which knows no infinite top."""
    return {name: value for name, value in scale._asdict().items() if np.isfinite(value)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flights", type=int, default=5, help="of each task, to calibrate")
    parser.add_argument("--held-out", type=int, default=4, help="of each task, to judge; 0: calibrate only")
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calibration", type=Path)
    options = parser.parse_args()
    enable_cache()
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    first = flown_cases(CALIBRATION, options.flights, options.every, options.cache)
    stretch = {m: {f: calibrate(*gather(first, f, m)[:2], SCALES[m][f]) for f in FACTORS} for m in MEASURES}
    second = flown_cases(HELD_OUT, options.held_out, options.every, options.cache)
    judged = FACTORS if options.held_out else ()
    results = {f: {m: judge(second, f, m, stretch[m][f]) for m in MEASURES} for f in judged}
    made |= {"planner": CONFIG._asdict(), "level": LEVEL, "every": options.every}
    used = ((CALIBRATION, options.flights), (HELD_OUT, options.held_out))
    seeds = [list(range(start, start + count)) for start, count in used]
    made |= {"seeds": dict(zip(("calibration", "held_out"), seeds, strict=True))}
    constants = {
        "stretch": {m: {f: [part._asdict() for part in parts] for f, parts in by.items()} for m, by in stretch.items()},
        "scale": {m: {f: stored_scale(x) for f, x in by.items()} for m, by in SCALES.items()},
    }
    print(json.dumps({**constants, "results": results}, indent=1))
    if options.out:
        options.out.write_text(json.dumps({**constants, "results": results, **made}, indent=1) + "\n")
    if options.calibration:
        stored = json.loads(options.calibration.read_text())
        options.calibration.write_text(json.dumps({**stored, "measures": {**constants, **made}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
