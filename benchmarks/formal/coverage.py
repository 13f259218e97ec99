"""How often the safety bounds are wrong: at most delta of the time, for a fixed sample and at every time at once.

    PYTHONPATH=src python benchmarks/formal/coverage.py [--repetitions 2500]

Each repetition draws episodes from a law with a known mean and asks whether the two-sided bound excludes it: after the
last episode (fixed), or after any of them (anytime). Laws: rare and common violations, costs with an atom at zero,
skewed and two-point costs. Tightness: half-width over that of the exact binomial interval (Clopper-Pearson) on the same
sample.
"""

from __future__ import annotations

import argparse

import numpy as np
from report import write
from scipy.special import betaln
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


def betting_extremes(x: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Log capital of the better of both sides when the mean is the true one: at the end, and the largest ever."""
    ends, ever = [], []
    for part in np.array_split(x, max(1, len(x) // 100)):
        capital = np.maximum(betting_log_capital(part, mean), betting_log_capital(1 - part, 1 - mean))
        ends.append(capital[:, -1])
        ever.append(capital.max(1))
    return np.concatenate(ends), np.concatenate(ever)


def mixture_extremes(over: np.ndarray, p: float) -> np.ndarray:
    """Largest log ratio of the beta mixture to the true likelihood over all sample sizes."""
    counts, sizes = np.cumsum(over, 1), np.arange(1, over.shape[1] + 1)
    ratio = betaln(0.5 + counts, 0.5 + sizes - counts) - betaln(0.5, 0.5)
    return (ratio - counts * np.log(p) - (sizes - counts) * np.log1p(-p)).max(1)


def check_mixture(over: np.ndarray, p: float, delta: float) -> None:
    """The bounds that users get exclude p exactly where the ratio exceeds 1 / delta."""
    lows, highs = beta_mixture(np.cumsum(over, 1), np.arange(1, over.shape[1] + 1), delta)
    by_bounds = ((p < lows) | (p > highs)).any(1)
    assert (by_bounds == (mixture_extremes(over, p) > np.log(1 / delta))).all()


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
        ends, ever = betting_extremes(x, mean)
        for delta in (0.05, 0.01):
            found = {
                "betting, fixed": ends >= np.log(2 / delta),
                "betting, anytime": ever >= np.log(2 / delta),
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
        largest = mixture_extremes(over, p)
        for delta in (0.05, 0.01):
            check_mixture(over[:200], p, delta)
            low, high = clopper_pearson(over.sum(1), NUM, delta)
            fixed, anytime = rate((p < low) | (p > high), delta), rate(largest > np.log(1 / delta), delta)
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
    parser.add_argument("--repetitions", type=int, default=2_500)
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
