"""Undiscounted totals of finished episodes: what every constraint is checked on."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.types import Rollout

__all__ = ["EpisodeWindow", "cost_estimate", "empty_window", "mean_length", "push_episodes"]


class EpisodeWindow(NamedTuple):
    """Costs of the last W finished episodes, and how many ever finished."""

    costs: Float[Array, "W C"]
    finished: Int[Array, ""]


def empty_window(size: int, num_costs: int) -> EpisodeWindow:
    """No episode yet."""
    return EpisodeWindow(jnp.zeros((size, num_costs)), jnp.zeros((), jnp.int32))


def push_episodes(window: EpisodeWindow, rollout: Rollout) -> EpisodeWindow:
    """Write the finished episodes of a rollout into the ring, oldest first."""
    size = window.costs.shape[0]
    done = rollout.done.reshape(-1)
    costs = rollout.episode_costs.reshape(done.shape[0], -1)
    # Where more episodes finish than the ring holds, only the last ones are written: no slot is written twice.
    place = window.finished + jnp.cumsum(done) - 1
    total = window.finished + done.sum()
    fresh = done & (place >= total - size)
    slot = jnp.where(fresh, place % size, size)
    return EpisodeWindow(window.costs.at[slot].set(costs, mode="drop"), total)


def cost_estimate(window: EpisodeWindow) -> Float[Array, " C"]:
    """J_g,i: the mean over the episodes in the window; 0 before the first episode has finished."""
    count = jnp.minimum(window.finished, window.costs.shape[0])
    return window.costs.sum(0) / jnp.maximum(count, 1)


def mean_length(previous: Float[Array, ""], window: EpisodeWindow, rollout: Rollout) -> Float[Array, ""]:
    """Mean length over the window, this rollout's episodes in it: those before them count by the previous mean.

    A mean over the rollout's own episodes alone would be that of one short fall until another episode ends.
    """
    count, kept = rollout.done.sum(), jnp.minimum(window.finished, window.costs.shape[0])
    fresh = jnp.minimum(count, kept)
    length = jnp.sum(rollout.episode_length * rollout.done) / jnp.maximum(count, 1)
    return jnp.where(count > 0, (fresh * length + (kept - fresh) * previous) / jnp.maximum(kept, 1), previous)
