r"""What networks see of observations: each component in standard deviations, and past which of its thresholds it is.

.. math::  x = \mathrm{clip}\big((o - m) / s, -10, 10\big), \qquad
           \tanh\big((o - q_k) / (s / 10)\big), \quad q_k \text{ the } 0.3, 1, 10, 90, 99, 99.7\% \text{ points.}

Actors and models see x alone, critics of larger tasks both (`normalize_with_tails`).

Some signals turn on where a component is at the end of its range: a hazard 20 cm away and one 30 cm away differ by a
tenth of a standard deviation of a lidar, and cost 1 and 0 a step. A network on x alone learns such an edge so slowly
that it remembers the places instead (docs/learner.md has the measurement). Thresholds at the ends of each component's
own distribution put the edge within reach, whatever the component is and in whatever unit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = [
    "RunningStatistics", "follow_tails", "normalize", "normalize_with_tails", "num_inputs", "running_statistics",
    "standard_deviation", "update_statistics",
]  # fmt: skip

# Which points of a component's distribution are its thresholds, and how soft they are in standard deviations.
TAILS, SOFTNESS = (0.3, 1.0, 10.0, 90.0, 99.0, 99.7), 0.1


class RunningStatistics(NamedTuple):
    """Number of observations, mean and sum of squared deviations of every component; its thresholds, if it has any."""

    total: Float[Array, ""]
    mean: Float[Array, " d"]
    deviation: Float[Array, " d"]
    thresholds: Float[Array, "K d"] | None = None


def running_statistics(dim: int, tails: bool = False) -> RunningStatistics:
    """Statistics of nothing yet: `normalize` leaves observations as they are."""
    thresholds = jnp.zeros((len(TAILS), dim)) if tails else None
    return RunningStatistics(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(dim), thresholds)


def num_inputs(dim: int, tails: bool) -> int:
    """How many numbers `normalize_with_tails` makes of an observation."""
    return dim * (1 + len(TAILS)) if tails else dim


def follow_tails(stats: RunningStatistics, obs: Float[Array, "N d"], rate: Float[Array, ""]) -> RunningStatistics:
    """Move the thresholds a share `rate` of the way to those of a sample."""
    if stats.thresholds is None:
        return stats
    points = jnp.percentile(obs, jnp.asarray(TAILS), axis=0)
    return stats._replace(thresholds=stats.thresholds + rate * (points - stats.thresholds))


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
        count,
        stats.mean + delta * size / count,
        stats.deviation + squares + delta**2 * stats.total * size / count,
        stats.thresholds,
    )


def standard_deviation(stats: RunningStatistics) -> Float[Array, " d"]:
    """Standard deviation of every component, 1 where nothing varied."""
    variance = stats.deviation / jnp.maximum(stats.total, 1.0)
    return jnp.where(variance > 1e-8, jnp.sqrt(jnp.maximum(variance, 1e-8)), 1.0)


def normalize(stats: RunningStatistics, obs: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Centre and scale, clipped to ten standard deviations; constant components are only centred."""
    return jnp.clip((obs - stats.mean) / standard_deviation(stats), -10.0, 10.0)


def normalize_with_tails(stats: RunningStatistics, obs: Float[Array, "... d"]) -> Float[Array, "... n"]:
    """What `normalize` makes of observations, and then the tails, if the statistics have thresholds."""
    scaled = normalize(stats, obs)
    if stats.thresholds is None:
        return scaled
    past = jnp.tanh((obs[..., None, :] - stats.thresholds) / (SOFTNESS * standard_deviation(stats)))
    return jnp.concatenate([scaled, past.reshape(*obs.shape[:-1], -1)], -1)
