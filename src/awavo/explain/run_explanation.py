"""Explain the policies of a run: episodes with a push, their unpushed twins, and what moved each action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from awavo.errors import InputError
from awavo.explain.factors import Factor, coalition_models
from awavo.explain.measures import influences, shapley, total_variation
from awavo.explain.policy import distribution_weights, greedy_necessity
from awavo.explain.task_factors import Seen
from awavo.types import Algorithm, Env

__all__ = ["PolicyTrace", "explain_policies"]


class PolicyTrace(NamedTuple):
    """Episodes first, then time: measures by factor, all factors together, the task's costs, whether it was running.

    `necessity` is that of the most probable action.
    """

    influence: Float[Array, "E T F"]
    shares: Float[Array, "E T F"]
    together: Float[Array, "E T"]
    necessity: Float[Array, "E T F"]
    obs: Float[Array, "E T d"]
    costs: Float[Array, "E T C"]
    running: Bool[Array, "E T"]


def _play(
    env: Env, act: Callable[[Array], Array], key: Array, push: tuple[int, Array], at: int, steps: int
) -> tuple[Array, Array, Array]:
    """Observations and costs of one greedy episode, pushed before step `at`; after its end it stands still."""
    state, obs = env.reset(jax.random.fold_in(key, 2**20), env.params)

    def one(carry, t):
        state, obs, running = carry
        inner = state.inner.at[push[0]].add(jnp.where(t == at, push[1], 0.0))
        # The push is seen at once: the observation follows the state's change of speed.
        obs = jnp.where(t == at, obs.at[obs.shape[0] - state.inner.shape[0] + push[0]].add(push[1]), obs)
        new, out = env.step(jax.random.fold_in(key, t), state._replace(inner=inner), act(obs), env.params)
        done = out.terminated | out.truncated
        keep = (obs, out.costs, running)
        return (new, jnp.where(running, out.obs, obs), running & ~done), keep

    return jax.lax.scan(one, (state, obs, jnp.array(True)), jnp.arange(steps))[1]


def explain_policies(
    env: Env,
    algorithm: Algorithm,
    states: Sequence[PyTree],
    factors: Sequence[Factor],
    *,
    push: tuple[int, float],
    episodes: int = 8,
    steps: int = 200,
    seed: int = 0,
) -> list[PolicyTrace]:
    """Play pairs of episodes that differ by the push alone; compare each policy in every coalition of factors."""
    policy = algorithm.policy
    if policy is None:
        raise InputError("this algorithm has no policy network: its decisions come from its planner alone.")

    def episode(key, state):
        def act(obs):
            return algorithm.act(jax.random.key(0), state, obs[None], True)[0][0]

        def weigh(obs, unpushed):
            views = jnp.stack([world.obs for world in coalition_models(factors, Seen(obs, unpushed))])
            distributions = policy(state, views)
            weights = distribution_weights(distributions, key)
            game = total_variation(weights, weights[0])
            return influences(weights), shapley(game), game[-1], greedy_necessity(distributions)

        # One program plays both: two would round differently, and a chaotic system makes much of that.
        sizes = jnp.array([push[1], 0.0])
        obs, costs, running = jax.lax.map(lambda x: _play(env, act, key, (push[0], x), steps // 2, steps), sizes)
        return PolicyTrace(*jax.vmap(weigh)(*obs), obs[0], costs[0], running[0])

    # The policy is an argument, so that the seeds of a run share one compiled program.
    play = jax.jit(lambda keys, state: jax.lax.map(lambda key: episode(key, state), keys))
    keys = jax.random.split(jax.random.key(seed), episodes)
    return [jax.tree.map(np.asarray, play(keys, state)) for state in states]
