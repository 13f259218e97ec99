r"""Intervals of an influence: the candidates are a sample, and the force itself is uncertain.

Outer: forces :math:`f_b \sim \mathcal N(\hat f, \Sigma_f)` in mirrored pairs, each with the posterior it would have
given. Inner: Poisson counts :math:`n_k` on the candidates (bootstrap), which turn :math:`\pi(\tau_k)` into
:math:`n_k \pi(\tau_k) / \sum_j n_j \pi(\tau_j)`. Quantiles over both give a raw band. It is then stretched by
constants (downwards and upwards, for small and for large influences) from split-conformal calibration on simulated
flights whose force is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.explain.measures import influences, num_factors, without

__all__ = [
    "Band", "NOTHING", "Stretch", "bootstrap_influences", "calibrate", "calibrated_band", "conformal_stretch",
    "nested_influences", "quantile_band", "stretch_band",
]  # fmt: skip

LEVEL = 0.9
# Added to a band's half-widths before they are compared: a band of no width can still be off by rounding.
FLOOR = 0.01
EDGE, NOTHING = 0.1, 0.005


class Band(NamedTuple):
    """A value and its interval; arrays of any shape."""

    value: Any
    low: Any
    high: Any


class Stretch(NamedTuple):
    """How many half-widths an interval is moved out, downwards and upwards; 0 and 0 leave it as it is."""

    low: float
    high: float


def bootstrap_influences(key: Array, weights: Float[Array, "S K"], num: int) -> Float[Array, "R M"]:
    """Return the influences of `num` Poisson resamples of the pool."""
    counts = jax.random.poisson(key, 1.0, (num, weights.shape[-1])).astype(weights.dtype)
    drawn = counts[:, None] * weights
    drawn = drawn / jnp.maximum(jnp.sum(drawn, -1, keepdims=True), 1e-30)
    factors = num_factors(weights.shape[0])
    less = jnp.stack([drawn[:, without(factors, i)] for i in range(factors)], 1)
    return 0.5 * jnp.sum(jnp.abs(drawn[:, -1:] - less), -1)


def quantile_band(value: Float[Array, " M"], draws: Float[Array, "R M"], level: float = LEVEL) -> Band:
    """Return the value with the quantiles of its draws, and those quantiles mirrored at the value.

    An influence is a length: uncertainty can only add to one that is nearly zero, and its draws lie above it. The
    mirror image (basic bootstrap) lets the band reach down to zero there.
    """
    tail = (1 - level) / 2
    low, high = jnp.quantile(draws, jnp.array([tail, 1 - tail]), axis=0)
    return Band(value, jnp.minimum(low, 2 * value - high), jnp.maximum(high, 2 * value - low))


def _half_widths(band: Band) -> tuple[np.ndarray, np.ndarray]:
    value, low, high = (np.asarray(x, float) for x in band)
    return value - low + FLOOR, high - value + FLOOR


def conformal_stretch(band: Band, truth: Float[np.ndarray, "*n"], level: float = LEVEL) -> Stretch:
    """Calibrate on cases with known truth: the same share of them is allowed to lie below as above."""
    below, above = _half_widths(band)
    truth = np.asarray(truth, float)
    low = (np.asarray(band.low) - truth) / below
    high = (truth - np.asarray(band.high)) / above
    count = low.size
    rank = min(1.0, np.ceil((count + 1) * (1 + level) / 2) / count)
    if count < 2 / (1 - level):
        raise InputError(f"{count} cases are too few to calibrate a level of {level}: give {2 / (1 - level):.0f}.")
    return Stretch(*(float(np.quantile(x, rank, method="higher")) for x in (low, high)))


def calibrate(band: Band, truth: Float[np.ndarray, "*n"], edge: float = EDGE, level: float = LEVEL) -> list[Stretch]:
    """Calibrate small and large influences apart (Mondrian): with one stretch calm flights were over-covered.

    Cases in which neither band nor truth is above `NOTHING` are left out: they are 0 on both sides and always covered.
    """
    value = np.asarray(band.value)
    alive = np.maximum(np.asarray(band.high), truth) > NOTHING
    parts = (alive & (value < edge), alive & (value >= edge))
    return [conformal_stretch(Band(*(np.asarray(x)[part] for x in band)), truth[part], level) for part in parts]


def calibrated_band(band: Band, stretches: Sequence[Stretch], edge: float = EDGE) -> Band:
    """Stretch each band by the calibration of its size."""
    below, above = (stretch_band(band, stretch) for stretch in stretches)
    small = np.asarray(band.value) < edge
    return Band(band.value, np.where(small, below.low, above.low), np.where(small, below.high, above.high))


def stretch_band(band: Band, stretch: Stretch) -> Band:
    """Apply a calibration; the result stays within [0, 1]."""
    below, above = _half_widths(band)
    low = np.clip(np.asarray(band.low) - stretch.low * below, 0.0, 1.0)
    high = np.clip(np.asarray(band.high) + stretch.high * above, 0.0, 1.0)
    return Band(band.value, np.minimum(low, high), np.maximum(low, high))


def nested_influences(key: Array, weights: Float[Array, "B S K"], num: int) -> Float[Array, "R M"]:
    """Return influences over outer draws (one set of posteriors each) and bootstrap resamples of the pool."""
    keys = jax.random.split(key, weights.shape[0])
    drawn = jax.vmap(bootstrap_influences, (0, 0, None))(keys, weights, num)
    plain = jax.vmap(influences)(weights)
    return jnp.concatenate([drawn.reshape(-1, drawn.shape[-1]), plain])
