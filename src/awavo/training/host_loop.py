"""Training on host environments: the same `act` and `learn`, with a Python loop around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PyTree

from awavo.training.compilation import for_training, jit_once
from awavo.training.loop import ChunkOutput, TrainState, summarize
from awavo.training.rollout import select
from awavo.types import Algorithm, EnvSpec, Rollout, Timestep

__all__ = ["HostRunner", "VectorHost", "host_init_fn"]

Tree = TypeVar("Tree")


@runtime_checkable
class VectorHost(Protocol):
    """A vectorised environment on the host (see `awavo.tasks.host`)."""

    spec: EnvSpec
    num_envs: int

    def reset(self, seed: int) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        ...

    def step(self, action: np.ndarray) -> Timestep:
        """Step everywhere, auto-resetting in the same step."""
        ...

    def restart(self, seeds: Sequence[int | None]) -> Float[np.ndarray, "E d"]:
        """Begin another episode where a seed is given; returns what all observe."""
        ...

    def close(self) -> None:
        """Release the environments."""


class HostRunner:
    """Seeds one after the other, or all in one program with `seed_axis="vmap"`; each has its own environments.

    A host environment's inner state cannot be saved: after an interruption its episodes start anew, with seeds that
    depend on the iteration. Such a resumed run is valid, but not bit-equal to an uninterrupted one.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        make_host: Callable[[], VectorHost],
        algorithm: Algorithm,
        rollout_length: int,
        seed_axis: str = "map",
    ):
        self._make_host = make_host
        self._length = rollout_length
        self._together = seed_axis == "vmap"
        decide, learn, self._select = algorithm.decide, algorithm.learn, select
        if self._together:
            decide = _over_seeds(decide)
            learn, self._select = jax.vmap(learn), jax.vmap(select, (0, None, 0))
        self._decide = jax.jit(decide, static_argnums=4, compiler_options=for_training())
        self._learn = jax.jit(learn, donate_argnums=1, compiler_options=for_training())
        self._begin, self._cut_after = algorithm.begin, algorithm.cut_after
        init = jit_once(host_init_fn(algorithm))
        self._groups = [list(seeds)] if self._together else [[seed] for seed in seeds]
        self._states: list[TrainState] = [init(np.int32(seed)) for seed in seeds]
        self._running: list[_Running | None] = [None] * len(self._groups)
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
        outputs, first = [], 0
        for index, group in enumerate(self._groups):
            members = slice(first, first + len(group))
            outputs += self._advance(index, members, num_iterations)
            first = members.stop
        return outputs

    def close(self) -> None:
        """Release all environments."""
        for running in self._running:
            for episodes in running.episodes if running else ():
                episodes.host.close()

    def _advance(self, index: int, members: slice, num_iterations: int) -> list[ChunkOutput]:
        states = self._states[members]
        keys, iteration = [state.key for state in states], int(states[0].iteration)
        learnt = self._pack([state.algorithm for state in states])
        running = self._running[index] or self._start(self._groups[index], iteration)
        self._running[index] = running
        rows = []
        for i in range(iteration, iteration + num_iterations):
            halves = [jax.random.split(jax.random.fold_in(key, i)) for key in keys]
            rollout = self._collect([half[0] for half in halves], learnt, running)
            whole = rollout.done
            if self._cut_after is not None:
                rollout = self._cut_episodes(i, rollout, running)
            start = time.perf_counter()
            learnt, info = self._learn(self._pack([half[1] for half in halves]), learnt, rollout)
            # The first call compiles: its time is reported as that.
            if self.compile_seconds == 0.0:
                jax.block_until_ready(info)
                self.compile_seconds = time.perf_counter() - start
            rows.append(self._unpack(jax.tree.map(np.asarray, summarize(info, rollout, whole))))
        done = jnp.asarray(iteration + num_iterations, jnp.int32)
        owned = zip(keys, self._unpack(learnt), strict=True)
        self._states[members] = [TrainState(key, done, own, None) for key, own in owned]
        return [jax.tree.map(lambda *leaves: np.stack(leaves), *own) for own in zip(*rows, strict=True)]

    def _start(self, seeds: list[int], iteration: int) -> _Running:
        episodes = [_Episodes(self._make_host(), seed, iteration) for seed in seeds]
        fresh = self._begin(episodes[0].host.num_envs)
        return _Running(episodes, fresh, self._pack([fresh] * len(seeds)))

    def _collect(self, keys: list[Array], state: PyTree, running: _Running) -> Rollout:
        steps, extras = [], []
        drawn = [jax.random.split(key, self._length) for key in keys]
        for step_key in jnp.stack(drawn, 1) if self._together else drawn[0]:
            obs = self._pack([episodes.obs for episodes in running.episodes])
            action, extra, running.memory = self._decide(step_key, state, obs, running.memory, False)
            own = self._unpack(np.asarray(action))
            steps.append(self._pack([e.step(a) for e, a in zip(running.episodes, own, strict=True)]))
            extras.append(extra)
            done = steps[-1].terminated | steps[-1].truncated
            if done.any():
                running.memory = self._select(done, running.fresh, running.memory)
        # Time goes first, or after the axis of seeds; what the planner recorded never leaves the device.
        axis = int(self._together)
        rollout = jax.tree.map(lambda *leaves: np.stack(leaves, axis), *steps)
        return rollout._replace(extras=_stack_along(extras, axis))

    def _cut_episodes(self, iteration: int, rollout: Rollout, running: _Running) -> Rollout:
        """Begin another episode where one has grown as old as the algorithm lets it, after a rollout."""
        assert self._cut_after is not None
        steps = iteration * self._length * running.episodes[0].host.num_envs
        ages = np.maximum(np.asarray(self._cut_after(jnp.asarray(steps, jnp.int32))), 1)
        cut = self._pack([episodes.cut(ages, iteration) for episodes in running.episodes])
        if not cut.any():
            return rollout
        running.memory = self._select(cut, running.fresh, running.memory)
        truncated = np.array(rollout.truncated)
        truncated[..., -1, :] |= cut
        return rollout._replace(truncated=truncated)

    def _pack(self, trees: list[Tree]) -> Tree:
        """The trees of a group's seeds as one: the only one, or stacked."""
        if not self._together:
            return trees[0]
        if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(trees[0])):
            return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
        return _stack_along(trees, 0)

    def _unpack(self, tree: Tree) -> list[Tree]:
        if not self._together:
            return [tree]
        on_host = all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(tree))
        return _split(tree) if on_host else _split_on_device(tree)


