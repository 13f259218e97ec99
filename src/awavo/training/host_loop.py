"""Training on host environments: the same `act` and `learn`, with a Python loop around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from awavo.training.loop import ChunkOutput, TrainState, summarize
from awavo.training.rollout import renew
from awavo.types import Algorithm, EnvSpec, Rollout, Timestep

__all__ = ["HostRunner", "VectorHost"]


class VectorHost(Protocol):
    """A vectorised environment on the host (see `awavo.tasks.host`)."""

    spec: EnvSpec
    num_envs: int

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode everywhere."""
        ...

    def step(self, action: np.ndarray) -> Timestep:
        """Step everywhere, auto-resetting in the same step."""
        ...

    def close(self) -> None:
        """Release the environments."""


class HostRunner:
    """Seeds one after the other; each has its own environments.

    A host environment's inner state cannot be saved: after an interruption its episodes start anew, with seeds that
    depend on the iteration. Such a resumed run is valid, but not bit-equal to an uninterrupted one.
    """

    def __init__(
        self, seeds: Sequence[int], make_host: Callable[[], VectorHost], algorithm: Algorithm, rollout_length: int
    ):
        self._seeds = list(seeds)
        self._make_host = make_host
        self._length = rollout_length
        self._decide = jax.jit(algorithm.decide, static_argnums=4)
        self._begin = algorithm.begin
        self._learn = jax.jit(algorithm.learn, donate_argnums=1)
        init = jax.jit(lambda seed: _init(seed, algorithm))
        self._states: list[TrainState] = [init(np.int32(seed)) for seed in seeds]
        self._running: list[_Episodes | None] = [None] * len(seeds)
        self.compile_seconds = 0.0

    @property
    def states(self) -> list[TrainState]:
        """One state per seed."""
        return list(self._states)

    @states.setter
    def states(self, states: Sequence[TrainState]) -> None:
        self._states = list(states)

    def compile(self) -> None:
        """Nothing ahead of time: the two programs compile on their first call, inside `run`."""

    def run(self, num_iterations: int) -> list[ChunkOutput]:
        """Advance every seed by `num_iterations`."""
        return [self._advance(index, num_iterations) for index in range(len(self._seeds))]

    def close(self) -> None:
        """Release all environments."""
        for episodes in self._running:
            if episodes is not None:
                episodes.host.close()

    def _advance(self, index: int, num_iterations: int) -> ChunkOutput:
        rows = []
        for _ in range(num_iterations):
            state = self._states[index]
            if self._running[index] is None:
                host = self._make_host()
                fresh = self._begin(host.num_envs)
                self._running[index] = _Episodes(host, self._seeds[index], int(state.iteration), fresh)
            episodes = self._running[index]
            assert episodes is not None
            rollout_key, learn_key = jax.random.split(jax.random.fold_in(state.key, state.iteration))
            rollout = self._collect(rollout_key, state.algorithm, episodes)
            start = time.perf_counter()
            learnt, info = self._learn(learn_key, state.algorithm, rollout)
            if self.compile_seconds == 0.0:
                jax.block_until_ready(info)
                self.compile_seconds = time.perf_counter() - start
            self._states[index] = TrainState(state.key, state.iteration + 1, learnt, None)
            rows.append(jax.tree.map(np.asarray, summarize(info, rollout)))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    def _collect(self, key: Array, state: Any, episodes: _Episodes) -> Rollout:
        steps = []
        for step_key in jax.random.split(key, self._length):
            obs = episodes.obs
            action, extras, episodes.memory = self._decide(step_key, state, obs, episodes.memory, False)
            steps.append(episodes.step(obs, np.asarray(action), jax.tree.map(np.asarray, extras)))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *steps)


class _Episodes:
    """The environments of one seed, the totals of their running episodes and the planner's memory of them."""

    def __init__(self, host: VectorHost, seed: int, iteration: int, fresh: Any):
        self.host = host
        self.memory = self._fresh = fresh
        start = np.random.SeedSequence([seed, iteration]).generate_state(1)[0]
        self.obs = host.reset(int(start % (2**31 - host.num_envs)))
        self._returns = np.zeros(host.num_envs, np.float32)
        self._costs = np.zeros((host.num_envs, host.spec.num_costs), np.float32)
        self._length = np.zeros(host.num_envs, np.int32)

    def step(self, obs: np.ndarray, action: np.ndarray, extras: Any) -> Rollout:
        out = self.host.step(action)
        self._returns = self._returns + out.reward
        self._costs = self._costs + out.costs
        self._length = self._length + 1
        row = Rollout(
            obs, action, extras, out.reward, out.costs, out.terminated, out.truncated, out.final_obs,
            self._returns, self._costs, self._length,
        )  # fmt: skip
        done = np.asarray(out.terminated | out.truncated)
        self._returns = np.where(done, 0, self._returns).astype(np.float32)
        self._costs = np.where(done[:, None], 0, self._costs).astype(np.float32)
        self._length = np.where(done, 0, self._length).astype(np.int32)
        self.memory = renew(done, self._fresh, self.memory) if done.any() else self.memory
        self.obs = np.asarray(out.obs)
        return row


def _init(seed: Array, algorithm: Algorithm) -> TrainState:
    algorithm_key, _, key = jax.random.split(jax.random.key(seed), 3)
    return TrainState(key, jnp.zeros((), jnp.int32), algorithm.init(algorithm_key), None)
