"""Explain the policies of a run: episodes with a push, their unpushed twins, and what moved each action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from awavo.explain.factors import Factor, coalition_models
from awavo.explain.measures import influences, shapley, total_variation
from awavo.explain.policy import law_weights, policy_law
from awavo.explain.task_factors import Seen
from awavo.types import Algorithm, Env

__all__ = ["PolicyTrace", "explain_policy"]


class PolicyTrace(NamedTuple):
    """Episodes first, then time: influences and shares by factor, all of them together, and whether it was running."""

    influence: Any
    shares: Any
    together: Any
    obs: Any
    running: Any


def _play(env: Env, act: Callable[[Array], Array], key: Array, push: tuple[int, float], at: int, steps: int):
    """Observations of one greedy episode, pushed before step `at`; after its end it stands still."""
    state, obs = env.reset(jax.random.fold_in(key, 2**20), env.params)

    def one(carry, t):
        state, obs, running = carry
        inner = state.inner.at[push[0]].add(jnp.where(t == at, push[1], 0.0))
        # The push is seen at once: the observation follows the state's change of speed.
        obs = jnp.where(t == at, obs.at[obs.shape[0] - state.inner.shape[0] + push[0]].add(push[1]), obs)
        new, out = env.step(jax.random.fold_in(key, t), state._replace(inner=inner), act(obs), env.params)
        done = out.terminated | out.truncated
        keep = (obs, running)
        return (new, jnp.where(running, out.obs, obs), running & ~done), keep

    return jax.lax.scan(one, (state, obs, jnp.array(True)), jnp.arange(steps))[1]


def explain_policy(
    env: Env,
    algorithm: Algorithm,
    state: Any,
    factors: Sequence[Factor],
    *,
    push: tuple[int, float],
    episodes: int = 8,
    steps: int = 200,
    seed: int = 0,
) -> PolicyTrace:
    """Play pairs of episodes that differ by the push alone; compare the policy's law in every coalition of factors."""

    def episode(key, state):
        law = policy_law(state)

        def act(obs):
            return algorithm.act(jax.random.key(0), state, obs[None], True)[0][0]

        def weigh(obs, unpushed):
            views = jnp.stack([world.obs for world in coalition_models(factors, Seen(obs, unpushed))])
            weights = law_weights(law(views), key)
            game = total_variation(weights, weights[0])
            return influences(weights), shapley(game), game[-1]

        pushed, running = _play(env, act, key, push, steps // 2, steps)
        twin, _ = _play(env, act, key, (push[0], 0.0), steps // 2, steps)
        return PolicyTrace(*jax.vmap(weigh)(pushed, twin), pushed, running)

    # The policy is an argument, so that the seeds of a run share one compiled program.
    play = jax.jit(lambda keys, state: jax.lax.map(lambda key: episode(key, state), keys))
    return jax.tree.map(np.asarray, play(jax.random.split(jax.random.key(seed), episodes), state))
