"""Time of the sliced distance and its gradient against POT and OTT-JAX: same process, same projections, one thread.

    PYTHONPATH=src taskset -c 1 python benchmarks/transport/speed.py [--repetitions 9] [--only c1,c2]

Needs POT and ott-jax; torch is used where it is installed. Every library gets the arrays as its own type, and every
value is checked against ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import NamedTuple

from report import cpu_ms, single_thread, write

single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import ot  # noqa: E402
from ott.geometry import costs  # noqa: E402
from ott.tools import sliced  # noqa: E402

from awavo.transport import Linear, Polynomial, sliced_wasserstein  # noqa: E402

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None


class Case(NamedTuple):
    """One problem: clouds, slices, weights, and whether it is cubic or a batch."""

    name: str
    x: np.ndarray
    y: np.ndarray
    slices: np.ndarray
    weights: tuple[np.ndarray, np.ndarray] | None = None
    cubic: bool = False

    @property
    def batched(self) -> bool:
        """Whether there is a leading axis of problems."""
        return self.x.ndim == 3


def make_cases() -> list[Case]:
    rng = np.random.default_rng(0)

    def cloud(*shape: int, shift: float = 0.0) -> np.ndarray:
        return (rng.standard_normal(shape) + shift).astype(np.float32)

    def directions(num: int, dim: int) -> np.ndarray:
        rows = rng.standard_normal((num, dim))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def simplex(num: int) -> np.ndarray:
        weights = rng.random(num)
        return (weights / weights.sum()).astype(np.float32)

    return [
        Case("c1", cloud(1000, 20), cloud(1000, 20, shift=0.3), directions(100, 20)),
        Case("c2", cloud(10000, 20), cloud(10000, 20, shift=0.3), directions(100, 20)),
        Case("c3w", cloud(1000, 20), cloud(700, 20, shift=0.3), directions(100, 20), (simplex(1000), simplex(700))),
        Case("c3u", cloud(1000, 20), cloud(700, 20, shift=0.3), directions(100, 20)),
        Case("c4", cloud(128, 32, 4), cloud(128, 32, 4, shift=0.3), directions(16, 4)),
        Case("c5", cloud(1000, 10), cloud(1000, 10, shift=0.3), directions(100, 220), cubic=True),
        Case("batched", cloud(512, 64, 4), cloud(512, 64, 4, shift=0.3), directions(16, 4)),
    ]


def jax_calls(distance: Callable, case: Case) -> tuple[Callable, Callable, float]:
    """Compiled forward and forward+gradient calls of a JAX distance; arrays are arguments, never constants."""
    arrays = [jnp.asarray(a) for a in (case.x, case.y, case.slices, *(case.weights or ()))]
    argnums = (0, 3) if case.weights else (0,)
    value, both = distance, jax.value_and_grad(distance, argnums)
    if case.batched:
        axes = (0, 0, None)
        value, both = jax.vmap(value, axes), jax.vmap(both, axes)
    value, both = jax.jit(value), jax.jit(both)
    result = float(jnp.mean(value(*arrays)))
    return lambda: jax.block_until_ready(value(*arrays)), lambda: jax.block_until_ready(both(*arrays)), result


def ours(case: Case) -> tuple[Callable, Callable, float]:
    defining = Polynomial() if case.cubic else Linear()

    def distance(x, y, slices, x_weights=None, y_weights=None):
        return sliced_wasserstein(x, y, slices=slices, x_weights=x_weights, y_weights=y_weights, defining=defining)

    return jax_calls(distance, case)


def ott(case: Case) -> tuple[Callable, Callable, float]:
    def project(points, slices):
        points = Polynomial().features(points) if case.cubic else points
        return points @ slices.T

    def distance(x, y, slices, a=None, b=None):
        return sliced.sliced_wasserstein(x, y, a, b, cost_fn=costs.SqEuclidean(), proj_fn=project, slices=slices)[0]

    return jax_calls(distance, case)


def pot_numpy(case: Case) -> tuple[Callable, None, float] | None:
    if case.batched or case.cubic:
        return None
    a, b = case.weights or (None, None)

    def value():
        return ot.sliced_wasserstein_distance(case.x, case.y, a, b, projections=case.slices.T, p=2)

    return value, None, float(value()) ** 2


def pot_torch(case: Case) -> tuple[Callable, Callable, float] | None:
    if torch is None:
        return None
    y, slices = torch.tensor(case.y), torch.tensor(case.slices.T)
    a, b = (torch.tensor(w) for w in case.weights) if case.weights else (None, None)
    table = torch.tensor(list(combinations_with_replacement(range(case.x.shape[-1]), 3))) if case.cubic else None

    def features(points):
        return points[:, table].prod(-1) if case.cubic else points

    def distance(x, a):
        if case.batched:  # POT has no batches: fold them into the columns of its 1-D solver
            columns = [torch.einsum("bnd,dl->nbl", cloud, slices).reshape(cloud.shape[1], -1) for cloud in (x, y)]
            return ot.wasserstein_1d(*columns, p=2).reshape(len(x), -1).mean(1)
        return ot.sliced_wasserstein_distance(features(x), features(y), a, b, projections=slices, p=2) ** 2

    def value():
        with torch.no_grad():
            return distance(torch.tensor(case.x), a)

    def both():
        x = torch.tensor(case.x, requires_grad=True)
        weights = None if a is None else a.clone().requires_grad_(True)
        distance(x, weights).sum().backward()
        return x.grad

    return value, both, float(value().mean())


def measure(case: Case, repetitions: int) -> dict[str, dict[str, float]]:
    rows, expected = {}, None
    for name, build in (("ours", ours), ("OTT", ott), ("POT numpy", pot_numpy), ("POT torch", pot_torch)):
        built = build(case)
        if built is None:
            continue
        value, both, result = built
        expected = result if expected is None else expected
        if abs(result - expected) > 1e-3 * expected:
            raise SystemExit(f"{case.name}: {name} gives {result}, ours {expected}")
        rows[name] = {"forward": cpu_ms(value, repetitions)}
        if both is not None:
            rows[name]["gradient"] = cpu_ms(both, repetitions)
    best = {
        kind: min(r[kind] for n, r in rows.items() if n != "ours" and kind in r) for kind in ("forward", "gradient")
    }
    rows["ratio"] = {kind: best[kind] / rows["ours"][kind] for kind in best}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [case for case in make_cases() if not options.only or case.name in options.only.split(",")]
    if torch is None:
        print("torch is not installed: the POT torch column is skipped.")
    results = {}
    for case in chosen:
        results[case.name] = measure(case, options.repetitions)
        print(case.name, {k: {i: round(j, 2) for i, j in v.items()} for k, v in results[case.name].items()}, flush=True)
    names = ["ours", "OTT", "POT numpy", "POT torch"]
    table = ["Processor ms, forward / forward+gradient; ratio = best other over ours.", ""]
    table += ["| case | " + " | ".join(names) + " | ratio |", "|---" * (len(names) + 2) + "|"]
    for case, rows in results.items():
        cells = []
        for name in [*names, "ratio"]:
            row = rows.get(name, {})
            cells.append(" / ".join(f"{row[k]:.1f}" if k in row else "-" for k in ("forward", "gradient")))
        table.append(f"| {case} | " + " | ".join(cells) + " |")
    packages = ("jax", "jaxlib", "numpy", "POT", "ott-jax", "torch")
    write("speed", "Speed against POT and OTT-JAX", table, {"cases": results}, packages)


if __name__ == "__main__":
    main()
