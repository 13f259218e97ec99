"""Collecting experience: T steps of E environments under an algorithm's policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.types import Algorithm, Env, Rollout

__all__ = ["EpisodeTotals", "Worker", "collect", "renew", "start_worker"]


class EpisodeTotals(NamedTuple):
    """Undiscounted sums since the last reset of each environment."""

    returns: Float[Array, " E"]
    costs: Float[Array, "E C"]
    length: Int[Array, " E"]


class Worker(NamedTuple):
    """The environments' side of a training state."""

    env_state: Any
    obs: Float[Array, "E d"]
    totals: EpisodeTotals
    memory: Any = ()


def zero_totals(num_envs: int, num_costs: int) -> EpisodeTotals:
    """Totals at the start of every episode."""
    return EpisodeTotals(jnp.zeros(num_envs), jnp.zeros((num_envs, num_costs)), jnp.zeros(num_envs, jnp.int32))


def start_worker(key: Array, env: Env, num_envs: int, memory: Any = ()) -> Worker:
    """Reset `num_envs` environments."""
    keys = jax.random.split(key, num_envs)
    env_state, obs = jax.vmap(env.reset, (0, None))(keys, env.params)
    return Worker(env_state, obs, zero_totals(num_envs, env.spec.num_costs), memory)


def add_step(totals: EpisodeTotals, reward: Array, costs: Array) -> EpisodeTotals:
    """Count one step."""
    return EpisodeTotals(totals.returns + reward, totals.costs + costs, totals.length + 1)


def clear(totals: EpisodeTotals, done: Array) -> EpisodeTotals:
    """Zero the totals of the environments whose episode ended."""
    return EpisodeTotals(
        jnp.where(done, 0.0, totals.returns),
        jnp.where(done[:, None], 0.0, totals.costs),
        jnp.where(done, 0, totals.length),
    )


def renew(done: Any, fresh: Any, memory: Any) -> Any:
    """A planner's memory, fresh where an episode ended."""
    return jax.tree.map(lambda new, old: jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, memory)


def collect(
    key: Array, env: Env, algorithm: Algorithm, state: Any, worker: Worker, length: int
) -> tuple[Worker, Rollout]:
    """Step all environments `length` times with stochastic actions."""
    num_envs = worker.obs.shape[0]
    fresh = algorithm.begin(num_envs)

    def one_step(worker, key):
        act_key, step_key = jax.random.split(key)
        action, extras, memory = algorithm.decide(act_key, state, worker.obs, worker.memory, False)
        keys = jax.random.split(step_key, num_envs)
        env_state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, worker.env_state, action, env.params)
        totals = add_step(worker.totals, out.reward, out.costs)
        row = Rollout(
            worker.obs, action, extras, out.reward, out.costs, out.terminated, out.truncated, out.final_obs, *totals
        )
        done = out.terminated | out.truncated
        return Worker(env_state, out.obs, clear(totals, done), renew(done, fresh, memory)), row

    return jax.lax.scan(one_step, worker, jax.random.split(key, length))
