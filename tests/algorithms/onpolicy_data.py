"""Small tasks, rollouts and batches for the baselines' tests."""

import jax
import jax.numpy as jnp
import numpy as np

from awavo.algorithms.estimation import Batch
from awavo.networks.stochastic import stochastic_policy
from awavo.types import Box, Discrete, EnvSpec, Rollout

SPEC = EnvSpec("toy", 3, Discrete(3), 10, ("a", "b"), (5.0, 5.0))
CONTINUOUS = SPEC._replace(action_space=Box((-1.0, -2.0), (1.0, 2.0)))


def toy_rollout(algorithm, state, spec=SPEC, seed=0, costs=(0.0, 0.0), steps=8, envs=4):
    """Random observations, the algorithm's own actions; every episode ends in the last step with the given totals."""
    rng = np.random.default_rng(seed)
    obs = jnp.asarray(rng.normal(size=(steps, envs, spec.obs_dim)), jnp.float32)
    keys = jax.random.split(jax.random.key(seed), steps)
    play = jax.jit(lambda state, rows: jax.lax.map(lambda row: algorithm.act(row[0], state, row[1], False), rows))
    action, extras = play(state, (keys, obs))
    last = jnp.zeros((steps, envs), bool).at[-1].set(True)
    reward = jnp.asarray(rng.normal(size=(steps, envs)), jnp.float32)
    step_costs = jnp.asarray(rng.uniform(size=(steps, envs, spec.num_costs)), jnp.float32)
    totals = jnp.broadcast_to(jnp.asarray(costs, jnp.float32), step_costs.shape)
    length = jnp.full((steps, envs), steps, jnp.int32)
    return Rollout(obs, action, extras, reward, step_costs, ~last & last, last, obs + 1, reward, totals, length)


def toy_batch(spec=SPEC, seed=0, rows=64, hidden=(8,)):
    """A policy away from uniform, and a batch drawn from it."""
    rng = np.random.default_rng(seed)
    policy = stochastic_policy(jax.random.key(seed), spec.obs_dim, spec.action_space, hidden)
    policy = jax.tree.map(lambda x: x + 0.3 * jnp.asarray(rng.normal(size=x.shape), jnp.float32), policy)
    obs = jnp.asarray(rng.normal(size=(rows, spec.obs_dim)), jnp.float32)
    sample = policy(obs).sample(jax.random.key(seed + 1))
    reward = jnp.asarray(rng.normal(size=rows), jnp.float32)
    costs = jnp.asarray(rng.normal(size=(rows, spec.num_costs)), jnp.float32)
    costs = costs - costs.mean(0)
    reward = (reward - reward.mean()) / reward.std()
    return policy, Batch(obs, sample, reward, costs, jnp.asarray([3.0, 4.0]), jnp.asarray(8.0))


def moved(before, after):
    return [float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)]
