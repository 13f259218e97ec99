"""Running mean and variance of observations."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["RunningStatistics", "normalize", "running_statistics", "update_statistics"]


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
    deviation = jnp.sum((batch - mean) ** 2, 0)
    count = stats.total + size
    delta = mean - stats.mean
    return RunningStatistics(
        count,
        stats.mean + delta * size / count,
        stats.deviation + deviation + delta**2 * stats.total * size / count,
    )


def normalize(stats: RunningStatistics, obs: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Centre and scale, clipped to ten standard deviations; constant components are only centred."""
    variance = stats.deviation / jnp.maximum(stats.total, 1.0)
    std = jnp.where(variance > 1e-8, jnp.sqrt(jnp.maximum(variance, 1e-8)), 1.0)
    return jnp.clip((obs - stats.mean) / std, -10.0, 10.0)
