"""Theorem 2 on exact CMDPs: the rate of the gap and of the violation of tabular ORPO-DR against T.

    PYTHONPATH=src python benchmarks/formal/theorem2.py

Twenty random CMDPs (8 states, 3 actions, 2 binding constraints, discount 0.9), 10 seeds each, one run per horizon T
because the step size depends on T. Critics are solved from K_td = (1-gamma)^(-3/2) m^(H/2) transitions per (s, a),
drawn afresh each iteration (m = 128, H = 2 as in the paper). The optimum is the occupancy LP's. Variants that break a
premise run beside the theorem's schedule: they must not have the rate.
"""

from __future__ import annotations

import argparse
from functools import partial

import matplotlib as mpl
import numpy as np
from report import RESULTS, write

from awavo.formal.cmdp import random_cmdp, solve
from awavo.formal.rates import RESOLUTION, fit_rate, rate_verdict
from awavo.formal.schedule import schedule
from awavo.formal.tabular_orpo import invalid_utility, log_utility, tabular_orpo

mpl.use("Agg")
import matplotlib.pyplot as plt

DISCOUNT = 0.9
# name: (constant of l_Q = c / sqrt(T), or a constant step size; utility; critic)
VARIANTS = {
    "l_Q = 1/sqrt(T) (the letter)": dict(rate=1.0),
    "l_Q = 10/sqrt(T)": dict(rate=10.0),
    "constant step 5": dict(constant=5.0),
    "invalid operator 4p(1-p), l_Q = 10/sqrt(T)": dict(rate=10.0, utility=invalid_utility),
    "M = 4 quantiles, l_Q = 10/sqrt(T)": dict(rate=10.0, quantiles=4),
}
SHORT = (100, 300, 1_000, 3_000, 10_000)
LONG = (300, 1_000, 3_000, 10_000, 30_000)
QUANTILE = (30, 100, 300, 1_000, 3_000)


def measure(variant: dict, horizons: tuple[int, ...], cmdps, optima, num_seeds: int) -> np.ndarray:
    """Errors `[4, problem, seed, T]`: gap and violation of all iterates, then of those in the reward branch."""
    batch = [c for c in cmdps for _ in range(num_seeds)]
    limits = np.array([c.limits for c in batch])
    best = np.repeat(optima, num_seeds)
    critic = dict(quantiles=variant["quantiles"]) if "quantiles" in variant else dict(samples=td_samples())
    found = []
    for horizon in horizons:
        step = variant.get("constant", variant.get("rate", 1.0) / np.sqrt(horizon))
        out = tabular_orpo(
            batch,
            horizon,
            seed=horizon,
            step_size=step,
            tolerance=0.1 * schedule(DISCOUNT, 128, 2, horizon).tolerance,
            utility=variant.get("utility", log_utility),
            **critic,
        )
        rows = []
        for totals in (out.mean_totals, out.mean_feasible_totals):
            totals = np.where(np.isnan(totals), out.mean_totals, totals)
            rows += [best - totals[:, 0], np.maximum(totals[:, 1:] - limits, 0).max(1)]
        found.append(rows)
        print(f"  T = {horizon}: gap {rows[0].mean():.4f}, violation {rows[1].mean():.4f}", flush=True)
    return np.moveaxis(np.array(found), 0, -1).reshape(4, len(cmdps), num_seeds, len(horizons))


def td_samples() -> int:
    return schedule(DISCOUNT, 128, 2, 1).td_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cmdps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    cmdps = [random_cmdp(seed, discount=DISCOUNT) for seed in range(args.cmdps)]
    solutions = [solve(c) for c in cmdps]
    optima = np.array([s.value for s in solutions])
    record: dict = {
        "cmdps": args.cmdps,
        "seeds": list(range(args.seeds)),
        "duality_gap": max(abs(s.dual - s.value) for s in solutions),
        "td_samples": td_samples(),
        "resolution": RESOLUTION,
        "variants": {},
    }
    table = [
        "Slopes of log error against log T, 95% bootstrap interval over CMDPs and seeds; floor f of a/sqrt(T) + f.",
        f"A slope supports the rate when its interval is <= {-0.5 + RESOLUTION:g}, refutes it when all of it is above.",
        "",
        "| variant | T | error | slope | floor | at the largest T | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True)
    for color, (name, variant) in enumerate(VARIANTS.items()):
        print(name, flush=True)
        letter = variant == {"rate": 1.0}
        horizons = QUANTILE if "quantiles" in variant else LONG if letter else SHORT
        seeds = 2 if "quantiles" in variant else args.seeds
        errors = measure(variant, horizons, cmdps, optima, seeds)
        labels = ("gap", "violation", "gap, reward branch", "violation, reward branch")
        entry = {"horizons": horizons, "seeds": seeds, "errors": {}}
        for label, values in zip(labels, errors, strict=True):
            fit = fit_rate(np.array(horizons), values)
            verdict = rate_verdict(fit.slope_low, fit.slope_high)
            positive = bool(np.all(fit.means > 0))
            verdict = verdict if positive else "no slope: the mean is not positive"
            entry["errors"][label] = {
                **{k: getattr(fit, k) for k in fit._fields[:-1]},
                "means": fit.means.tolist(),
                "verdict": verdict,
            }
            slope = f"{fit.slope:.3f} [{fit.slope_low:.3f}, {fit.slope_high:.3f}]" if positive else "–"
            floor = f"{fit.floor:.4f} [{fit.floor_low:.4f}, {fit.floor_high:.4f}]"
            span = f"{horizons[0]}–{horizons[-1]}"
            table.append(f"| {name} | {span} | {label} | {slope} | {floor} | {fit.means[-1]:.4f} | {verdict} |")
            if label in labels[:2]:
                axis = axes[labels.index(label)]
                drawn = partial(np.quantile, values.reshape(-1, len(horizons)), axis=0)
                axis.loglog(horizons, np.maximum(fit.means, 1e-4), "o-", color=f"C{color}", label=name, ms=3)
                axis.fill_between(horizons, *np.maximum(drawn(q=(0.25, 0.75)), 1e-4), color=f"C{color}", alpha=0.12)
        record["variants"][name] = entry
    for axis, title in zip(axes, ("gap J_r(pi*) - mean J_r", "violation max_i (mean J_g,i - b_i)+"), strict=True):
        span = np.array([30, 30_000])
        axis.loglog(span, 10 / np.sqrt(span), "k--", lw=0.8, label="slope -1/2")
        axis.set(title=title, xlabel="T")
        axis.set_ylim(5e-3, 3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "theorem2.png", dpi=130)
    write("theorem2", "Theorem 2 on exact CMDPs", record, table)


if __name__ == "__main__":
    main()
