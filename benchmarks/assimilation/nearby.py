"""What steps around changed places alone are worth on a long ring: whole inferences with them and without, in turn.

    python benchmarks/assimilation/nearby.py --states 10000 --seeds 100 101 102 [--out FILE]

Regime G of Lorenz-96, a third never observed. Each seed is inferred twice in one process, first with the one or the
other in turn, by the same compiled stages; seconds are without compiling. Errors are over the components never
observed. A search draws its starts by the number of regions, so that rounding can turn it another way: single seeds
differ, and what can be compared is many of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np

from awavo.assimilation import engine as engines
from awavo.assimilation.assimilate import Posterior, assimilate, first_state
from awavo.assimilation.engine import Engine, Settings, System, compile_engine, make_data, make_engine
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.assimilation.trajectories import Data
from awavo.provenance import stamp
from awavo.results.trajectory_scores import score
from awavo.tasks.lorenz96 import Twin, lorenz96_system, twin_experiment


def infer_once(engine: Engine, data: Data, theta: np.ndarray, twin: Twin) -> dict:
    """Scores of one inference, what it took, and how much of that went by while the model was annealed."""
    began, processor, annealed, item, stages = time.perf_counter(), time.process_time(), 0.0, None, 0
    for item, text in assimilate(engine, data, first_state(data, theta)):
        stages += 1
        if text.startswith("annealing") and isinstance(item, tuple):
            jax.block_until_ready(item[0])
            annealed = time.process_time() - processor
    assert isinstance(item, Posterior)
    scores = score(item.mean, item.std, twin.truth, ~twin.seen)
    return {
        "solve_s": time.perf_counter() - began, "cpu_s": time.process_time() - processor, "annealing_cpu_s": annealed,
        "stages": stages, "not_believed": int((~item.believed).sum()),
        **{name: scores[name] for name in ("rmse", "lost", "coverage90")},
    }  # fmt: skip


def measure(states: int, seeds: list[int], memory_mb: float) -> Iterator[dict]:
    """Every seed with and without, which goes first by turns."""
    engines.LONG[jax.default_backend()] = 0
    settings = Settings(
        search=SearchSettings(slots=default_slots(states, jax.default_backend())), memory_mb=memory_mb, num_draws=2
    )
    system, engine = System(**lorenz96_system(states)), None
    theta = np.asarray(system.theta)
    for number, seed in enumerate(seeds):
        twin = twin_experiment(states, seed=seed)
        data = make_data(system, twin.observed, 1.0, settings)
        if engine is None:
            engine, _ = compile_engine(make_engine(system, 32, settings), data, theta)
        kinds = {"nearby": engine, "whole": engine._replace(nearby=None)}
        row: dict = {"seed": seed}
        for name in sorted(kinds, reverse=number % 2 > 0):
            row[name] = infer_once(kinds[name], data, theta, twin)
            print(seed, name, {k: round(v, 4) for k, v in row[name].items()}, flush=True)
        yield row | {"load": os.getloadavg()}


def summarise(rows: list[dict]) -> dict:
    """Means of both kinds, and the ratio of what they took."""
    told = {
        name: {key: float(np.mean([row[name][key] for row in rows])) for key in rows[0][name]}
        for name in ("nearby", "whole")
    }
    return told | {f"ratio_{key}": told["whole"][key] / told["nearby"][key] for key in ("cpu_s", "solve_s")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--memory-mb", type=float, default=8192.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    words = [Path(sys.argv[0]).name, *(w for w in sys.argv[1:] if w not in ("--out", str(options.out)))]
    record = {**stamp(), "command": "python benchmarks/assimilation/" + " ".join(words), "states": options.states}
    rows = []
    for row in measure(options.states, options.seeds, options.memory_mb):
        rows.append(row)
        if options.out:
            options.out.write_text(json.dumps(record | {"summary": summarise(rows), "rows": rows}, indent=1) + "\n")
    print(json.dumps(summarise(rows), indent=1))


if __name__ == "__main__":
    main()
