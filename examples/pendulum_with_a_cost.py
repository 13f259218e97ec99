"""Train ORPO-DR on an environment nobody here wrote: Gymnasium's Pendulum-v1, with a cost for spinning fast.

    python examples/pendulum_with_a_cost.py [RUN_FOLDER]

The cost of a step is 1 while the angular velocity exceeds 4 rad/s; an episode (200 steps) may cost 20.
"""

import sys

import numpy as np

import awavo

LIMIT = 20.0


def too_fast(obs, action, next_obs):
    return np.abs(next_obs[:, 2]) > 4


def show(progress):
    recent = ", ".join(f"{name} {value:.1f}" for name, value in progress.recent.items())
    print(f"{progress.phase:<9} {progress.env_steps:>6} of {progress.total_steps} steps  {recent}")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/pendulum"
    config = awavo.configure("Pendulum-v1", "orpo-dr", steps=60_000, seeds=3, cost_limits=(LIMIT,))
    run = awavo.train(config, out, cost_fn=too_fast, on_progress=show)
    for policy, found in run.evaluate().items():
        figures = {"return": found["return"], **found["costs"]}
        for name, figure in figures.items():
            limit = f"  (limit {figure['limit']:g})" if "limit" in figure else ""
            print(f"{policy:<10} {name:<8} {figure['value']:.1f} [{figure['low']:.1f}, {figure['high']:.1f}]{limit}")
    print("report page:", run.report())


if __name__ == "__main__":
    main()
