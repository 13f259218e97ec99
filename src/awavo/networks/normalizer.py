"""Running mean and variance of observations."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["RunningStatistics", "normalize", "running_statistics", "standard_deviation", "update_statistics"]


class RunningStatistics(NamedTuple):
    """Number of observations, mean and sum of squared deviations of every component."""

    total: Float[Array, ""]
    mean: Float[Array, " d"]
    deviation: Float[Array, " d"]


def running_statistics(dim: int) -> RunningStatistics:
    """Statistics of nothing yet: `normalize` leaves observations as they are."""
    return RunningStatistics(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(dim))


def update_statistics(stats: RunningStatistics, batch: Float[Array, "... d"]) -> RunningStatistics:
    """Merge a batch by the parallel formula of Chan et al. (1983)."""
    batch = batch.reshape(-1, batch.shape[-1])
    size = batch.shape[0]
    mean = batch.mean(0)
    squares = jnp.sum((batch - mean) ** 2, 0)
    count = stats.total + size
    delta = mean - stats.mean
    # The second moment of the union also holds how far the two means lie apart.
    return RunningStatistics(
        count, stats.mean + delta * size / count, stats.deviation + squares + delta**2 * stats.total * size / count
    )


def standard_deviation(stats: RunningStatistics) -> Float[Array, " d"]:
    """Standard deviation of every component, 1 where nothing varied."""
    variance = stats.deviation / jnp.maximum(stats.total, 1.0)
    return jnp.where(variance > 1e-8, jnp.sqrt(jnp.maximum(variance, 1e-8)), 1.0)


def normalize(stats: RunningStatistics, obs: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Centre and scale, clipped to ten standard deviations; constant components are only centred."""
    std = standard_deviation(stats)
    return jnp.clip((obs - stats.mean) / std, -10.0, 10.0)
