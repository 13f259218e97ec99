"""How often both kinds of interval hold the truth, and how near the Gaussian closed form is.

    PYTHONPATH=src python benchmarks/transport/coverage.py [--runs 2000] [--dims 3,30,300] [--laws Gaussians,shift]

`sample`: fixed clouds of 200 points, new slices in each run; the truth is the average over 100,000 slices.
`population`: new points and slices in each run; the truth is the closed form of Gaussians, or for a mixture against
exponentials the debiased mean over clouds of 40,000 points. 100 slices, nominal 95%, default sampling.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from report import single_thread, write

single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy.integrate import quad  # noqa: E402
from scipy.special import gammaln  # noqa: E402

from awavo.transport import sliced_wasserstein  # noqa: E402

NUM_POINTS, NUM_SLICES = 200, 100


def gaussian_value(shift: np.ndarray, spread: np.ndarray) -> float:
    """SW_2^2 of N(0, I) and N(shift, diag(spread)): |m|^2/d + 1 + tr S/d - 2 E|theta|_S, by one integral."""
    dim = len(spread)

    def integrand(s: float) -> float:  # E sqrt(Q) = 1/(2 sqrt(pi)) Int (1 - E exp(-tQ)) t^(-3/2) dt, with t = e^s
        return -np.expm1(-0.5 * np.sum(np.log1p(2 * spread * np.exp(s)))) * np.exp(-s / 2)

    norm = quad(integrand, -60, 60, limit=800)[0] / (2 * np.sqrt(np.pi))
    length = np.sqrt(2) * np.exp(gammaln((dim + 1) / 2) - gammaln(dim / 2))  # E|g| of a normal vector
    return float(shift @ shift / dim + 1 + spread.sum() / dim - 2 * norm / length)


def laws(dim: int) -> dict[str, tuple[Callable, float | None]]:
    """Samplers `(key, n) -> (x, y)` and true values, None where there is no closed form."""
    rng = np.random.default_rng(dim)
    spread, shift = np.exp(rng.uniform(np.log(0.1), np.log(4), dim)), rng.standard_normal(dim) / np.sqrt(dim)
    centres, mixing = 2 * rng.standard_normal((4, dim)), rng.standard_normal((dim, dim)) / np.sqrt(dim)
    root, mean, modes, mixing = (jnp.asarray(v, jnp.float32) for v in (np.sqrt(spread), shift, centres, mixing))

    def normal(key, num):
        return jax.random.normal(key, (num, dim))

    def shifted(key, num):
        keys = jax.random.split(key)
        return normal(keys[0], num), normal(keys[1], num) + 0.3

    def gaussians(key, num):
        keys = jax.random.split(key)
        return normal(keys[0], num), normal(keys[1], num) * root + mean

    def clouds(key, num):
        keys = jax.random.split(key, 3)
        x = modes[jax.random.randint(keys[0], (num,), 0, 4)] + 0.5 * normal(keys[1], num)
        return x, jax.random.exponential(keys[2], (num, dim)) @ mixing.T

    return {
        "shift": (shifted, 0.09),
        "Gaussians": (gaussians, gaussian_value(shift, spread)),
        "mixture": (clouds, None),
    }


def many_points(sampler: Callable, dim: int, num: int = 40_000, repeats: int = 6) -> float:
    """The population's value from large clouds, debiased by halves."""
    values = []
    for seed in range(repeats):
        x, y = (np.asarray(c) for c in sampler(jax.random.key(1000 + seed), num))
        slices = {"seed": seed, "num_slices": max(4 * dim, 240), "confidence": None}
        whole = float(sliced_wasserstein(x, y, **slices))
        half = num // 2
        halves = [float(sliced_wasserstein(x[s], y[s], **slices)) for s in (slice(half), slice(half, None))]
        values.append(2 * whole - np.mean(halves))
    return float(np.mean(values))


