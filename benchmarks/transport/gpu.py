"""Time of forward+gradient on an accelerator against the device's own sort of the same keys.

    PYTHONPATH=src python benchmarks/transport/gpu.py [--repetitions 20]

Needs jax and numpy only (and jaxtyping), and runs on a CPU too with --small. The floor of a distance is two integer-key
sorts of its projections, one for each cloud. All arrays are arguments of the compiled functions.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from report import write

from awavo.transport import sliced_wasserstein
from awavo.transport.sorting import sort_pairs, sort_values


def wall_ms(function, arguments: tuple, repetitions: int) -> float:
    """Median wall time of a compiled call in milliseconds."""
    for _ in range(3):
        jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def distance(x, y, slices):
    return sliced_wasserstein(x, y, slices=slices).value


def plain_distance(x, y, slices):
    """The textbook version: sort both projections with jnp.sort, average the squares."""
    return jnp.mean((jnp.sort(slices @ x.T) - jnp.sort(slices @ y.T)) ** 2)


def measure(batch: int, num: int, dim: int, num_slices: int, repetitions: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    shape = (batch, num, dim) if batch > 1 else (num, dim)
    x, y = (jnp.asarray(rng.standard_normal(shape, np.float32)) for _ in range(2))
    slices = rng.standard_normal((num_slices, dim))
    slices = jnp.asarray(slices / np.linalg.norm(slices, axis=1, keepdims=True), jnp.float32)
    keys = jax.random.randint(jax.random.key(0), (batch * num_slices, num), -(2**30), 2**30, jnp.int32)
    floats = jax.random.normal(jax.random.key(1), keys.shape)

    def over_batch(function):
        return jax.jit(jax.vmap(function, (0, 0, None)) if batch > 1 else function)

    cases = {
        "integer-key sort": (jax.jit(lambda k: lax.sort(k, is_stable=False)), (keys,)),
        "jnp.sort": (jax.jit(jnp.sort), (floats,)),
        "jnp.argsort": (jax.jit(jnp.argsort), (floats,)),
        "sort_values": (jax.jit(sort_values), (floats,)),
        "sort_pairs": (jax.jit(sort_pairs), (floats,)),
        "forward": (over_batch(distance), (x, y, slices)),
        "forward+gradient in x": (over_batch(jax.value_and_grad(distance)), (x, y, slices)),
        "forward+gradient in x and y": (over_batch(jax.value_and_grad(distance, (0, 1))), (x, y, slices)),
        "plain forward+gradient in x": (over_batch(jax.value_and_grad(plain_distance)), (x, y, slices)),
    }
    result = {}
    for name, (function, arguments) in cases.items():
        try:
            result[name] = wall_ms(function, arguments, repetitions)
        except Exception as error:
            print(f"{name} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        print(f"  {name}: {result[name]:.3f} ms", flush=True)
    ours, plain = over_batch(distance)(x, y, slices), over_batch(plain_distance)(x, y, slices)
    result["largest relative difference to plain"] = float(jnp.max(jnp.abs(ours - plain) / plain))
    result["ratio to two integer-key sorts"] = result["forward+gradient in x"] / (2 * result["integer-key sort"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="sizes for a try on a CPU; nothing is written")
    options = parser.parse_args()
    sizes = {
        "n = 100,000, d = 20, L = 512": (1, 100_000, 20, 512),
        "n = 1,000, d = 20, L = 100": (1, 1000, 20, 100),
        "4096 problems of n = 64, d = 4, L = 16": (4096, 64, 4, 16),
    }
    if options.small:
        sizes = {"n = 3,000": (1, 3000, 20, 64), "64 problems of n = 64": (64, 64, 4, 16)}
    results = {}
    for name, size in sizes.items():
        print(name, flush=True)
        results[name] = measure(*size, options.repetitions)
    if options.small:
        return
    kinds = list(next(iter(results.values())))
    table = ["Median wall ms.", "", "| | " + " | ".join(results) + " |", "|---" * (len(results) + 1) + "|"]
    for kind in kinds:
        table.append(
            f"| {kind} | " + " | ".join(f"{r[kind]:.3g}" if kind in r else "-" for r in results.values()) + " |"
        )
    device = jax.devices()[0]
    where = f"{device.device_kind} ({device.platform})"
    write("gpu", "Accelerator", table, {"cases": results}, ("jax", "jaxlib", "numpy"), where=where)


if __name__ == "__main__":
    main()
