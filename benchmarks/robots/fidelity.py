"""The robots against MuJoCo and against what is asked of them, in figures; by the same functions as the tests.

PYTHONPATH=src python benchmarks/robots/fidelity.py [--out benchmarks/robots/results/fidelity.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from awavo.provenance import command_line, device_info, source_commit, versions

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "tasks"))


def measure() -> dict:
    from test_drone import free_flight
    from test_quadrotor import convergence, gust_deviations
    from test_walker import mjx_difference

    from awavo.tasks.goal.walker_model import load_walker

    flights = [free_flight(seed)[:2] for seed in range(3, 8)]
    walker, (worst, moved) = load_walker(), mjx_difference()
    steps = (1e-3, 5e-4, 2.5e-4)
    return {
        "drone": {"error_m": [float(e) for e, _ in flights], "tilt_rad": [float(t) for _, t in flights]},
        "walker": {
            "nq": walker.nq, "nv": walker.nv, "nu": walker.nu, "mass_kg": float(walker.body_subtreemass[0]),
            "mjx_joint_difference": worst, "largest_joint": moved,
        },
        "quadrotor_error_m": {str(dt): float(e) for dt, e in zip(steps, convergence()[0], strict=True)},
        "gust_std_of_2": {str(dt): np.array(gust_deviations(dt)).tolist() for dt in (0.002, 0.02, 0.1)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = measure()
    print(json.dumps(results, indent=1))
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
