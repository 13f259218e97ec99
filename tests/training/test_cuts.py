"""Episodes cut short in training: truncated for the learner, no episode for the tables, a fresh start after them."""

from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.tasks.base import Transition, auto_reset
from awavo.tasks.host import host_env
from awavo.training.host_loop import HostRunner
from awavo.training.loop import CompiledRunner, chunk_fn, init_fn
from awavo.types import Algorithm, Box, EnvSpec

SPEC = EnvSpec("count", 1, Box((-1.0,), (1.0,)), 12, ("c",), (5.0,))


class Count(NamedTuple):
    """Steps since the episode began."""

    age: jax.Array


def counting_task():
    """Observes its own age, which earns and costs 1 a step."""

    def step(key, state, action, params):
        state = Count(state.age + 1)
        return state, Transition(state.age[None], jnp.ones(()), jnp.ones(1), jnp.zeros((), bool))

    return auto_reset(SPEC, (), lambda key, params: (Count(jnp.zeros(())), jnp.zeros(1)), step)


class CountingEnv(gym.Env):
    """The same, as anybody would write it."""

    observation_space = gym.spaces.Box(-1e3, 1e3, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.age += 1
        return np.full(1, self.age, np.float32), 1.0, False, False, {"cost": 1.0}


class Seen(NamedTuple):
    """What `learn` saw last."""

    obs: jax.Array
    truncated: jax.Array
    length: jax.Array


def watcher(ages):
    """An algorithm that remembers the last rollout, and cuts at the given ages."""
    shape = (4, len(ages))
    empty = Seen(jnp.zeros((*shape, 1)), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32))
    return Algorithm(
        lambda key: empty,
        lambda key, state, obs, greedy: (jnp.zeros((len(ages), 1)), ()),
        lambda key, state, rollout: (Seen(rollout.obs, rollout.truncated, rollout.episode_length), Seen(*empty)),
        cut_after=lambda steps: jnp.asarray(ages, jnp.float32),
    )


def compiled_runner(algorithm, num_envs):
    env = counting_task()
    return CompiledRunner([0], init_fn(env, algorithm, num_envs), chunk_fn(env, algorithm, 4), "map")


def host_runner(algorithm, num_envs):
    make = lambda: host_env(lambda: CountingEnv(), num_envs=num_envs, cost_limits=(5.0,), horizon=12)  # noqa: E731
    return HostRunner([0], make, algorithm, 4)


@pytest.mark.parametrize("make", [compiled_runner, host_runner], ids=["compiled", "host"])
def test_old_episodes_are_cut_between_rollouts(make):
    """Of three environments one is cut after its second rollout, one never, one after each."""
    runner = make(watcher([5.0, np.inf, 1.0]), 3)
    done, ages, truncated = [], [], []
    for _ in range(4):
        done.append(np.asarray(runner.run(1)[0].done)[0])
        seen = runner.states[0].algorithm
        ages.append(np.asarray(seen.obs)[..., 0])
        truncated.append(np.asarray(seen.truncated))
    ages, truncated, done = (np.concatenate(parts) for parts in (ages, truncated, done))
    np.testing.assert_array_equal(ages[:, 0], [*range(8), *range(8)])
    np.testing.assert_array_equal(ages[:, 1], [*range(12), *range(4)])
    np.testing.assert_array_equal(ages[:, 2], [*range(4)] * 4)
    np.testing.assert_array_equal(np.flatnonzero(truncated[:, 0]), [7, 15])
    np.testing.assert_array_equal(np.flatnonzero(truncated[:, 1]), [11])
    np.testing.assert_array_equal(np.flatnonzero(truncated[:, 2]), [3, 7, 11, 15])
    # Tables hold the one episode that ended by itself.
    np.testing.assert_array_equal(np.argwhere(done), [[11, 1]])
    getattr(runner, "close", lambda: None)()
