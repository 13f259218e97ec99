"""The run of Bao, Zhang and Zhang (2024), who filter a million states of Lorenz-96 through shocks, by our filter.

    python benchmarks/assimilation/shocks.py --states 1000000 [--smooth] [--seed 400] [--calm] [--out FILE]

Theirs: RK4 with steps of 0.01, every tenth observed as arctan(x) + N(0, 0.05^2) at all sites, 1,500 steps, a start that
is not known, and shocks: at the steps of SHOCKS every site gets N(0, 1) times the size times its own value. They report
an RMSE of 0.397 at the end and 3.6 to 3.9 s an analysis on their GPU, with an ensemble of 20. The steps and sizes are
those of their profile 1; truth, noise and seeds are our own. The filter knows nothing of the shocks.

Printed and stored: error and spread after every analysis, share of the truth in 90% intervals, seconds of an analysis
(forecast included) without compiling, and with --smooth those of going back, for the last half of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from awavo.assimilation import System, make_filter
from awavo.provenance import stamp
from awavo.results.trajectory_scores import Z90
from awavo.tasks.lorenz96 import CLIMATE_MEAN, CLIMATE_STD, lorenz96_flow

STEPS, GAP, NOISE, DT = 1500, 10, 0.05, 0.01
LARGE = (228, 260, 363, 513, 636, 910, 1181, 1312)
MIDDLE = (8, 190, 293, 597, 727, 909, 931, 948, 950, 1214, 1238, 1290, 1358)
SMALL = (37, 71, 78, 176, 235, 441, 453, 610, 637, 741, 850, 945, 1123, 1136, 1139, 1176, 1191, 1322, 1444, 1450)
SHOCKS = {step: size for size, steps in ((0.5, LARGE), (0.2, MIDDLE), (0.05, SMALL)) for step in steps}


@partial(jax.jit, static_argnums=1)
def moved(x, num):
    return lorenz96_flow(num, DT)(x, jnp.array([8.0], x.dtype))


@jax.jit
def shocked(key, x, size):
    return x + size * jnp.abs(x) * jax.random.normal(key, x.shape, x.dtype)


@jax.jit
def seen(key, x):
    return jnp.arctan(x) + NOISE * jax.random.normal(key, x.shape, x.dtype)


@jax.jit
def scores(truth, state):
    """Error, spread, and the share of the truth in 90% intervals."""
    error, variance = truth - state.mean, state.band[:, state.band.shape[1] // 2]
    inside = jnp.mean(jnp.abs(error) <= Z90 * jnp.sqrt(variance))
    return jnp.sqrt(jnp.mean(error**2)), jnp.sqrt(jnp.mean(variance)), inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=400)
    parser.add_argument("--calm", action="store_true", help="no shocks")
    parser.add_argument("--smooth", action="store_true")
    parser.add_argument("--memory-mb", type=float, default=4096.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    key = jax.random.key(options.seed)
    truth = moved(8.0 + jax.random.normal(jax.random.fold_in(key, 1), (options.states,)), 2000)
    system = System(
        (options.states,), lorenz96_flow(GAP, DT), np.array([8.0]), CLIMATE_MEAN, CLIMATE_STD, layout="ring",
        reach=((7, 10),), observe=lambda x, theta: jnp.arctan(x), coarse=lorenz96_flow(4, GAP * DT / 4),
    )  # fmt: skip
    steps = make_filter(system, NOISE, memory_mb=options.memory_mb)
    begun = time.perf_counter()
    jax.block_until_ready(steps.analyse(steps.forecast(steps.first), seen(key, truth)))
    compiled = time.perf_counter() - begun
    state, rows, kept = steps.first, [], []
    for step in range(STEPS):
        truth = moved(truth, 1)
        if step in SHOCKS and not options.calm:
            truth = shocked(jax.random.fold_in(key, 10_000 + step), truth, SHOCKS[step])
        if step % GAP:
            continue
        observed = jax.block_until_ready(seen(jax.random.fold_in(key, 20_000 + step), truth))
        begun = time.perf_counter()
        ahead = steps.forecast(state) if step else state  # the prior is that of the first observation
        analysis = jax.block_until_ready(steps.analyse(ahead, observed))
        spent = time.perf_counter() - begun
        state = analysis.state
        error, spread, inside = (float(a) for a in scores(truth, state))
        rows.append({"step": step, "rmse": error, "spread": spread, "inside90": inside, "seconds": spent,
                     "noise": float(analysis.noise), "surprise": float(analysis.surprise)})  # fmt: skip
        print({k: round(v, 4) for k, v in rows[-1].items()}, flush=True)
        if options.smooth and step >= STEPS // 2:
            kept.append((state, analysis.forecast, truth))
    back = []
    for (now, _, known), (_, ahead, _) in zip(kept[-2::-1], kept[:0:-1], strict=True):
        begun = time.perf_counter()
        state = jax.block_until_ready(steps.smooth(now, ahead, state))
        spent = time.perf_counter() - begun
        error, spread, inside = (float(a) for a in scores(known, state))
        back.append({"rmse": error, "spread": spread, "inside90": inside, "seconds": spent})
    later = rows[5:]
    summary = {
        "states": options.states, "final_rmse": rows[-1]["rmse"],
        "mean_rmse": float(np.mean([r["rmse"] for r in later])),
        "median_rmse": float(np.median([r["rmse"] for r in later])),
        "inside90": float(np.mean([r["inside90"] for r in later])),
        "seconds_an_analysis": float(np.median([r["seconds"] for r in later])), "first_call_s": compiled,
    }  # fmt: skip
    if back:
        half = [r["rmse"] for r in rows if r["step"] >= STEPS // 2][:-1]
        summary |= {"smoothed_mean_rmse": float(np.mean([r["rmse"] for r in back])),
                    "filtered_mean_rmse_there": float(np.mean(half)),
                    "smoothed_inside90": float(np.mean([r["inside90"] for r in back])),
                    "seconds_a_step_back": float(np.median([r["seconds"] for r in back[1:]]))}  # fmt: skip
    print(summary)
    if options.out:
        words = [Path(sys.argv[0]).name, *(w for w in sys.argv[1:] if w not in ("--out", str(options.out)))]
        record = {
            **stamp(), "command": "python benchmarks/assimilation/" + " ".join(words), "seed": options.seed,
            "summary": summary, "rows": rows, "back": back[::-1],
        }  # fmt: skip
        options.out.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
