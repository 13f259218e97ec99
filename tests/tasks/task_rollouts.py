"""Rollouts of functional environments for the tests of this folder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def simulate(env, actions, *, seed=0, policy=None):
    """Observations and Timesteps [T, E, ...] under `actions` [T, E], or under `policy(obs, action)` of them."""

    def advance(state_obs, inputs):
        (state, obs), (keys, action) = state_obs, inputs
        action = action if policy is None else jax.vmap(policy)(obs, action)
        state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, env.params)
        return (state, out.obs), (obs, out)

    # Most of the time of these tests is compilation; unoptimised code is enough.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(keys, actions):
        start = jax.vmap(env.reset, (0, None))(keys[0], env.params)
        return jax.lax.scan(advance, start, (keys[1:], actions))[1]

    steps, number = actions.shape[:2]
    keys = jax.random.split(jax.random.key(seed), (steps + 1, number))
    return jax.device_get(run(keys, jnp.asarray(actions)))


def first_episodes(out):
    """Totals of reward and costs over the first episode of each environment."""
    done = out.terminated | out.truncated
    alive = np.cumsum(done, 0) - done == 0
    return (out.reward * alive).sum(0), (out.costs * alive[..., None]).sum(0)
