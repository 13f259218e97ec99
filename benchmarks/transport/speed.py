"""Time of the sliced distance and its gradient against POT, OTT-JAX and one-liners: one process, one thread.

    PYTHONPATH=src python benchmarks/transport/speed.py [--repetitions 9] [--only c1,c2]

Needs POT and ott-jax; torch is used where it is installed. Every library gets the arrays as its own type and the same
projections, and every value is checked against ours. Calls take turns, so that a busy machine slows all of them alike;
times are medians of processor time.

`eager` is the documented call outside jit, with all its checks: `sliced_wasserstein(x, y, slices=...)` and
`sliced_gradient(x, y, slices=...)`. `jit` is the compiled `sliced_wasserstein` and `jax.value_and_grad` of it. The
one-liners are for equal, uniform clouds: project, sort, subtract, square, mean.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import NamedTuple

from report import single_thread, write

single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import ot  # noqa: E402
from ott.geometry import costs  # noqa: E402
from ott.tools import sliced  # noqa: E402

from awavo.transport import Linear, Polynomial, sliced_gradient, sliced_wasserstein  # noqa: E402

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
        Case("b100", cloud(256, 100, 4), cloud(256, 100, 4, shift=0.3), directions(32, 4)),
        Case("w2000", cloud(2000, 8), cloud(2000, 8, shift=0.3), directions(64, 8), (simplex(2000), simplex(2000))),
        Case("small", cloud(256, 3), cloud(256, 3, shift=0.3), directions(50, 3)),
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
        found = sliced_wasserstein(x, y, slices=slices, x_weights=x_weights, y_weights=y_weights, defining=defining)
        return found.value

    return jax_calls(distance, case)


def eager(case: Case) -> tuple[Callable, Callable, float]:
    """The documented calls outside jit, on numpy's arrays."""
    a, b = case.weights or (None, None)
    defining = Polynomial() if case.cubic else Linear()

    def value():
        return sliced_wasserstein(case.x, case.y, a, b, slices=case.slices, defining=defining)

    def both():
        wrt = ("x", "x_weights") if case.weights else ("x",)
        return sliced_gradient(case.x, case.y, a, b, slices=case.slices, wrt=wrt, defining=defining)

    return value, both, float(np.mean(value().value))


def numpy_line(case: Case) -> tuple[Callable, None, float] | None:
    """Project, np.sort, subtract, with the slices as rows: the faster of both layouts."""
    if case.weights or case.x.shape != case.y.shape:
        return None
    table = np.array(list(combinations_with_replacement(range(case.x.shape[-1]), 3))).T if case.cubic else None

    def features(points):
        return points[:, table[0]] * points[:, table[1]] * points[:, table[2]] if table is not None else points

    def value():
        x, y = (features(cloud).swapaxes(-1, -2) for cloud in (case.x, case.y))
        return ((np.sort(case.slices @ x) - np.sort(case.slices @ y)) ** 2).mean((-1, -2))

    return value, None, float(np.mean(value()))


def torch_line(case: Case) -> tuple[Callable, Callable, float] | None:
    """The same in torch, whose gradient comes with it."""
    if torch is None or case.weights or case.cubic or case.x.shape != case.y.shape:
        return None
    y, slices = torch.tensor(case.y), torch.tensor(case.slices)

    def distance(x):
        gap = torch.sort(slices @ x.mT)[0] - torch.sort(slices @ y.mT)[0]
        return (gap**2).mean((-1, -2))

    def value():
        with torch.no_grad():
            return distance(torch.tensor(case.x))

    def both():
        x = torch.tensor(case.x, requires_grad=True)
        distance(x).sum().backward()
        return x.grad

    return value, both, float(value().mean())


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


NAMES = {
    "eager": eager,
    "jit": ours,
    "OTT": ott,
    "POT numpy": pot_numpy,
    "POT torch": pot_torch,
    "numpy line": numpy_line,
    "torch line": torch_line,
}
OURS, LIBRARIES = ("eager", "jit"), ("OTT", "POT numpy", "POT torch")


def take_turns(calls: dict[str, Callable], repetitions: int) -> dict[str, float]:
    """Median processor ms of each call, one after the other in every round, after two rounds to warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repetitions + 2):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn > 1:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def measure(case: Case, repetitions: int) -> dict[str, dict[str, float]]:
    built = {name: calls for name, build in NAMES.items() if (calls := build(case)) is not None}
    expected = built["eager"][2]
    for name, calls in built.items():
        if abs(calls[2] - expected) > 1e-3 * expected:
            raise SystemExit(f"{case.name}: {name} gives {calls[2]}, ours {expected}")
    forward = take_turns({name: calls[0] for name, calls in built.items()}, repetitions)
    both = take_turns({name: calls[1] for name, calls in built.items() if calls[1] is not None}, repetitions)
    rows = {name: {"forward": forward[name]} for name in forward}
    for name, value in both.items():
        rows[name]["gradient"] = value
    ratio = {}
    for kind, found in (("forward", forward), ("gradient", both)):
        best = min(found[name] for name in OURS if name in found)
        for label, others in (("library", LIBRARIES), ("numpy line", ("numpy line",)), ("torch line", ("torch line",))):
            known = [found[name] for name in others if name in found]
            if known:
                ratio[f"{kind} / {label}"] = min(known) / best
    return rows | {"ratio": ratio}


def eager_call_ms(repetitions: int = 50) -> dict[str, float]:
    """The documented call with a new key at n = 32, in wall ms: the least and the median."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 32, 4)).astype(np.float32)
    times = []
    for seed in range(repetitions):
        key = jax.random.key(seed)
        start = time.perf_counter()
        sliced_wasserstein(x, y, key=key)
        times.append(1e3 * (time.perf_counter() - start))
    return {"least": min(times), "median": statistics.median(times[2:])}


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
    table = ["Processor ms, forward / forward+gradient. Ratios: theirs over the better of ours.", ""]
    table += ["| case | " + " | ".join(NAMES) + " | best library | numpy line | torch line |"]
    table.append("|---" * (len(NAMES) + 4) + "|")
    for case, rows in results.items():
        cells = []
        for name in NAMES:
            row = rows.get(name, {})
            cells.append(" / ".join(f"{row[k]:.2f}" if k in row else "-" for k in ("forward", "gradient")))
        for label in ("library", "numpy line", "torch line"):
            found = [rows["ratio"].get(f"{kind} / {label}") for kind in ("forward", "gradient")]
            cells.append(" / ".join("-" if r is None else f"{r:.1f}x" for r in found))
        table.append(f"| {case} | " + " | ".join(cells) + " |")
    call = eager_call_ms()
    table += [
        "",
        f"Documented call at n = 32 with a new key: {call['least']:.2f} ms at best, median {call['median']:.2f}.",
    ]
    packages = ("jax", "jaxlib", "numpy", "POT", "ott-jax", "torch")
    write("speed", "Speed against POT, OTT-JAX and one-liners", table, {"cases": results, "eager call": call}, packages)


if __name__ == "__main__":
    main()
