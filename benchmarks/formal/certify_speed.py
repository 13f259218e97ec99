"""What an episode of a policy that plans costs when it is certified, by the number of episodes in one program.

    awavo train cartpole --algo awavo --seeds 1 --steps 6000 --out RUN
    PYTHONPATH=src python benchmarks/formal/certify_speed.py RUN [--sizes 1 2 4 8 25] [--rounds 3] [--out RESULT.json]

The sizes take turns, so that a busy machine slows all of them alike; compilation is counted apart. Then the whole of
`certify` runs with the limits of the run and with others (`--limits`), once with each batch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from pathlib import Path
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import awavo
from awavo.provenance import stamp
from awavo.runs import certify as module
from awavo.runs.evaluate import Evaluator


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def by_size(run: awavo.Run, sizes: list[int], rounds: int) -> list[dict]:
    """CPU seconds of an episode and of a step, the best of some rounds."""
    evaluators = {size: Evaluator(run.problem, run.seeds, size) for size in sizes}
    rows = {
        size: {"episodes_in_a_program": size, "compile_s": 0.0, "s_an_episode": [], "ms_a_step": []} for size in sizes
    }
    for turn in range(rounds + 1):
        for size, evaluator in evaluators.items():
            began = cpu_seconds()
            played = evaluator.play_one(run.states[0], 0, True, 7 + turn)
            took = cpu_seconds() - began
            if turn == 0:
                rows[size]["compile_s"] = took
                continue
            rows[size]["s_an_episode"].append(took / size)
            rows[size]["ms_a_step"].append(1e3 * took / float(played.lengths.sum()))
            print(size, turn, round(took / size, 3), flush=True)
    return list(rows.values())


def whole(run: awavo.Run, limits: tuple[float, ...], batch: int, episodes: int) -> dict:
    """One `certify`, from the first episode to the last certificate."""
    problem = run.problem
    run.problem = problem._replace(spec=problem.spec._replace(cost_limits=limits))
    began = cpu_seconds()
    with mock.patch.object(module, "PLANNED_BATCH", batch):
        found = awavo.certify(run, episodes=episodes)
    run.problem = problem
    safety = next(c for c in found["certificates"] if c["name"].startswith("safety"))
    return {
        "limits": limits, "batch": batch, "episodes": sum(found["episodes"].values()),
        "verdict": safety["verdict"], "reason": safety["reason"], "cpu_s": cpu_seconds() - began,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 25])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", type=float, nargs="+", action="append", default=[])
    parser.add_argument("--batches", type=int, nargs="+", default=[25, 4])
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    made, run = stamp(), awavo.load(args.run)
    rows = by_size(run, args.sizes, args.rounds)
    wanted = [run.problem.spec.cost_limits, *map(tuple, args.limits)]
    found = [whole(run, limits, batch, args.episodes) for limits in wanted for batch in args.batches]
    result = {"programs": rows, "certify": found, "trained_steps": run.env_steps, **made}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
