"""Collecting experience: T steps of E environments under an algorithm's policy."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from awavo.types import Algorithm, Env, Rollout

__all__ = ["EpisodeTotals", "RunningEnvs", "collect", "cut_episodes", "select", "start_envs"]

Tree = TypeVar("Tree")


class EpisodeTotals(NamedTuple):
    """Undiscounted sums since the last reset of each environment."""

    returns: Float[Array, " E"]
    costs: Float[Array, "E C"]
    length: Int[Array, " E"]


class RunningEnvs(NamedTuple):
    """The environments' side of a training state: E episodes in progress, with the planner's memory of them."""

    env_state: PyTree
    obs: Float[Array, "E d"]
    totals: EpisodeTotals
    memory: PyTree = ()


def zero_totals(num_envs: int, num_costs: int) -> EpisodeTotals:
    """Totals at the start of every episode."""
    return EpisodeTotals(jnp.zeros(num_envs), jnp.zeros((num_envs, num_costs)), jnp.zeros(num_envs, jnp.int32))


def start_envs(key: Array, env: Env, num_envs: int, memory: PyTree = ()) -> RunningEnvs:
    """Reset `num_envs` environments."""
    keys = jax.random.split(key, num_envs)
    env_state, obs = jax.vmap(env.reset, (0, None))(keys, env.params)
    return RunningEnvs(env_state, obs, zero_totals(num_envs, env.spec.num_costs), memory)


def add_step(totals: EpisodeTotals, reward: Float[Array, " E"], costs: Float[Array, "E C"]) -> EpisodeTotals:
    """Count one step."""
    return EpisodeTotals(totals.returns + reward, totals.costs + costs, totals.length + 1)


def clear(totals: EpisodeTotals, done: Bool[Array, " E"]) -> EpisodeTotals:
    """Zero the totals of the environments whose episode ended."""
    return select(done, jax.tree.map(jnp.zeros_like, totals), totals)


def select(mask: Bool[Array, " E"] | Bool[np.ndarray, " E"], new: Tree, old: Tree) -> Tree:
    """The new tree of arrays `[E, ...]` where the mask is set, else the old one."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (b.ndim - 1)), a, b), new, old)


def collect(
    key: Array, env: Env, algorithm: Algorithm, state: PyTree, envs: RunningEnvs, length: int
) -> tuple[RunningEnvs, Rollout]:
    """Step all environments `length` times with stochastic actions."""
    num_envs = envs.obs.shape[0]
    fresh = algorithm.begin(num_envs)  # a planner forgets an episode that ended

    def one_step(envs, key):
        act_key, step_key = jax.random.split(key)
        action, extras, memory = algorithm.decide(act_key, state, envs.obs, envs.memory, False)
        keys = jax.random.split(step_key, num_envs)
        env_state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, envs.env_state, action, env.params)
        totals = add_step(envs.totals, out.reward, out.costs)
        row = Rollout(
            envs.obs, action, extras, out.reward, out.costs, out.terminated, out.truncated, out.final_obs, *totals
        )
        done = out.terminated | out.truncated
        return RunningEnvs(env_state, out.obs, clear(totals, done), select(done, fresh, memory)), row

    return jax.lax.scan(one_step, envs, jax.random.split(key, length))


def cut_episodes(
    key: Array, env: Env, algorithm: Algorithm, steps: Int[Array, ""], envs: RunningEnvs, rollout: Rollout
) -> tuple[RunningEnvs, Rollout, Bool[Array, "T E"]]:
    """Begin another episode where one has grown as old as the algorithm lets it, after a rollout.

    Returns the environments, the rollout with its last steps truncated there, and where whole episodes ended.
    """
    whole = rollout.done
    if algorithm.cut_after is None:
        return envs, rollout, whole
    num_envs = envs.obs.shape[0]
    # An episode that ended with the rollout has age 0.
    cut = envs.totals.length >= jnp.maximum(algorithm.cut_after(steps), 1)
    fresh = start_envs(jax.random.fold_in(key, 1), env, num_envs, algorithm.begin(num_envs))
    truncated = rollout.truncated.at[-1].set(rollout.truncated[-1] | cut)
    return select(cut, fresh, envs), rollout._replace(truncated=truncated), whole
