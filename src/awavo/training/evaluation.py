"""Evaluation: fresh environments and keys, whole episodes, undiscounted totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from awavo.training.host_loop import VectorHost
from awavo.training.rollout import EpisodeTotals, add_step, select, start_envs, zero_totals
from awavo.types import Algorithm, Env

__all__ = ["Episodes", "evaluate_env", "evaluate_host", "evaluate_hosts"]

Memory = TypeVar("Memory")


class Episodes(NamedTuple):
    """Totals of N episodes."""

    returns: Float[np.ndarray, " N"]
    costs: Float[np.ndarray, "N C"]
    lengths: Float[np.ndarray, " N"]


def evaluate_env(
    env: Env, algorithm: Algorithm, num_episodes: int, greedy: bool
) -> Callable[[Array, PyTree], EpisodeTotals]:
    """Build `run(key, state)`: the first episode of each of `num_episodes` environments, to be jitted by the caller."""

    def run(key, state):
        reset_key, step_key = jax.random.split(key)
        envs = start_envs(reset_key, env, num_episodes)

        step_keys = jax.random.split(step_key, env.spec.horizon)

        def step(carry):
            time, env_state, obs, running, totals, memory = carry
            act_key, env_key = jax.random.split(step_keys[time])
            action, _, memory = algorithm.decide(act_key, state, obs, memory, greedy)
            keys = jax.random.split(env_key, num_episodes)
            env_state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, env_state, action, env.params)
            counted = add_step(totals, out.reward, out.costs)
            totals = select(running, counted, totals)  # only the first episode of each counts
            running = running & ~(out.terminated | out.truncated)
            return time + 1, env_state, out.obs, running, totals, memory

        # A decision may be a whole plan: none is made once every episode has ended.
        going = lambda carry: (carry[0] < env.spec.horizon) & carry[3].any()  # noqa: E731
        totals, memory = zero_totals(num_episodes, env.spec.num_costs), algorithm.begin(num_episodes)
        start = (jnp.zeros((), jnp.int32), envs.env_state, envs.obs, jnp.ones(num_episodes, bool), totals, memory)
        return jax.lax.while_loop(going, step, start)[4]

    return run


def evaluate_host(
    host: VectorHost,
    decide: Callable[[Array, np.ndarray, Memory], tuple[Array, Memory]],
    fresh: Memory,
    num_episodes: int,
    seed: int,
    on_played: Callable[[int], None] = lambda count: None,
) -> Episodes:
    """Run whole episodes, the same number in each of the E environments, so that short ones are not favoured.

    `decide(key, obs, memory)` returns actions and the planner's memory, which is `fresh` where an episode starts;
    `on_played` hears of every episode that counts.
    """
    tally = _Tally(host, num_episodes, seed)
    key, step, memory = jax.random.key(seed), 0, fresh
    while not tally.complete:
        action, memory = decide(jax.random.fold_in(key, step), tally.obs, memory)
        before = tally.played
        done = tally.step(np.asarray(action))
        if done.any():
            memory = select(done, fresh, memory)
            on_played(tally.played - before)
        step += 1
    return tally.episodes()


def evaluate_hosts(
    hosts: Sequence[VectorHost],
    decide: Callable[[Array, np.ndarray, Memory], tuple[Array, Memory]],
    fresh: Memory,
    num_episodes: int,
    seeds: Sequence[int],
) -> list[Episodes]:
    """`evaluate_host` of S policies in step, each with its host and seed: `decide(keys, obs [S, E, d], memory)`."""
    tallies = [_Tally(host, num_episodes, seed) for host, seed in zip(hosts, seeds, strict=True)]
    keys, step = jnp.stack([jax.random.key(seed) for seed in seeds]), 0
    next_keys, refresh = jax.jit(jax.vmap(jax.random.fold_in, (0, None))), jax.jit(jax.vmap(select, (0, None, 0)))
    memory = jax.tree.map(lambda x: jnp.stack([x] * len(seeds)), fresh)
    while not all(tally.complete for tally in tallies):
        action, memory = decide(next_keys(keys, step), np.stack([tally.obs for tally in tallies]), memory)
        done = np.stack([tally.step(own) for tally, own in zip(tallies, np.asarray(action), strict=True)])
        memory = refresh(done, fresh, memory) if done.any() else memory
        step += 1
    return [tally.episodes() for tally in tallies]


class _Tally:
    """A host's environments in play, and the totals of the first episodes of each."""

    def __init__(self, host: VectorHost, num_episodes: int, seed: int):
        self._host = host
        # As many from each environment: the first to finish would favour short episodes.
        self._quota = -(-num_episodes // host.num_envs)
        self._totals = np.zeros((host.num_envs, 2 + host.spec.num_costs))  # return, length, costs
        self._rows: list[list[np.ndarray]] = [[] for _ in range(host.num_envs)]
        self.obs = np.asarray(host.reset(seed))

    @property
    def played(self) -> int:
        return sum(map(len, self._rows))

    @property
    def complete(self) -> bool:
        return min(map(len, self._rows)) >= self._quota

    def step(self, action: np.ndarray) -> np.ndarray:
        """Step, count, and say where an episode ended."""
        out = self._host.step(action)
        self._totals += np.concatenate([out.reward[:, None], np.ones((self._host.num_envs, 1)), out.costs], 1)
        done = np.asarray(out.terminated | out.truncated)
        for e in np.flatnonzero(done):
            if len(self._rows[e]) < self._quota:
                self._rows[e].append(self._totals[e].copy())
        self._totals[done] = 0
        self.obs = np.asarray(out.obs)
        return done

    def episodes(self) -> Episodes:
        # The first of every environment, then the second: whoever reads only some must not read the shortest.
        table = np.stack([row for episode in zip(*self._rows, strict=True) for row in episode])
        return Episodes(table[:, 0], table[:, 2:], table[:, 1])
