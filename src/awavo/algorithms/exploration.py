r"""How environments explore with continuous actions, and how long their training episodes are at first.

**Four kinds.** Of every four environments two act with the policy's own noise, drawn anew at each step; one with noise
that lasts, of which a share 1/2, 3/4, 7/8 or 15/16 is kept from step to step, so that at any one step it is the
policy's own and over several it carries a body farther than trembling does; and one decides greedily, as the policy
will when it is used. What the greedy one costs counts (`constraints.with_greedy_excess`): a policy without its noise
can be faster, and cost more, than the same policy with it.

**Random actions first.** In larger tasks (`sizes.is_small`) the two with fresh noise act uniformly at random until the
first gradient step. A policy that begins near the middle of its box shows the critics nothing else, and a body whose
first learnt movement throws it on its back learns to crawl there: HalfCheetah did, on one or two seeds of ten.

**Short episodes first.** An episode that explores is cut at an age that grows with the training,

.. math::  H \, (1/16 + n / (128 H)) \quad \text{after n environment steps, H the horizon},

and another one begins. A body that falls on its back in its first episode would otherwise spend the rest of it there,
in all environments at once, and learn to crawl on its back; so it does, less often, where the greedy environments alone
live on. With thousands of environments the age is past the horizon before any episode is that old.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["GREEDY_EVERY", "cut_ages", "greedy_environments", "lasting_noise", "random_environments", "start_noise"]

# One environment in so many decides greedily; how many different memories noise that lasts has.
GREEDY_EVERY, MEMORIES = 4, 4
# Age at which the first episodes are cut, as a share of the horizon, and after how many horizons of steps it has grown
# by a whole one.
FIRST_AGE, GROWTH = 1 / 16, 128.0


def greedy_environments(num_envs: int) -> Bool[Array, " E"]:
    """Which environments decide greedily in training: the last of every four."""
    return jnp.arange(num_envs) % GREEDY_EVERY == GREEDY_EVERY - 1


def random_environments(num_envs: int) -> Bool[Array, " E"]:
    """Which environments act at random in the warm-up: the first and the third of every four, whose noise is fresh."""
    return jnp.arange(num_envs) % 2 == 0


def start_noise(num_envs: int, dim: int) -> Float[Array, "E m"]:
    """Memory of the noise before the first step: whether it has begun, and its last value."""
    return jnp.zeros((num_envs, 1 + dim))


def lasting_noise(key: Array, memory: Float[Array, "E m"]) -> tuple[Float[Array, "E d"], Float[Array, "E m"]]:
    """Standard normal noise of every environment at this step, and its memory; the second of every four lasts."""
    number = jnp.arange(memory.shape[0])
    lasts = number % GREEDY_EVERY == 1
    kept = jnp.where(lasts, 1.0 - 0.5 ** (1 + number // GREEDY_EVERY % MEMORIES), 0.0)[:, None]
    begun, before = memory[:, :1], memory[:, 1:]
    fresh = jax.random.normal(key, before.shape)
    noise = jnp.where(begun > 0, kept * before + jnp.sqrt(1.0 - kept**2) * fresh, fresh)
    return noise, jnp.concatenate([jnp.ones_like(begun), noise], -1)


def cut_ages(steps: Int[Array, ""], num_envs: int, horizon: int) -> Float[Array, " E"]:
    """Ages at which episodes are cut, so many environment steps into the training."""
    age = horizon * FIRST_AGE + steps / GROWTH
    # What reaches its horizon ends by itself.
    return jnp.broadcast_to(jnp.where(age >= horizon, jnp.inf, age), (num_envs,))
