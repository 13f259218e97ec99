"""A ring of transitions that lives inside an algorithm's state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.types import Discrete, EnvSpec, Rollout

__all__ = ["Replay", "Transitions", "add", "empty_replay", "sample"]


class Transitions(NamedTuple):
    """Rows of (s, a, h, s', terminated); `signals` is the reward followed by the costs."""

    obs: Float[Array, "N d"]
    action: Array
    signals: Float[Array, "N 1+C"]
    next_obs: Float[Array, "N d"]
    terminated: Array


class Replay(NamedTuple):
    """Storage and how many transitions have ever been added."""

    data: Transitions
    added: Int[Array, ""]


def empty_replay(spec: EnvSpec, capacity: int) -> Replay:
    """Allocate a ring of `capacity` transitions."""
    if isinstance(spec.action_space, Discrete):
        action = jnp.zeros(capacity, jnp.int32)
    else:
        action = jnp.zeros((capacity, spec.action_space.dim))
    obs = jnp.zeros((capacity, spec.obs_dim))
    data = Transitions(obs, action, jnp.zeros((capacity, 1 + spec.num_costs)), jnp.copy(obs), jnp.zeros(capacity, bool))
    return Replay(data, jnp.zeros((), jnp.int32))


def add(replay: Replay, rollout: Rollout) -> Replay:
    """Append all T * E transitions of a rollout, overwriting the oldest; the capacity must be a multiple of T * E."""
    signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1)
    rows = Transitions(rollout.obs, rollout.action, signals, rollout.next_obs, rollout.terminated)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    capacity = replay.data.obs.shape[0]
    size = rows.obs.shape[0]
    start = replay.added % capacity
    data = jax.tree.map(lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, start, 0), replay.data, rows)
    return Replay(data, replay.added + size)


def sample(key: Array, replay: Replay, batch_size: int) -> Transitions:
    """Draw transitions uniformly with replacement from those stored."""
    stored = jnp.minimum(replay.added, replay.data.obs.shape[0])
    rows = jax.random.randint(key, (batch_size,), 0, stored)
    return jax.tree.map(lambda x: x[rows], replay.data)
