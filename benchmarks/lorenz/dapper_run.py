"""DAPPER's smoothers and filters on the protocol's twins, in an environment of their own.

    python -m venv dapper-env && dapper-env/bin/pip install dapper
    python benchmarks/lorenz/twins.py --states 50 --seeds 20 --out twins        # here: writes twins/50_G_100.npz ...
    dapper-env/bin/python benchmarks/lorenz/dapper_run.py twins --method EnRTS --members 400

Settings were tuned on seeds below 100 (20 smoothers at 50 states, 12 filters at 100 states): EnRTS and iEnKS with Sqrt
analysis; LETKF with radius 3 and 80 members.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import dapper
import dapper.da_methods as da
import dapper.mods as modelling
import numpy as np
from dapper.tools.localization import nd_Id_localization

TIME_STEP, MEAN, STD, Z90 = 0.025, 2.34, 3.64, 1.6448536269514722


def tendency(x):
    return (np.roll(x, -1, -1) - np.roll(x, 2, -1)) * np.roll(x, 1, -1) - x + 8.0


def step(x, t, dt):
    k1 = tendency(x)
    k2 = tendency(x + dt / 2 * k1)
    k3 = tendency(x + dt / 2 * k2)
    k4 = tendency(x + dt * k3)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def model(twin, noise, steps):
    sites, seen = twin["truth"].shape[1], np.flatnonzero(twin["seen"])
    times = len(twin["observed"])
    tseq = modelling.Chronology(TIME_STEP, dko=steps, Ko=times - 1)
    dyn = {"M": sites, "model": step, "noise": 0}
    start = modelling.RV(M=sites, func=lambda n: _climate(n, sites))
    obs = modelling.partial_Id_Obs(sites, seen)
    obs["noise"] = modelling.GaussRV(C=noise**2 * np.eye(len(seen)))
    obs["localizer"] = nd_Id_localization((sites,), (1,), seen)
    return modelling.HiddenMarkovModel(dyn, obs, tseq, start), seen


def _climate(count, sites):
    x = MEAN + STD * np.random.standard_normal((count, sites))  # noqa: NPY002  (DAPPER seeds the global generator)
    for _ in range(200):
        x = step(x, 0.0, TIME_STEP)
    return x


def make_method(options):
    if options.method == "EnRTS":
        return da.EnRTS("Sqrt", options.members, DeCorr=0.99, infl=options.infl, rot=False)
    if options.method == "iEnKS":
        return da.iEnKS("Sqrt", options.members, Lag=7, infl=options.infl)
    return da.LETKF(options.members, infl=options.infl, loc_rad=options.radius, rot=True)


def score(mean, spread, truth, hidden):
    error, width = (mean - truth)[1:][:, hidden], spread[1:][:, hidden]
    quarter = len(error) // 4
    rmse = lambda e: float(np.sqrt(np.mean(e**2)))  # noqa: E731
    return {
        "rmse": rmse(error), "rmse_first_quarter": rmse(error[:quarter]), "rmse_middle": rmse(error[quarter:-quarter]),
        "rmse_last_quarter": rmse(error[-quarter:]), "lost": float(np.mean(np.sqrt(np.mean(error**2, 0)) > 2)),
        "coverage90": float(np.mean(np.abs(error) <= Z90 * width)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twins", type=Path)
    parser.add_argument("--method", choices=("EnRTS", "iEnKS", "LETKF"), default="EnRTS")
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--regime", default="G")
    parser.add_argument("--members", type=int, default=400)
    parser.add_argument("--infl", type=float, default=1.0)
    parser.add_argument("--radius", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for path in sorted(options.twins.glob(f"{options.states}_{options.regime}_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            twin = {name: file[name] for name in file.files}
        hmm, seen = model(twin, float(twin["noise"]), int(twin["steps"]))
        dapper.set_seed(3000 + int(twin["seed"]))
        method = make_method(options)
        truth = np.repeat(twin["truth"], int(twin["steps"]), 0)[: hmm.tseq.K + 1]
        began = time.perf_counter()
        method.assimilate(hmm, truth, twin["observed"][:, seen], liveplots=False)
        wall = time.perf_counter() - began
        stats = method.stats
        if options.method == "LETKF":
            mean, spread = stats.mu.a, stats.spread.a
            mean, spread = np.vstack([mean[:1], mean]), np.vstack([spread[:1], spread])
        else:
            every = slice(0, None, int(twin["steps"]))
            series = stats.mu.s if len(stats.mu.s) == len(stats.mu.a) else stats.mu.u[every]
            widths = stats.spread.s if len(stats.mu.s) == len(stats.mu.a) else stats.spread.u[every]
            mean, spread = (np.vstack([a[:1], a]) if len(a) == len(twin["observed"]) else a for a in (series, widths))
        hidden = ~twin["seen"]
        rows.append({"seed": int(twin["seed"]), "solve_s": wall, **score(mean, spread, twin["truth"], hidden)})
        print(rows[-1], flush=True)
    keys = [k for k in rows[0] if k != "seed"]
    summary = {k: float(np.mean([r[k] for r in rows])) for k in keys}
    summary["rmse_median"] = float(np.median([r["rmse"] for r in rows]))
    summary["solve_s_median"] = float(np.median([r["solve_s"] for r in rows]))
    print(summary)
    if options.out:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
        content = {"method": f"DAPPER {options.method} N{options.members}", "dapper": dapper.__version__,
                   "states": int(twin["truth"].shape[1]), "regime": options.regime, "seeds": [r["seed"] for r in rows],
                   "summary": summary, "rows": rows, "command": " ".join(["dapper_run.py", *sys.argv[1:]]),
                   "commit": commit.stdout.strip(), "python": platform.python_version(), "numpy": np.__version__,
                   "machine": platform.machine(), "date": time.strftime("%Y-%m-%d"),
                   "load": os.getloadavg()}  # fmt: skip
        options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
