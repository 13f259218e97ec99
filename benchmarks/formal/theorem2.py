"""Theorem 2 on exact CMDPs: the rate of the gap and of the violation of tabular ORPO-DR against T.

    PYTHONPATH=src python benchmarks/formal/theorem2.py --processes 2 --parts DIR

Twenty random CMDPs (8 states, 3 actions, 2 binding constraints, discount 0.9), 2 seeds each, one run per horizon T
because the step size depends on T. Critics are solved from K_td = (1-gamma)^(-3/2) m^(H/2) transitions per (s, a),
drawn afresh each iteration (m = 128, H = 2 as in the paper). The optimum is the occupancy LP's. The tolerance tau_c is
a tenth of the theorem's. Variants that break a premise run beside the theorem's schedule: they must not have the rate.

Four decades of T take an hour of processor time. Each process takes one T of a variant; finished ones stay in DIR, so
a run that was killed resumes.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

import numpy as np
from report import RESULTS, machine, write

from awavo.formal.cmdp import random_cmdp, solve
from awavo.formal.rates import RESOLUTION, fit_rate, rate_verdict
from awavo.formal.schedule import schedule
from awavo.formal.tabular_orpo import invalid_utility, log_utility, tabular_orpo
from awavo.provenance import source_commit

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
LONG = (*SHORT, 30_000, 100_000, 300_000, 1_000_000)
QUANTILE = (30, 100, 300, 1_000, 3_000)
TOLERANCE = 0.1  # of the theorem's tau_c


def horizons_of(variant: dict) -> tuple[int, ...]:
    if "quantiles" in variant:
        return QUANTILE
    return LONG if "rate" in variant and "utility" not in variant else SHORT


def measure(name: str, horizon: int, num_cmdps: int, num_seeds: int, file: Path) -> Path:
    """Errors `[4, problem, seed]` after T iterations: gap, violation of all iterates; of those in the reward branch."""
    if file.exists():
        return file
    variant = VARIANTS[name]
    cmdps = [random_cmdp(seed, discount=DISCOUNT) for seed in range(num_cmdps)]
    batch = [c for c in cmdps for _ in range(num_seeds)]
    limits = np.array([c.limits for c in batch])
    best = np.repeat([solve(c).value for c in cmdps], num_seeds)
    critic = dict(quantiles=variant["quantiles"]) if "quantiles" in variant else dict(samples=td_samples())
    out = tabular_orpo(
        batch,
        horizon,
        seed=horizon,
        step_size=variant.get("constant", variant.get("rate", 1.0) / np.sqrt(horizon)),
        tolerance=TOLERANCE * schedule(DISCOUNT, 128, 2, horizon).tolerance,
        utility=variant.get("utility", log_utility),
        **critic,
    )
    errors = []
    for totals in (out.mean_totals, out.mean_feasible_totals):
        totals = np.where(np.isnan(totals), out.mean_totals, totals)
        errors += [best - totals[:, 0], np.maximum(totals[:, 1:] - limits, 0).max(1)]
    unfinished = file.with_suffix(".tmp.npz")
    stamp = f"{machine()}, commit {source_commit()}"
    np.savez(unfinished, errors=np.array(errors).reshape(4, num_cmdps, num_seeds), made_by=stamp)
    return unfinished.rename(file)


def measure_all(args: argparse.Namespace) -> tuple[dict[str, np.ndarray], list[str]]:
    """The errors `[4, problem, seed, T]` of every variant, measured by several processes; and who measured them."""
    args.parts.mkdir(parents=True, exist_ok=True)
    parts = {
        (name, horizon): args.parts / f"{number}-{horizon}-{args.cmdps}-{args.seeds}.npz"
        for number, (name, variant) in enumerate(VARIANTS.items())
        for horizon in horizons_of(variant)
    }
    with ProcessPoolExecutor(args.processes) as pool:
        longest_first = sorted(parts.items(), key=lambda part: -part[0][1])
        waiting = [pool.submit(measure, *which, args.cmdps, args.seeds, file) for which, file in longest_first]
        for number, done in enumerate(as_completed(waiting), 1):
            print(f"{number} of {len(waiting)}: {done.result().name}", flush=True)
    loaded = {which: np.load(file) for which, file in parts.items()}
    makers = sorted({str(part["made_by"]) for part in loaded.values()})
    found = {
        name: np.stack([loaded[name, horizon]["errors"] for horizon in horizons_of(variant)], -1)
        for name, variant in VARIANTS.items()
    }
    return found, makers


def td_samples() -> int:
    return schedule(DISCOUNT, 128, 2, 1).td_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cmdps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", type=Path, help="folder of finished parts (default: a temporary one)")
    args = parser.parse_args()
    args.parts = args.parts or Path(tempfile.mkdtemp())
    solutions = [solve(random_cmdp(seed, discount=DISCOUNT)) for seed in range(args.cmdps)]
    found, makers = measure_all(args)
    import matplotlib as mpl  # not needed where only parts are measured

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    record: dict = {
        "cmdps": args.cmdps,
        "seeds": list(range(args.seeds)),
        "duality_gap": max(abs(s.dual - s.value) for s in solutions),
        "td_samples": td_samples(),
        "tolerance, of the theorem's": TOLERANCE,
        "parts made by": makers,
        "resolution": RESOLUTION,
        "variants": {},
    }
    table = [
        f"Parts made by: {'; '.join(makers)}.",
        "",
        "Slopes of log error against log T, 95% bootstrap interval over CMDPs and seeds; floor f of a/sqrt(T) + f.",
        f"A slope supports the rate when its interval is <= {-0.5 + RESOLUTION:g}, refutes it when all of it is above.",
        "",
        "| variant | T | error | slope | floor | at the largest T | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True)
    for color, (name, variant) in enumerate(VARIANTS.items()):
        horizons, errors = horizons_of(variant), found[name]
        labels = ("gap", "violation", "gap, reward branch", "violation, reward branch")
        entry = {"horizons": horizons, "seeds": errors.shape[2], "errors": {}}
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
                axis.loglog(horizons, np.maximum(fit.means, 1e-5), "o-", color=f"C{color}", label=name, ms=3)
                axis.fill_between(horizons, *np.maximum(drawn(q=(0.25, 0.75)), 1e-5), color=f"C{color}", alpha=0.12)
        record["variants"][name] = entry
    for axis, title in zip(axes, ("gap J_r(pi*) - mean J_r", "violation max_i (mean J_g,i - b_i)+"), strict=True):
        span = np.array([30, 1_000_000])
        axis.loglog(span, 10 / np.sqrt(span), "k--", lw=0.8, label="slope -1/2")
        axis.set(title=title, xlabel="T")
        axis.set_ylim(5e-4, 3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "theorem2.png", dpi=130)
    write("theorem2", "Theorem 2 on exact CMDPs", record, table)


if __name__ == "__main__":
    main()
