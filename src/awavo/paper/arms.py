"""What the experiments about inference share: the time of a call, and exact and sliced distances between clouds."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import numpy as np

__all__ = ["exact_w2", "milliseconds", "sliced_w2"]


def milliseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """The median time of a call that was compiled before."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(1e3 * (time.perf_counter() - began))
    return float(np.median(taken))


def exact_w2(x: np.ndarray, y: np.ndarray, y_weights: np.ndarray) -> float:
    """W2 between points of equal weight and weighted ones, by a linear program."""
    from scipy.optimize import linprog
    from scipy.sparse import identity, kron, vstack

    cost = np.sum((x[:, None].astype(float) - y[None].astype(float)) ** 2, -1)
    rows, columns = cost.shape
    mass = np.asarray(y_weights, float) / np.sum(y_weights, dtype=float)
    sums = vstack([kron(identity(rows), np.ones((1, columns))), kron(np.ones((1, rows)), identity(columns))])
    # One equation follows from the others; rounding must not make it contradict them.
    equations, right = sums.tocsr()[:-1], np.concatenate([np.full(rows, 1.0 / rows), mass])[:-1]
    found = linprog(cost.ravel(), A_eq=equations, b_eq=right, bounds=(0, None), method="highs")
    if not found.success:
        raise RuntimeError(f"the linear program of an exact W2 has no solution: {found.message}")
    return float(np.sqrt(max(found.fun, 0.0)))


def sliced_w2(x: np.ndarray, y: np.ndarray, num_slices: int = 32) -> float:
    """Sliced W2 in the plane, over evenly spread directions; y has a multiple of as many points as x."""
    angles = np.pi * (np.arange(num_slices) + 0.5) / num_slices
    slices = np.stack([np.cos(angles), np.sin(angles)])
    near = np.repeat(np.sort(x @ slices, 0), len(y) // len(x), 0)
    return float(np.sqrt(np.mean((near - np.sort(y @ slices, 0)) ** 2)))
