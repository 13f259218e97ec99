"""Train ORPO-DR on an environment nobody here wrote: Gymnasium's Pendulum-v1, with a cost for spinning fast.

    python examples/pendulum_with_a_cost.py [RUN_FOLDER]

The cost of a step is 1 while the angular velocity exceeds 4 rad/s; an episode (200 steps) may cost 20.
"""

import sys

import numpy as np

import awavo
from awavo.cli.progress import show_evaluation, show_progress

LIMIT = 20.0


def too_fast(obs, action, next_obs):
    return np.abs(next_obs[:, 2]) > 4


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/pendulum"
    config = awavo.configure("Pendulum-v1", "orpo-dr", steps=60_000, seeds=3, cost_limits=(LIMIT,))
    show_progress(awavo.train_iter(config, out, cost_fn=too_fast))
    run = awavo.load(out, cost_fn=too_fast)
    show_evaluation(run.evaluate(), config.task, config.algo)
    print("report page:", run.report())


if __name__ == "__main__":
    main()
