"""Compression: K weighted candidates in three uneven clusters into P particles of equal weight.

The scene of every draw: three centres, `APART` from each other on average, candidates `SPREAD` around them in every
direction, weights drawn exponentially and scaled to the clusters' shares. The two lengths were chosen so that
resampling has the error that the pilot of this experiment reported for it, before any other arm was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.inference.cells import compress
from awavo.inference.wvi import move_particles, resample
from awavo.paper.arms import exact_w2, milliseconds
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.transport.ascent import ascend_slices
from awavo.transport.defining import Defining, Linear, LinearForms

__all__ = ["ARMS", "left_between", "run_compression", "scene", "two_modes"]

NUM_CANDIDATES, NUM_SLICES = 250, 8
SPREAD, APART, SHARES = 0.28, 5.8, (0.55, 0.30, 0.15)
Arm = Callable[[Array, Array, Array, int], Array]


def scene(seed: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates `[K, D]` and their weights."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, dim))
    centres *= APART / np.sqrt(2) / np.linalg.norm(centres, axis=1, keepdims=True)
    labels = rng.integers(0, 3, NUM_CANDIDATES)
    points = centres[labels] + SPREAD * rng.normal(size=(NUM_CANDIDATES, dim))
    weights = rng.exponential(size=NUM_CANDIDATES)
    for label, share in enumerate(SHARES):
        weights[labels == label] *= share / max(weights[labels == label].sum(), 1e-12)
    return points.astype(np.float32), (weights / weights.sum()).astype(np.float32)


def two_modes(seed: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidates around +-2 on a random axis, equal weights, and the axis."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=dim)
    axis /= np.linalg.norm(axis)
    sides = rng.choice([-2.0, 2.0], NUM_CANDIDATES)
    points = sides[:, None] * axis + SPREAD * rng.normal(size=(NUM_CANDIDATES, dim))
    return points.astype(np.float32), np.full(NUM_CANDIDATES, 1 / NUM_CANDIDATES, np.float32), axis


def left_between(particles: np.ndarray, axis: np.ndarray) -> float:
    """Share of the particles between the modes of `two_modes`."""
    return float(np.mean(np.abs(particles @ axis) < 1.0))


def outcome(points: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
    """The non-linear function whose mean the particles are asked for, as a return would be."""
    return np.tanh(2 * points[:, 0]) + np.sin(2 * points.sum(1) / np.sqrt(points.shape[1]))


def _resampling(key: Array, points: Array, weights: Array, num: int) -> Array:
    return points[resample(key, weights, num)]


def _gradient(num_ascents: int, num_steps: int) -> Arm:
    """From resampled candidates down the sliced distance."""

    def arm(key: Array, points: Array, weights: Array, num: int) -> Array:
        start, slices = _resampling(key, points, weights, num), _slices(key, points.shape[1], Linear())
        if num_ascents:
            slices = ascend_slices(start, points, slices, y_weights=weights, num_steps=num_ascents, step=0.3)
        return move_particles(start, points, weights, slices, defining=Linear(), num_steps=num_steps)[0]

    return arm


def _cells(num_steps: int, defining: Defining) -> Arm:
    def arm(key: Array, points: Array, weights: Array, num: int) -> Array:
        slices = _slices(key, points.shape[1], defining)
        return compress(points, weights, slices, num, defining=defining, num_steps=num_steps)[0]

    return arm


def _slices(key: Array, dim: int, defining: Defining) -> Array:
    return jax.random.normal(jax.random.fold_in(key, 1), (NUM_SLICES, defining.num_coefficients(dim)))


ARMS: dict[str, Arm] = {
    "resampling": _resampling,
    "random slices, descended": _gradient(0, 4),
    "ascended slices, descended": _gradient(3, 4),
    "random slices, cells": _cells(0, Linear()),
    "ascended slices, cells": _cells(2, Linear()),
    "ascended, degree 3, cells": _cells(2, LinearForms(num_forms=4, degree=3)),
}


def run_compression(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Of each seed, over `draws` scenes: exact W2, squared error of a mean, particles left between two modes, time."""
    name, dim, num = settings["arm"], settings["dim"], settings["particles"]
    arm = jax.jit(ARMS[name], static_argnums=3)
    scores: dict[str, list[float]] = {measure: [] for measure in ("w2", "error", "between", "ms")}
    for seed in seeds:
        distances, errors, between = [], [], []
        for draw in range(settings["draws"]):
            number = 1000 * seed + draw
            points, weights = scene(number, dim)
            found = np.asarray(arm(jax.random.key(number), jnp.asarray(points), jnp.asarray(weights), num))
            distances.append(exact_w2(found, points, weights))
            errors.append(float(np.mean(outcome(found)) - weights @ outcome(points)) ** 2)
            points, weights, axis = two_modes(number, dim)
            found = np.asarray(arm(jax.random.key(number), jnp.asarray(points), jnp.asarray(weights), num))
            between.append(left_between(found, axis))
        points, weights = scene(1000 * seed, dim)
        inputs = (jax.random.key(seed), jnp.asarray(points), jnp.asarray(weights), num)
        scores["w2"].append(float(np.mean(distances)))
        scores["error"].append(float(np.sqrt(np.mean(errors))))
        scores["between"].append(float(np.mean(between)))
        scores["ms"].append(milliseconds(lambda inputs=inputs: arm(*inputs)))
    on_progress(f"{name}, D = {dim}, P = {num}: W2 {np.mean(scores['w2']):.3f}, error {np.mean(scores['error']):.3f}")
    return {"arm": name, "setting": f"D = {dim}, P = {num}", "seed_numbers": list(seeds), **scores}
