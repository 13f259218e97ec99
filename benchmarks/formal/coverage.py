"""How often the safety bounds are wrong: at most delta of the time, for a fixed sample and at every time at once.

    PYTHONPATH=src python benchmarks/formal/coverage.py [--repetitions 4000]

Each repetition draws episodes from a law with a known mean and asks whether the two-sided bound excludes it: after the
last episode (fixed), or after any of them (anytime). Laws: rare and common violations, costs with an atom at zero,
skewed and two-point costs. Tightness: half-width over that of the exact binomial interval (Clopper-Pearson) on the same
sample.
"""

from __future__ import annotations

import argparse

import numpy as np
from report import write
from scipy.stats import binom

from awavo.formal.bounds import (
    beta_mixture,
    betting_log_capital,
    betting_mean,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
)

NUM = 300
LAWS = {
    "Bernoulli 0.01": (0.01, lambda rng, shape: (rng.uniform(size=shape) < 0.01).astype(float)),
    "Bernoulli 0.3": (0.3, lambda rng, shape: (rng.uniform(size=shape) < 0.3).astype(float)),
    "beta(1, 9)": (0.1, lambda rng, shape: rng.beta(1, 9, shape)),
    "0 with 0.9, else uniform": (0.05, lambda rng, shape: (rng.uniform(size=shape) < 0.1) * rng.uniform(size=shape)),
    "0.1 or 1 (0.02)": (0.118, lambda rng, shape: np.where(rng.uniform(size=shape) < 0.02, 1.0, 0.1)),
}


def excluded_by_betting(x: np.ndarray, mean: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Whether the true mean is rejected by either side: at the end, and ever."""
    ends, ever = [], []
    for part in np.array_split(x, max(1, len(x) // 100)):
        high = betting_log_capital(part, mean)
        low = betting_log_capital(1 - part, 1 - mean)
        bad = (high >= np.log(2 / delta)) | (low >= np.log(2 / delta))
        ends.append(bad[:, -1])
        ever.append(bad.any(1))
    return np.concatenate(ends), np.concatenate(ever)


def excluded_by_counts(over: np.ndarray, p: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The same for a probability: Clopper-Pearson at the end, the beta mixture at every time."""
    counts = np.cumsum(over, 1)
    low, high = clopper_pearson(counts[:, -1], over.shape[1], delta)
    lows, highs = beta_mixture(counts, np.arange(1, over.shape[1] + 1), delta)
    return (p < low) | (p > high), ((p < lows) | (p > highs)).any(1)


def excluded_by(bound, x: np.ndarray, mean: float, delta: float) -> np.ndarray:
    limits = np.array([bound(row, 0.0, 1.0, delta) for row in x])
    return (mean < limits[:, 0]) | (mean > limits[:, 1])


def rate(bad: np.ndarray, delta: float) -> dict:
    """Share of wrong bounds, and whether it is at most delta up to binomial error."""
    allowed = int(binom.ppf(0.999, len(bad), delta))
    return {
        "wrong": float(bad.mean()),
        "count": int(bad.sum()),
        "allowed_count": allowed,
        "ok": bool(bad.sum() <= allowed),
    }


def coverage(repetitions: int) -> tuple[list[dict], list[str]]:
    rows, table = (
        [],
        [
            "| law | delta | betting, fixed | betting, anytime | empirical Bernstein | Hoeffding | all within delta |",
            "|---|---|---|---|---|---|---|",
        ],
    )
    for number, (name, (mean, draw)) in enumerate(LAWS.items()):
        x = draw(np.random.default_rng(number), (repetitions, NUM))
        for delta in (0.05, 0.01):
            fixed, anytime = excluded_by_betting(x, mean, delta)
            found = {
                "betting, fixed": fixed,
                "betting, anytime": anytime,
                "empirical Bernstein": excluded_by(empirical_bernstein, x, mean, delta),
                "Hoeffding": excluded_by(hoeffding, x, mean, delta),
            }
            entry = {k: rate(v, delta) for k, v in found.items()}
            rows.append({"law": name, "delta": delta, **entry})
            shown = " | ".join(f"{v['wrong']:.4f}" for v in entry.values())
            table.append(f"| {name} | {delta} | {shown} | {'yes' if all(v['ok'] for v in entry.values()) else 'NO'} |")
    table += [
        "",
        "| P(cost > limit) | delta | Clopper-Pearson, fixed | beta mixture, anytime | within delta |",
        "|---|---|---|---|---|",
    ]
    for number, p in enumerate((0.002, 0.01, 0.05, 0.3)):
        over = np.random.default_rng(100 + number).uniform(size=(repetitions, NUM)) < p
        for delta in (0.05, 0.01):
            fixed, anytime = (rate(bad, delta) for bad in excluded_by_counts(over, p, delta))
            rows.append({"law": f"P = {p}", "delta": delta, "Clopper-Pearson": fixed, "beta mixture": anytime})
            within = "yes" if fixed["ok"] and anytime["ok"] else "NO"
            table.append(f"| {p} | {delta} | {fixed['wrong']:.4f} | {anytime['wrong']:.4f} | {within} |")
    return rows, table


def tightness() -> tuple[list[dict], list[str]]:
    rows, table = (
        [],
        [
            "| rate | n | delta | exact half-width | betting | beta mixture | empirical Bernstein | Hoeffding |",
            "|---|---|---|---|---|---|---|---|",
        ],
    )
    for p, num in ((0.002, 2_000), (0.01, 300), (0.01, 1_000), (0.05, 1_000)):
        for delta in (0.05, 0.01):
            count = round(p * num)
            x = np.concatenate([np.ones(count), np.zeros(num - count)])
            half = lambda pair: float(pair[1] - pair[0]) / 2  # noqa: E731
            exact = half(clopper_pearson(count, num, delta))
            ratios = {
                "betting": half(betting_mean(x, 0, 1, delta)) / exact,
                "beta mixture": half(beta_mixture(count, num, delta)) / exact,
                "empirical Bernstein": half(empirical_bernstein(x, 0, 1, delta)) / exact,
                "Hoeffding": half(hoeffding(x, 0, 1, delta)) / exact,
            }
            rows.append({"rate": p, "n": num, "delta": delta, "exact": exact, **ratios})
            shown = " | ".join(f"{v:.2f}x" for v in ratios.values())
            table.append(f"| {p} | {num} | {delta} | {exact:.5f} | {shown} |")
    return rows, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=4_000)
    repetitions = parser.parse_args().repetitions
    wrong, first = coverage(repetitions)
    tight, second = tightness()
    table = [
        f"{repetitions} repetitions of {NUM} episodes. Share of two-sided bounds that exclude the truth:",
        "",
        *first,
    ]
    table += ["", "Tightness for rare events, half-width over the exact binomial's:", "", *second]
    record = {
        "repetitions": repetitions,
        "episodes": NUM,
        "seeds": "laws 0-4, probabilities 100-103",
        "coverage": wrong,
    }
    write("coverage", "Coverage and tightness of the safety bounds", {**record, "tightness": tight}, table)


if __name__ == "__main__":
    main()
