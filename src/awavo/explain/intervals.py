r"""Intervals of a measure: the candidates are a sample, and the force itself is uncertain.

Outer: forces :math:`f_b \sim \mathcal N(\hat f, \Sigma_f)` in mirrored pairs, each with the posterior it would have
given. Inner: Poisson counts :math:`n_k` on the candidates (bootstrap), which turn :math:`\pi(\tau_k)` into
:math:`n_k \pi(\tau_k) / \sum_j n_j \pi(\tau_j)`. Quantiles over both give a raw band. It is then stretched by
constants (downwards and upwards, for small and for large values of each measure) from split-conformal calibration on
simulated flights whose force is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.measures import influences, num_factors, without

__all__ = [
    "Band", "LEVEL", "MeasureScale", "PROBABILITY", "Stretch", "alive", "calibrate", "calibrated_band",
    "conformal_stretch", "nested_draws", "quantile_band", "resampled_influences", "resampled_necessity", "reweigh",
    "stretch_band", "with_value",
]  # fmt: skip

LEVEL = 0.9
# P(n <= k) of a Poisson count with mean 1, k = 0, 1, ...: beyond, one in ten million.
POISSON = np.cumsum([exp(-1.0) / factorial(k) for k in range(10)]).astype(np.float32)


class MeasureScale(NamedTuple):
    """What is small, in the unit of a measure.

    `floor` is added to a band's half-widths before they are compared: a band of no width can still be off by rounding.
    `edge` parts small values from large ones (0: they are calibrated together), below `nothing` there is nothing to
    judge, `top` is the largest value.
    """

    floor: float
    edge: float
    nothing: float
    top: float = float("inf")


PROBABILITY = MeasureScale(floor=0.01, edge=0.1, nothing=0.005, top=1.0)


class Band(NamedTuple):
    """A value and its interval; arrays of any shape."""

    value: Array | np.ndarray
    low: Array | np.ndarray
    high: Array | np.ndarray


class Stretch(NamedTuple):
    """How many half-widths an interval is moved out, downwards and upwards; 0 and 0 leave it as it is."""

    low: float
    high: float


def reweigh(counts: Float[Array, "R K"], weights: Float[Array, "S K"]) -> Float[Array, "R S K"]:
    """Return the posteriors of resampled pools, in which candidate k stands as often as its count says."""
    drawn = counts[:, None] * weights
    return drawn / jnp.maximum(jnp.sum(drawn, -1, keepdims=True), 1e-30)


def resampled_influences(counts: Float[Array, "R K"], weights: Float[Array, "S K"]) -> Float[Array, "R M"]:
    """Return the influences that resampled pools show."""
    return jax.vmap(influences)(reweigh(counts, weights))


def resampled_necessity(
    counts: Float[Array, "R K"], weights: Float[Array, "S K"], place: Array | int
) -> Float[Array, "R M"]:
    """Return how necessary each factor was for candidate `place`, with the others resampled around it."""
    # The candidate's own count stands in both posteriors and cancels.
    own = weights[:, place] / jnp.maximum(counts @ weights.T, 1e-30)
    num = num_factors(weights.shape[0])
    less = jnp.stack([own[:, without(num, i)] for i in range(num)], 1)
    return jnp.maximum(0.0, 1.0 - less / jnp.maximum(own[:, -1:], 1e-37))


def _poisson(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Counts with mean 1, by their distribution function: jax's own sampler is slower by far, and slow to compile."""
    return jnp.sum(jax.random.uniform(key, shape, dtype)[..., None] > POISSON, -1).astype(dtype)


def nested_draws(
    key: Array, weights: Float[Array, "B S K"], num: int, measure: Callable[[Array, Array], Array]
) -> Float[Array, " R *n"]:
    """Return `measure(counts, weights)` for each of B sets of posteriors: as they are, then of `num` resamples.

    With num = 0 there is one draw of each set: the first as it is, every other resampled once.
    """
    count, size = weights.shape[0], weights.shape[-1]
    if num == 0:
        counts = _poisson(key, (count, 1, size), weights.dtype).at[0].set(1.0)
    else:
        counts = _poisson(key, (count, num, size), weights.dtype)
        counts = jnp.concatenate([jnp.ones((count, 1, size), counts.dtype), counts], 1)
    drawn = jax.vmap(measure)(counts, weights)
    return drawn.reshape(-1, *drawn.shape[2:])


