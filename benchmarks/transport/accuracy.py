"""Error of the slice average by sampling of the slices, and how often its stated interval holds the truth.

    PYTHONPATH=src taskset -c 1 python benchmarks/transport/accuracy.py [--runs 2000]

Clouds: a mixture of four Gaussians against a correlated exponential distribution, 500 points each. Slice-equivalents:
how many times fewer slices than plain Monte Carlo reach the same error.
"""

from __future__ import annotations

import argparse

from report import single_thread, write

single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from awavo.transport import draw_slices, max_sliced_wasserstein, root, sliced_wasserstein, wasserstein_1d  # noqa: E402

METHODS = {
    "iid": {"sampling": "iid"},
    "orthogonal": {"sampling": "orthogonal"},
    "orthogonal + surrogate": {"sampling": "orthogonal", "control_variate": True},
    "spiral": {"sampling": "spiral"},
    "spiral + surrogate": {"sampling": "spiral", "control_variate": True},
}


def clouds(dim: int, num: int = 500) -> tuple[jax.Array, jax.Array]:
    """Four modes against correlated exponentials."""
    rng = np.random.default_rng(dim)
    centres = 2.0 * rng.standard_normal((4, dim))
    x = centres[rng.integers(4, size=num)] + 0.5 * rng.standard_normal((num, dim))
    mixing = rng.standard_normal((dim, dim)) / np.sqrt(dim)
    y = rng.exponential(size=(num, dim)) @ mixing.T
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def reference(x: jax.Array, y: jax.Array, num: int = 100_000) -> float:
    """The value from many orthogonal slices, or lattices in three dimensions."""
    estimate = sliced_wasserstein(x, y, key=jax.random.key(99), num_slices=num, chunk=500)
    return float(estimate.value)


def runs_of(x: jax.Array, y: jax.Array, num_runs: int, confidence: float | None = 0.95, **options):
    """Estimates of independent runs with 100 slices, as arrays over runs."""

    def one(key):
        return sliced_wasserstein(x, y, key=key, num_slices=100, confidence=confidence, **options)

    run = jax.jit(lambda x, y, keys: jax.lax.map(one, keys))
    return run(x, y, jax.random.split(jax.random.key(7), num_runs))


def gaussian_error(dim: int, sampling: str, num_slices: int, num_runs: int = 300) -> float:
    """Relative error over N(0, I) against a shifted N(m, S), whose slices have a closed form."""
    rng = np.random.default_rng(dim)
    spread = jnp.asarray(np.exp(rng.uniform(np.log(0.1), np.log(4), dim)))
    shift = jnp.asarray(rng.standard_normal(dim)) / np.sqrt(dim)

    def mean(key, sampling, num):
        slices, _ = draw_slices(key, num, dim, sampling=sampling)
        return jnp.mean((slices @ shift) ** 2 + (1 - jnp.sqrt((slices**2) @ spread)) ** 2)

    keys = jax.random.split(jax.random.key(3), num_runs)
    truth = np.mean([mean(key, None, 30_000) for key in jax.random.split(jax.random.key(4), 20)])
    values = jax.jit(lambda keys: jax.lax.map(lambda key: mean(key, sampling, num_slices), keys))(keys)
    return float(np.sqrt(np.mean((np.asarray(values) / truth - 1) ** 2)))


def max_slice() -> dict[str, float]:
    """Max-SW of N(0, I) against a shift of length 3 and against a covariance, beside the best slice known."""
    found = {}
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 20))
    shift = np.zeros(20)
    shift[0] = 3.0
    stretch = np.ones(20)
    stretch[0] = 3.1
    for name, y in (
        ("shift", rng.standard_normal((1000, 20)) + shift),
        ("covariance", rng.standard_normal((1000, 20)) * stretch),
    ):
        x32, y32 = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
        found[name] = float(root(max_sliced_wasserstein(x32, y32, key=jax.random.key(0)).value, 2))
        found[f"{name}, slice of the construction"] = float(root(wasserstein_1d(x32[:, 0], y32[:, 0]), 2))
        many = max_sliced_wasserstein(x32, y32, key=jax.random.key(1), num_starts=200, num_steps=300)
        found[f"{name}, 200 starts x 300 steps"] = float(root(many.value, 2))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    num_runs = parser.parse_args().runs
    record, table = {}, ["## Clouds, L = 100", ""]
    table += [
        "| d | method | relative error | slice-equivalents | 95% interval covers | half-width |",
        "|---|---|---|---|---|---|",
    ]
    for dim in (3, 20, 50):
        x, y = clouds(dim)
        truth, plain = reference(x, y), None
        for name, options in METHODS.items():
            if ("spiral" in name) != (dim == 3) and name != "iid":
                continue
            out = runs_of(x, y, num_runs, **options)
            value, low, high = (np.asarray(a) for a in (out.value, out.low, out.high))
            error = float(np.sqrt(np.mean((value / truth - 1) ** 2)))
            plain = error if plain is None else plain
            covers = float(np.mean((low <= truth) & (truth <= high)))
            width = float(np.mean(high - low) / 2 / truth)
            record[f"d={dim} {name}"] = {
                "error": error,
                "equivalents": (plain / error) ** 2,
                "covers": covers,
                "half": width,
            }
            table.append(f"| {dim} | {name} | {error:.2e} | {(plain / error) ** 2:.0f} | {covers:.1%} | {width:.1%} |")
            print(table[-1], flush=True)
    table += [
        "",
        "## Gaussians N(0, I) against N(m, S), relative error",
        "",
        "| d | L | iid | orthogonal | spiral |",
        "|---|---|---|---|---|",
    ]
    for dim, num in ((3, 100), (3, 1000), (20, 100), (20, 1000), (50, 100), (50, 1000)):
        samplings = ("iid", "orthogonal", "spiral") if dim == 3 else ("iid", "orthogonal")
        errors = {sampling: gaussian_error(dim, sampling, num) for sampling in samplings}
        record[f"gaussian d={dim} L={num}"] = errors
        table.append(
            f"| {dim} | {num} | "
            + " | ".join(
                f"{errors[sampling]:.1e}" if sampling in errors else "-" for sampling in METHODS if "+" not in sampling
            )
            + " |"
        )
    record["max"] = max_slice()
    table += ["", "## Max-SW, d = 20, n = 1000, 8 starts of 30 power steps", ""]
    table += [f"- {name}: {value:.4f}" for name, value in record["max"].items()]
    write("accuracy", f"Accuracy and coverage over {num_runs} runs", table, record, ("jax", "jaxlib", "numpy"))


if __name__ == "__main__":
    main()
