"""The training loop: one compiled chunk of iterations per seed, and the runners that hold the seed axis.

An iteration is a rollout and one `learn`. Its random key is a function of the seed and the iteration's number alone,
so where chunks begin and end, and where a run was interrupted, changes nothing in the numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from awavo.errors import AwavoError
from awavo.training.compilation import for_training, jit_once
from awavo.training.rollout import RunningEnvs, collect, cut_episodes, start_envs
from awavo.types import Algorithm, Env, Rollout

__all__ = [
    "ChunkOutput", "CompiledRunner", "Runner", "TrainState", "TrainingStalledError", "chunk_fn", "init_fn",
    "seed_sharding", "shard_seeds",
]  # fmt: skip

# Iterations that one program may run, and how long it may take for them before it is taken to hang.
MAX_CHUNK = 64
STALL_SECONDS = 900.0


class TrainingStalledError(AwavoError):
    """A compiled chunk that does not come back."""


class TrainState(NamedTuple):
    """All that a seed needs to resume: its key, the iteration, the algorithm's state and the environments'.

    Checkpoints store the arrays under the names of these fields and of those below them.
    """

    key: Array
    iteration: Int[Array, ""]
    algorithm: PyTree[Array]
    worker: RunningEnvs | None


class ChunkOutput(NamedTuple):
    """What the host sees of n iterations of one seed: metrics `[n, ...]`, and finished episodes `[n, T, E]`."""

    info: PyTree
    done: Bool[Array | np.ndarray, "n T E"]
    episode_return: Float[Array | np.ndarray, "n T E"]
    episode_costs: Float[Array | np.ndarray, "n T E C"]
    episode_length: Int[Array | np.ndarray, "n T E"]


@runtime_checkable
class Runner(Protocol):
    """The seed axis, whichever way it is run."""

    compile_seconds: float

    @property
    def states(self) -> list[TrainState]:
        """One training state per seed."""
        ...

    @states.setter
    def states(self, states: Sequence[TrainState]) -> None: ...

    def compile(self) -> None:
        """Make everything ready for `run`."""

    def run(self, num_iterations: int) -> list[ChunkOutput]:
        """Advance every seed; return one output per seed."""
        ...


def summarize(info: PyTree, rollout: Rollout, whole: Array | np.ndarray) -> ChunkOutput:
    """Keep what the host needs of one iteration; `whole` says where an episode ended that nobody cut short."""
    return ChunkOutput(info, whole, rollout.episode_return, rollout.episode_costs, rollout.episode_length)


def init_fn(env: Env, algorithm: Algorithm, num_envs: int) -> Callable[[ArrayLike], TrainState]:
    """Build `init(seed) -> TrainState`."""

    def init(seed):
        algorithm_key, env_key, key = jax.random.split(jax.random.key(seed), 3)
        envs = start_envs(env_key, env, num_envs, algorithm.begin(num_envs))
        return TrainState(key, jnp.zeros((), jnp.int32), algorithm.init(algorithm_key), envs)

    return init


def chunk_fn(
    env: Env, algorithm: Algorithm, rollout_length: int
) -> Callable[[TrainState, Array], tuple[TrainState, ChunkOutput]]:
    """Build `chunk(state, n)`: n <= MAX_CHUNK iterations in one program, whatever n is."""

    # Compiled by itself so that finding its output's shape and looping over it trace it once.
    @jax.jit
    def iterate(state):
        rollout_key, learn_key = jax.random.split(jax.random.fold_in(state.key, state.iteration))
        envs, rollout = collect(rollout_key, env, algorithm, state.algorithm, state.worker, rollout_length)
        steps = state.iteration * rollout.reward.size
        envs, rollout, whole = cut_episodes(rollout_key, env, algorithm, steps, envs, rollout)
        learnt, info = algorithm.learn(learn_key, state.algorithm, rollout)
        return TrainState(state.key, state.iteration + 1, learnt, envs), summarize(info, rollout, whole)

    def chunk(state, num_iterations):
        shapes = jax.eval_shape(iterate, state)[1]
        # Room for the longest chunk, whatever n is: one program serves every length.
        output = jax.tree.map(lambda s: jnp.zeros((MAX_CHUNK, *s.shape), s.dtype), shapes)

        def body(i, carry):
            state, output = carry
            state, row = iterate(state)
            return state, jax.tree.map(lambda rows, r: rows.at[i].set(r), output, row)

        return jax.lax.fori_loop(0, num_iterations, body, (state, output))

    return chunk


class CompiledRunner:
    """Functional environments: the whole chunk is one program.

    `map` runs one program per seed on a thread each, `vmap` all seeds in one program, split over the devices there
    are. On a CPU a map is faster and bit-equal to a single seed; on a GPU vmap is many times faster.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        init: Callable[[ArrayLike], TrainState],
        chunk: Callable[[TrainState, Array], tuple[TrainState, ChunkOutput]],
        seed_axis: str,
    ):
        self._vmap = seed_axis == "vmap"
        self._num_seeds = len(seeds)
        self.compile_seconds = 0.0
        self._sharding = seed_sharding(len(seeds)) if self._vmap else None
        begin = jit_once(jax.vmap(init), out_shardings=self._sharding) if self._vmap else jit_once(init)
        self._chunk_fn = jax.vmap(chunk, (0, None)) if self._vmap else chunk
        self._states = [begin(np.asarray(seeds, np.int32))] if self._vmap else [begin(np.int32(s)) for s in seeds]
        self._compiled: Compiled | None = None
        # Twice the cores: three seeds on two cores take one and a half times as long as two, not twice.
        self._pool = ThreadPoolExecutor(1 if self._vmap else min(len(seeds), 2 * (os.cpu_count() or 1)))

    @property
    def states(self) -> list[TrainState]:
        """One state per seed."""
        if not self._vmap:
            return list(self._states)
        return [jax.tree.map(lambda x, i=i: x[i], self._states[0]) for i in range(self._num_seeds)]

    @states.setter
    def states(self, states: Sequence[TrainState]) -> None:
        if self._vmap:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
            self._states = [shard_seeds(stacked, self._num_seeds)]
        else:
            self._states = [jax.tree.map(jnp.asarray, state) for state in states]

    def compile(self) -> None:
        """Compile the chunk once, ahead of time."""
        start = time.perf_counter()
        program = jax.jit(self._chunk_fn, donate_argnums=0, out_shardings=self._sharding)
        lowered = program.lower(self._states[0], np.int32(1))
        self._compiled = lowered.compile(for_training())
        self.compile_seconds = time.perf_counter() - start

    def run(self, num_iterations: int) -> list[ChunkOutput]:
        """Advance every seed by `num_iterations` (at most MAX_CHUNK)."""
        if self._compiled is None:
            self.compile()
        futures = [self._pool.submit(self._advance, i, num_iterations) for i in range(len(self._states))]
        unfinished = wait(futures, timeout=STALL_SECONDS * len(futures)).not_done
        if unfinished:
            raise TrainingStalledError(
                f"{num_iterations} iterations did not finish within {STALL_SECONDS * len(futures):.0f} s: the compiled "
                "program hangs. Run the same command again to resume from the last checkpoint, with "
                "XLA_FLAGS=--xla_cpu_enable_concurrency_optimized_scheduler=false."
            )
        outputs = [future.result() for future in futures]
        if not self._vmap:
            return outputs
        return [jax.tree.map(lambda x, i=i: x[i], outputs[0]) for i in range(self._num_seeds)]

    def _advance(self, index: int, num_iterations: int) -> ChunkOutput:
        assert self._compiled is not None
        state, output = self._compiled(self._states[index], np.int32(num_iterations))
        self._states[index] = state
        axis = 1 if self._vmap else 0
        return jax.tree.map(lambda x: np.asarray(x).take(range(num_iterations), axis), output)


T = TypeVar("T")


def seed_sharding(num_seeds: int) -> NamedSharding | None:
    """The leading axis split over as many local devices as divide it; None where one does. Devices never talk."""
    devices = jax.local_devices()
    count = max(k for k in range(1, len(devices) + 1) if num_seeds % k == 0)
    if count == 1:
        return None
    return NamedSharding(Mesh(devices[:count], ("seed",)), PartitionSpec("seed"))


def shard_seeds(tree: T, num_seeds: int) -> T:
    """Arrays `[S, ...]` placed on the devices of their seeds."""
    sharding = seed_sharding(num_seeds)
    return tree if sharding is None else jax.device_put(tree, sharding)