def summary(found, truth: float) -> dict[str, float]:
    value, low, high = (np.asarray(v, np.float64) for v in found[:3])
    return {
        "truth": truth,
        "bias": float(value.mean() / truth - 1),
        "error": float(np.sqrt(np.mean((value / truth - 1) ** 2))),
        "covers": float(np.mean((low <= truth) & (truth <= high))),
        "half": float(np.mean(high - low) / 2 / truth),
    }


def sample_runs(sampler: Callable, num_runs: int, **options) -> dict[str, float]:
    x, y = (np.asarray(c) for c in sampler(jax.random.key(5), NUM_POINTS))
    truth = float(sliced_wasserstein(x, y, key=99, num_slices=100_000, confidence=None))
    if options:  # the control variate is a compiled program: map it
        one = partial(sliced_wasserstein, num_slices=NUM_SLICES, **options)
        run = jax.jit(lambda x, y, keys: jax.lax.map(lambda key: one(x, y, key=key), keys))
        return summary(run(x, y, jax.random.split(jax.random.key(7), num_runs)), truth)
    found = [sliced_wasserstein(x, y, key=k, num_slices=NUM_SLICES)[:3] for k in range(num_runs)]
    return summary(list(zip(*found, strict=True)), truth)


def population_runs(sampler: Callable, truth: float, num_runs: int, **options) -> dict[str, float]:
    def one(key):
        points, slices = jax.random.split(key)
        x, y = sampler(points, NUM_POINTS)
        return sliced_wasserstein(x, y, key=slices, num_slices=NUM_SLICES, target="population", **options)

    run = jax.jit(lambda keys: jax.lax.map(one, keys))
    return summary(run(jax.random.split(jax.random.key(11), num_runs)), truth)


def closed_form(num_seeds: int = 5, dim: int = 30, num: int = 100_000) -> dict[str, list[float]]:
    """Relative errors against the closed form of Gaussians, plain and with the surrogate."""
    sampler, truth = laws(dim)["Gaussians"]
    assert truth is not None
    found: dict[str, list[float]] = {"plain": [], "surrogate": []}
    for seed in range(num_seeds):
        x, y = sampler(jax.random.key(seed), num)
        for name, variate in (("plain", False), ("surrogate", True)):
            value = float(sliced_wasserstein(x, y, key=seed, num_slices=NUM_SLICES, control_variate=variate))
            found[name].append(value / truth - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--dims", default="3,30,300")
    parser.add_argument("--laws", default="shift,Gaussians,mixture")
    parser.add_argument("--surrogate", action="store_true", help="also intervals with the control variate")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    table = ["| d | clouds | interval for | covers | half-width | error | bias |", "|---|---|---|---|---|---|---|"]
    for dim in map(int, options.dims.split(",")):
        for name, (sampler, truth) in laws(dim).items():
            if name not in options.laws.split(","):
                continue
            truth = many_points(sampler, dim) if truth is None else truth
            cases = {
                "sample": lambda sampler=sampler: sample_runs(sampler, options.runs),
                "sample, surrogate": lambda sampler=sampler: sample_runs(sampler, options.runs, control_variate=True),
                "population": lambda sampler=sampler, truth=truth: population_runs(sampler, truth, options.runs),
            }
            if not options.surrogate:  # its mean takes longer than all of the rest
                del cases["sample, surrogate"]
            for kind, call in cases.items():
                row = rows[f"d={dim} {name}, {kind}"] = call()
                table.append(
                    f"| {dim} | {name} | {kind} | {row['covers']:.1%} | {row['half']:.1%} | {row['error']:.1%} | "
                    f"{row['bias']:+.1%} |"
                )
                print(table[-1], flush=True)
    errors = closed_form()
    table += ["", "Closed form of Gaussians, d = 30, n = 100,000, L = 100, relative error of five seeds:", ""]
    table += [f"- {name}: " + ", ".join(f"{e:+.2%}" for e in found) for name, found in errors.items()]
    record = {"runs": options.runs, "points": NUM_POINTS, "slices": NUM_SLICES, "rows": rows, "closed form": errors}
    title = f"Coverage of 95% intervals over {options.runs} runs"
    write("coverage", title, table, record, ("jax", "jaxlib", "numpy"))


if __name__ == "__main__":
    main()