def quantile_band(value: Float[Array, "*n"], draws: Float[Array, " R *n"], level: float = LEVEL) -> Band:
    """Return the value with the quantiles of its draws, and those quantiles mirrored at the value.

    An influence is a length: uncertainty can only add to one that is nearly zero, and its draws lie above it. The
    mirror image (basic bootstrap) lets the band reach down to zero there.
    """
    tail = (1 - level) / 2
    low, high = jnp.quantile(draws, jnp.array([tail, 1 - tail]), axis=0)
    return Band(value, jnp.minimum(low, 2 * value - high), jnp.maximum(high, 2 * value - low))


def _half_widths(band: Band, floor: float) -> tuple[np.ndarray, np.ndarray]:
    value, low, high = (np.asarray(x, float) for x in band)
    return value - low + floor, high - value + floor


def conformal_stretch(
    band: Band, truth: Float[np.ndarray, "*n"], scale: MeasureScale = PROBABILITY, level: float = LEVEL
) -> Stretch:
    """Calibrate on cases with known truth: the same share of them is allowed to lie below as above."""
    below, above = _half_widths(band, scale.floor)
    truth = np.asarray(truth, float)
    low = (np.asarray(band.low) - truth) / below
    high = (truth - np.asarray(band.high)) / above
    count = low.size
    rank = min(1.0, np.ceil((count + 1) * (1 + level) / 2) / count)
    if count < 2 / (1 - level):
        raise InputError(f"{count} cases are too few to calibrate a level of {level}: give {2 / (1 - level):.0f}.")
    # Never narrower than the draws: in calm air, where the truth is 0, the lower bound is all that counts.
    return Stretch(*(max(0.0, float(np.quantile(x, rank, method="higher"))) for x in (low, high)))


def alive(band: Band, truth: Float[np.ndarray, "*n"], scale: MeasureScale = PROBABILITY) -> np.ndarray:
    """Say in which cases there is something to judge: where both sides are 0, every interval holds the truth."""
    return np.maximum(np.asarray(band.high), truth) > scale.nothing


def calibrate(
    band: Band, truth: Float[np.ndarray, "*n"], scale: MeasureScale = PROBABILITY, level: float = LEVEL
) -> list[Stretch]:
    """Calibrate small and large values apart (Mondrian), on the cases that have something to judge.

    With one stretch for all sizes, calm flights were over-covered and windy ones under-covered.
    """
    kept = alive(band, truth, scale)
    small = np.asarray(band.value) < scale.edge
    parts = (kept & small, kept & ~small) if scale.edge > 0 else (kept, kept)
    return [conformal_stretch(Band(*(np.asarray(x)[part] for x in band)), truth[part], scale, level) for part in parts]


def calibrated_band(band: Band, stretches: Sequence[Stretch], scale: MeasureScale = PROBABILITY) -> Band:
    """Stretch each band by the calibration of its size."""
    below, above = (stretch_band(band, stretch, scale) for stretch in stretches)
    small = np.asarray(band.value) < scale.edge
    return Band(band.value, np.where(small, below.low, above.low), np.where(small, below.high, above.high))


def stretch_band(band: Band, stretch: Stretch, scale: MeasureScale = PROBABILITY) -> Band:
    """Apply a calibration; the result stays within 0 and the scale's top."""
    below, above = _half_widths(band, scale.floor)
    low = np.clip(np.asarray(band.low) - stretch.low * below, 0.0, scale.top)
    high = np.clip(np.asarray(band.high) + stretch.high * above, 0.0, scale.top)
    return Band(band.value, np.minimum(low, high), np.maximum(low, high))


def with_value(band: Band) -> Band:
    """Widen bands that a stretch below 0 has moved past their own value, which is shown as 0 where it is below that."""
    value = np.maximum(np.asarray(band.value), 0.0)
    return Band(band.value, np.minimum(band.low, value), np.maximum(band.high, value))
