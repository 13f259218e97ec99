"""Evaluation: fresh environments and keys, whole episodes, undiscounted totals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.training.host_loop import VectorHost
from awavo.training.rollout import EpisodeTotals, add_step, renew, start_worker, zero_totals
from awavo.types import Algorithm, Env

__all__ = ["Episodes", "evaluate_env", "evaluate_host"]


class Episodes(NamedTuple):
    """Totals of N episodes."""

    returns: Float[np.ndarray, " N"]
    costs: Float[np.ndarray, "N C"]
    lengths: Float[np.ndarray, " N"]


def evaluate_env(
    env: Env, algorithm: Algorithm, num_episodes: int, greedy: bool
) -> Callable[[Array, Any], EpisodeTotals]:
    """Build `run(key, state)`: the first episode of each of `num_episodes` environments, to be jitted by the caller."""

    def run(key, state):
        reset_key, step_key = jax.random.split(key)
        worker = start_worker(reset_key, env, num_episodes)

        def step(carry, key):
            env_state, obs, running, totals, memory = carry
            act_key, env_key = jax.random.split(key)
            action, _, memory = algorithm.decide(act_key, state, obs, memory, greedy)
            keys = jax.random.split(env_key, num_episodes)
            env_state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, env_state, action, env.params)
            counted = add_step(totals, out.reward, out.costs)
            totals = jax.tree.map(lambda new, old: _where(running, new, old), counted, totals)
            return (env_state, out.obs, running & ~(out.terminated | out.truncated), totals, memory), None

        carry = (
            worker.env_state,
            worker.obs,
            jnp.ones(num_episodes, bool),
            zero_totals(num_episodes, env.spec.num_costs),
            algorithm.begin(num_episodes),
        )
        carry, _ = jax.lax.scan(step, carry, jax.random.split(step_key, env.spec.horizon))
        return carry[3]

    return run


def _where(mask: Array, new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)


def evaluate_host(
    host: VectorHost,
    decide: Callable[[Array, np.ndarray, Any], tuple[Any, Any]],
    fresh: Any,
    num_episodes: int,
    seed: int,
) -> Episodes:
    """Run whole episodes, the same number in each of the E environments, so that short ones are not favoured.

    `decide(key, obs, memory)` returns actions and the planner's memory, which is `fresh` where an episode starts.
    """
    quota = -(-num_episodes // host.num_envs)
    obs = host.reset(seed)
    num_costs = host.spec.num_costs
    totals = np.zeros((host.num_envs, 2 + num_costs))
    played = np.zeros(host.num_envs, int)
    rows: list[np.ndarray] = []
    key = jax.random.key(seed)
    step, memory = 0, fresh
    while played.min() < quota:
        action, memory = decide(jax.random.fold_in(key, step), obs, memory)
        out = host.step(np.asarray(action))
        step += 1
        totals += np.concatenate([out.reward[:, None], np.ones((host.num_envs, 1)), out.costs], 1)
        done = np.asarray(out.terminated | out.truncated)
        for e in np.flatnonzero(done):
            if played[e] < quota:
                rows.append(totals[e].copy())
            played[e] += 1
        totals[done] = 0
        memory = renew(done, fresh, memory) if done.any() else memory
        obs = np.asarray(out.obs)
    table = np.stack(rows)
    return Episodes(table[:, 0], table[:, 2:], table[:, 1])
