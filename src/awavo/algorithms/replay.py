"""A ring of transitions that lives inside an algorithm's state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.types import Discrete, EnvSpec, Rollout

__all__ = [
    "Lookahead",
    "ReplayBuffer",
    "Transitions",
    "add",
    "empty_replay",
    "look_ahead",
    "one_step",
    "sample",
    "target_inputs",
]


class Lookahead(NamedTuple):
    """What followed within n steps: discounted sums, the last state, whether it was terminal, gamma^steps."""

    signals: Float[Array, "N signals"]
    obs: Float[Array, "N d"]
    terminated: Array
    discount: Float[Array, " N"]


class Transitions(NamedTuple):
    """Rows of (s, a, h, s', terminated); `signals` is the reward followed by the costs."""

    obs: Float[Array, "N d"]
    action: Array
    signals: Float[Array, "N signals"]
    next_obs: Float[Array, "N d"]
    terminated: Array
    ahead: Lookahead | None = None


class ReplayBuffer(NamedTuple):
    """Storage and how many transitions have ever been added."""

    data: Transitions
    added: Int[Array, ""]


def empty_replay(spec: EnvSpec, capacity: int, steps: int = 1) -> ReplayBuffer:
    """Allocate a ring of `capacity` transitions; with `steps` > 1 it also holds what followed within as many."""
    if isinstance(spec.action_space, Discrete):
        action = jnp.zeros(capacity, jnp.int32)
    else:
        action = jnp.zeros((capacity, spec.action_space.dim))
    obs = jnp.zeros((capacity, spec.obs_dim))
    data = Transitions(obs, action, jnp.zeros((capacity, 1 + spec.num_costs)), jnp.copy(obs), jnp.zeros(capacity, bool))
    if steps > 1:
        data = one_step(data, 1.0)
    return ReplayBuffer(jax.tree.map(jnp.copy, data), jnp.zeros((), jnp.int32))


def target_inputs(rows: Transitions, discount: float) -> Lookahead:
    """What a target is made of: what the rows hold of the steps ahead, or else their next state."""
    if rows.ahead is not None:
        return rows.ahead
    return Lookahead(
        rows.signals, rows.next_obs, rows.terminated, jnp.full(rows.terminated.shape, discount, jnp.float32)
    )


def one_step(rows: Transitions, discount: float) -> Transitions:
    """Rows that hold their next state as all that is ahead, to be joined with rows that look further."""
    return rows._replace(ahead=target_inputs(rows, discount))


def look_ahead(rows: Transitions, truncated: Array, steps: int, discount: float) -> Transitions:
    """Rows `[T, E, ..]` in order of time that look `steps` ahead, or to the end of their episode or of the rollout."""
    # Step by step later: rows whose episode still runs take in the row k steps after them.
    found = target_inputs(rows, discount)
    over = rows.terminated | truncated
    alive = ~over
    for k in range(1, steps):
        later = jax.tree.map(lambda x, k=k: jnp.concatenate([x[k:], jnp.zeros_like(x[:k])]), (rows, over))
        alive = alive & (jnp.arange(over.shape[0]) + k < over.shape[0])[:, None]
        row, row_over = later
        more = Lookahead(
            found.signals + found.discount[..., None] * row.signals,
            row.next_obs,
            row.terminated,
            found.discount * discount,
        )
        found = jax.tree.map(lambda new, old, kept=alive: _choose(kept, new, old), more, found)
        alive = alive & ~row_over
    return rows._replace(ahead=found)


def _choose(kept: Array, new: Array, old: Array) -> Array:
    return jnp.where(kept.reshape(kept.shape + (1,) * (new.ndim - kept.ndim)), new, old)


def add(replay: ReplayBuffer, rollout: Rollout, discount: float = 1.0, steps: int = 1) -> ReplayBuffer:
    """Append all T * E transitions of a rollout, overwriting the oldest; the capacity must be a multiple of T * E.

    `discount` and `steps` are for a ring that looks ahead.
    """
    signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1)
    rows = Transitions(rollout.obs, rollout.action, signals, rollout.next_obs, rollout.terminated)
    if steps > 1:
        rows = look_ahead(rows, rollout.truncated, steps, discount)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    # As the capacity is a multiple of the rows, a block never crosses the end of the ring.
    capacity = replay.data.obs.shape[0]
    size = rows.obs.shape[0]
    start = replay.added % capacity
    data = jax.tree.map(lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, start, 0), replay.data, rows)
    return ReplayBuffer(data, replay.added + size)


def sample(key: Array, replay: ReplayBuffer, batch_size: int) -> Transitions:
    """Draw transitions uniformly with replacement from those stored."""
    # Until the ring is full its end holds zeros, which are never drawn.
    stored = jnp.minimum(replay.added, replay.data.obs.shape[0])
    rows = jax.random.randint(key, (batch_size,), 0, stored)
    return jax.tree.map(lambda x: x[rows], replay.data)