class _Running:
    """The episodes of a group of seeds and the planner's memory of them."""

    def __init__(self, episodes: list[_Episodes], fresh: PyTree, memory: PyTree):
        self.episodes, self.fresh, self.memory = episodes, fresh, memory


class _Episodes:
    """The environments of one seed and the totals of their running episodes."""

    def __init__(self, host: VectorHost, seed: int, iteration: int):
        self.host, self._seed = host, seed
        # A resumed run draws other episodes than those it has seen.
        start = np.random.SeedSequence([seed, iteration]).generate_state(1)[0]
        self.obs = np.asarray(host.reset(int(start % (2**31 - host.num_envs))))
        self._returns = np.zeros(host.num_envs, np.float32)
        self._costs = np.zeros((host.num_envs, host.spec.num_costs), np.float32)
        self._length = np.zeros(host.num_envs, np.int32)

    def step(self, action: np.ndarray) -> Rollout:
        out = self.host.step(action)
        self._returns = self._returns + out.reward
        self._costs = self._costs + out.costs
        self._length = self._length + 1
        row: tuple[Any, ...] = (
            self.obs, action, (), out.reward, out.costs, out.terminated, out.truncated, out.final_obs,
            self._returns, self._costs, self._length,
        )  # fmt: skip
        self._forget(np.asarray(out.terminated | out.truncated))
        self.obs = np.asarray(out.obs)
        return jax.tree.map(np.asarray, Rollout(*row))

    def cut(self, ages: Float[np.ndarray, " E"], iteration: int) -> Bool[np.ndarray, " E"]:
        """Begin another episode where one is as old as that; returns where."""
        old = self._length >= ages
        if old.any():
            drawn = np.random.SeedSequence([self._seed, iteration, 1]).generate_state(len(old)) >> 1
            self.obs = np.asarray(self.host.restart([int(s) if o else None for s, o in zip(drawn, old, strict=True)]))
            self._forget(old)
        return old

    def _forget(self, ended: Bool[np.ndarray, " E"]) -> None:
        self._returns = np.where(ended, 0, self._returns).astype(np.float32)
        self._costs = np.where(ended[:, None], 0, self._costs).astype(np.float32)
        self._length = np.where(ended, 0, self._length).astype(np.int32)


def _split(tree: Tree) -> list[Tree]:
    count = jax.tree.leaves(tree)[0].shape[0]
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(count)]


# One program each: leaf by leaf they would be hundreds.
_split_on_device = jax.jit(_split)
_stack_along = jax.jit(
    lambda trees, axis: jax.tree.map(lambda *leaves: jnp.stack(leaves, axis), *trees), static_argnums=1
)


def _over_seeds(decide: Callable[..., tuple[PyTree, ...]]) -> Callable[..., tuple[PyTree, ...]]:
    def together(key, state, obs, memory, greedy):
        return jax.vmap(lambda k, s, o, m: decide(k, s, o, m, greedy))(key, state, obs, memory)

    return together


def host_init_fn(algorithm: Algorithm) -> Callable[[ArrayLike], TrainState]:
    """Build `init(seed) -> TrainState` for environments that keep their own state."""

    def init(seed):
        algorithm_key, _, key = jax.random.split(jax.random.key(seed), 3)
        return TrainState(key, jnp.zeros((), jnp.int32), algorithm.init(algorithm_key), None)

    return init
