"""Fresh episodes of a frozen policy: what its critics said at one step of each, and the return that followed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from awavo.training.rollout import start_envs
from awavo.types import Algorithm, Critics, Env

__all__ = ["CriticSamples", "critic_samples", "tail_length"]

TAIL = 1e-3


class CriticSamples(NamedTuple):
    """Quantiles `[N, 1+C, M]`, discounted returns `[N, 1+C]`, and whether each return was cut by a time limit."""

    quantiles: Float[Array, "N signals M"]
    returns: Float[Array, "N signals"]
    cut: Bool[Array, " N"]


def tail_length(discount: float) -> int:
    """Steps after which the rest of a discounted return is below a thousandth of its range."""
    return max(1, math.ceil(math.log(TAIL) / math.log(discount))) if discount > 0 else 1


def critic_samples(
    env: Env,
    algorithm: Algorithm,
    critics: Critics[PyTree],
    *,
    num: int,
    latest_start: int,
    discount: float,
) -> Callable[[Array, PyTree], CriticSamples]:
    """Build `run(key, state)`: the critics are asked in one step of each of `num` environments, before `latest_start`.

    The exploring policy acts throughout, as the critics learn its returns. An episode that ends stops its return; what
    the critics were told to count after a termination is added there.
    """
    length = latest_start + tail_length(discount)

    def run(key: Array, state: PyTree) -> CriticSamples:
        start_key, reset_key, step_key = jax.random.split(key, 3)
        starts = jax.random.randint(start_key, (num,), 0, latest_start)
        worker = start_envs(reset_key, env, num)
        signals = 1 + env.spec.num_costs
        later = critics.after_end(state) if critics.after_end is not None else jnp.zeros(signals)
        shape = jax.eval_shape(critics.quantiles, state, worker.obs, jax.eval_shape(act, step_key, state, worker.obs))

        def step(carry: PyTree, inputs: tuple[Array, Array]) -> tuple[PyTree, None]:
            env_state, obs, quantiles, total, running, cut = carry
            time, key = inputs
            act_key, env_key = jax.random.split(key)
            action = act(act_key, state, obs)
            begins = time == starts
            said = critics.quantiles(state, obs, action)
            quantiles = jnp.where(begins[:, None, None], said, quantiles)
            running = running | begins
            env_state, out = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(env_key, num), env_state, action, env.params
            )
            # The return that was asked about starts to be discounted where it was asked.
            decay: Array = discount ** (time - starts).astype(jnp.float32)
            weight: Array = jnp.where(running, decay, 0.0)
            gained = jnp.concatenate([out.reward[:, None], out.costs], 1)
            total = total + weight[:, None] * (gained + discount * out.terminated[:, None] * later)
            cut = cut | (running & out.truncated)
            ended = (out.terminated | out.truncated) & (time >= starts)
            return (env_state, out.obs, quantiles, total, running & ~ended, cut), None

        none = jnp.zeros(num, bool)
        carry = (worker.env_state, worker.obs, jnp.zeros(shape.shape), jnp.zeros((num, signals)), none, none)
        times = jnp.arange(length)
        last, _ = jax.lax.scan(step, carry, (times, jax.random.split(step_key, length)))
        return CriticSamples(last[2], last[3], last[5])

    def act(key: Array, state: PyTree, obs: Array) -> Array:
        return algorithm.act(key, state, obs, False)[0]

    return run
