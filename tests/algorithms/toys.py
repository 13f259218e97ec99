"""Small tasks, rollouts and batches, and every algorithm compiled once for all tests that use the same settings."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.algorithms.estimation import Batch
from awavo.networks.stochastic import stochastic_policy
from awavo.training.compilation import jit_once
from awavo.types import Algorithm, Box, Discrete, EnvSpec, Rollout

SPEC = EnvSpec("toy", 3, Discrete(3), 10, ("a", "b"), (5.0, 5.0))
CONTINUOUS = SPEC._replace(action_space=Box((-1.0, -2.0), (1.0, 2.0)))


class Compiled(NamedTuple):
    """An algorithm, its first state, and its functions as compiled programs."""

    algorithm: Algorithm
    state: Any
    act: Any
    learn: Any


def compiled(factory, config, spec=SPEC):
    """Build and compile an algorithm; the same arguments give the same programs."""
    return _compiled(factory, config, spec)


@functools.cache
def _compiled(factory, config, spec):
    algorithm = factory(spec, config)
    state = jit_once(algorithm.init)(jax.random.key(0))
    return Compiled(algorithm, state, jax.jit(algorithm.act, static_argnums=3), jax.jit(algorithm.learn))


def toy_rollout(spec=SPEC, seed=0, costs=0.0, steps=8, envs=32, terminated=False):
    """Random transitions; every episode ends in the last step, with the given totals (small ones for 0)."""
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    obs = rng.normal(size=(*shape, spec.obs_dim)).astype(np.float32)
    if isinstance(spec.action_space, Discrete):
        action = sample = rng.integers(0, spec.action_space.num, shape).astype(np.int32)
    else:
        sample = rng.normal(size=(*shape, spec.action_space.dim)).astype(np.float32)
        action = np.tanh(sample) * np.asarray(spec.action_space.high, np.float32)
    last = np.zeros(shape, bool)
    last[-1] = True
    reward = rng.normal(size=shape).astype(np.float32)
    step_costs = rng.uniform(size=(*shape, spec.num_costs)).astype(np.float32)
    totals = np.broadcast_to(np.asarray(costs, np.float32), step_costs.shape)
    step_costs *= np.where(totals > 0, totals, 0.4) / step_costs.sum(0)
    ends = (last, last & False) if terminated else (last & False, last)
    length = np.broadcast_to(np.arange(1, steps + 1, dtype=np.int32)[:, None], shape)
    return Rollout(obs, action, sample, reward, step_costs, *ends, obs + 1, reward, totals, length)


@functools.cache
def toy_batch(spec=SPEC, seed=0, rows=64, hidden=(8,)):
    """A policy away from uniform, and a batch drawn from it."""
    rng = np.random.default_rng(seed)

    @jax.jit
    def draw(obs, noise):
        policy = stochastic_policy(jax.random.key(seed), spec.obs_dim, spec.action_space, hidden)
        policy = jax.tree.map(jnp.add, policy, noise)
        return policy, policy(obs).sample(jax.random.key(seed + 1))

    like = jax.eval_shape(lambda: stochastic_policy(jax.random.key(0), spec.obs_dim, spec.action_space, hidden))
    noise = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape).astype(np.float32), like)
    obs = rng.normal(size=(rows, spec.obs_dim)).astype(np.float32)
    policy, sample = draw(obs, noise)
    reward, costs = rng.normal(size=rows).astype(np.float32), rng.normal(size=(rows, spec.num_costs))
    costs = (costs - costs.mean(0)).astype(np.float32)
    reward = (reward - reward.mean()) / reward.std()
    return policy, Batch(obs, sample, reward, costs, np.float32([3.0, 4.0]), np.float32(8.0))


def moved(before, after):
    """Largest change of every array."""
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return [float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in leaves]
