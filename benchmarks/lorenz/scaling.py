"""Error, time and memory against the number of states, with the search for modes on, on one device.

    PYTHONPATH=src python benchmarks/lorenz/scaling.py --sizes 1000 10000 100000 1000000 [--seeds 100]
    PYTHONPATH=src python benchmarks/lorenz/scaling.py --sizes 100000 --append          # further rows of the same file

Needs jax, numpy, equinox, optax (and jaxtyping). Times are without compilation; peak memory is the device's. Two draws
of the ensemble are made, for their cost; their spread says nothing and is not scored.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np

from awavo.assimilation.assimilate import Posterior, assimilate, first_state
from awavo.assimilation.engine import Settings, System, compile_engine, make_data, make_engine
from awavo.assimilation.local import MISFIT
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.results.trajectory_scores import score
from awavo.tasks.lorenz96 import lorenz96_system, twin_experiment


def measure(states: int, seed: int, rounds: int, memory_mb: float) -> dict:
    """One size, one seed."""
    twin = twin_experiment(states, seed=seed)
    search = SearchSettings(rounds=rounds, slots=default_slots(states, jax.default_backend()))
    settings = Settings(search=search, memory_mb=memory_mb, num_draws=2)
    system = System(**lorenz96_system(states))
    data = make_data(system, twin.observed, 1.0, settings)
    began = time.perf_counter()
    engine, compile_s = compile_engine(make_engine(system, 32, settings), data, system.theta)
    prepare_s, began, stages = time.perf_counter() - began, time.perf_counter(), []
    processor = time.process_time()
    item = None
    for item, text in assimilate(engine, data, first_state(data, system.theta)):  # noqa: B007
        stages.append((round(time.perf_counter() - began, 3), text))
        print(states, *stages[-1], flush=True)
    assert isinstance(item, Posterior)
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "states": states, "seed": seed, "solve_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - processor, "compile_s": compile_s, "load": os.getloadavg(),
        "tables_s": prepare_s - compile_s, "peak_gb": stats.get("peak_bytes_in_use", 0) / 1e9,
        **score(item.mean, item.std, twin.truth, ~twin.seen), **doubts(item, twin.truth), "stages": stages,
    }  # fmt: skip


def doubts(item: Posterior, truth: np.ndarray) -> dict:
    """How many sites are not believed, how many of the others misfit, and the error of all states of each."""
    told = {}
    for name, sites in (("not_believed", ~item.believed), ("misfits", item.believed & (item.chi2 > MISFIT))):
        error = (item.mean - truth)[:, sites]
        told |= {name: int(sites.sum()), f"rmse_{name}": float(np.sqrt(np.mean(error**2))) if sites.any() else None}
    return told


def exponent(rows: list[dict], name: str) -> float | None:
    """The slope of log time against log size, over the mean time of each size from 1,000 states on."""
    sizes = sorted({r["states"] for r in rows if r["states"] >= 1000})
    if len(sizes) < 2:
        return None
    times = [np.mean([r[name] for r in rows if r["states"] == size]) for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--rounds", type=int, default=SearchSettings().rounds)
    parser.add_argument("--memory-mb", type=float, default=8192.0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file (default: results/scaling_PLATFORM.json)")
    parser.add_argument("--append", action="store_true", help="keep the rows that the file has")
    options = parser.parse_args()
    device = jax.devices()[0]
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    content = {
        "rows": [], "device": device.device_kind, "machine": platform.machine(), "jax": jax.__version__,
        "python": platform.python_version(), "commit": os.environ.get("AWAVO_COMMIT") or commit,
        "command": "benchmarks/lorenz/scaling.py " + " ".join(sys.argv[1:]),
    }  # fmt: skip
    out = options.out or Path(__file__).parent / "results" / f"scaling_{device.platform}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    if options.append:
        before = json.loads(out.read_text())
        content |= {"rows": before["rows"], "command": before["command"] + "; " + content["command"]}
    for states, seed in itertools.product(options.sizes, options.seeds):
        content["rows"].append(measure(states, seed, options.rounds, options.memory_mb))
        print({k: v for k, v in content["rows"][-1].items() if k != "stages"}, flush=True)
        for name in ("solve_s", "cpu_s"):
            content[f"exponent_{name}"] = exponent(content["rows"], name)
        out.write_text(json.dumps(content, indent=1) + "\n")
    print("exponents of time", content["exponent_solve_s"], content["exponent_cpu_s"], "->", out)


if __name__ == "__main__":
    main()
