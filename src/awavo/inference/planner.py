r"""Inference at decision time: from an observation to a posterior over action sequences (Algorithm 2, lines 6 and 7).

.. code-block:: text

    1  K sequences: from the actor inside the model, from the shifted posterior of the step before, from the prior
    2  R, G_i of each in every member: sum of gamma^k h over N steps while alive, and the critics at the end
    3  log p(O | tau) = log sum_m w_m exp( w_r log p(O_r | R_m) + sum_i w_i log p(O_gi | G_im) )      over p_D(theta)
    4  nu = sum_k w_k delta(A_k),  w_k ~ p(O | tau_k)^(1/T),  T from the effective share of candidates asked for, or 1
    5  q <- a few steps of A-GSWD(q, nu) from the shifted posterior, or from the actor's candidates where the space is
       too large for few slices; rounds of 1 to 5, each proposing from the q before
    6  act by the first step of q: a sample, or its mode or mean

The laws q, their proposals and moves are in `sequences`: categorical for discrete actions, particles for continuous.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms.awavo_config import AwavoConfig
from awavo.inference.ensemble import Ensemble, EnsembleModel, Prediction
from awavo.inference.sequences import sequences, shares
from awavo.inference.wvi import effective_sample_size, tempered_weights
from awavo.types import EnvSpec

__all__ = ["Beliefs", "Decision", "ensemble_beliefs", "planner", "predicted_beliefs"]


class Beliefs(NamedTuple):
    """What a decision rests on, as functions of (batches of) raw observations `[..., d]`.

    `advance(obs [M, K, d], action [K]) -> (next_obs, told)` moves M members with log-weights `log_weights` by one step;
    `tell(told, obs [N, M, K, d], action [N, K], next_obs) -> (signals [N, M, K, 1 + C], terminated)` says what N steps
    meant, once all are known; `policy(obs)` is an action distribution, `values(obs) -> [..., 1 + C]` are the critics'
    means under it; `log_optimality(signals)`.
    """

    advance: Callable[[Array, Array], tuple[Array, Any]]
    tell: Callable[[Any, Array, Array, Array], tuple[Array, Array]]
    log_weights: Float[Array, " M"]
    policy: Callable[[Array], Any]
    values: Callable[[Array], Array]
    log_optimality: Callable[[Array], Array]


class Decision(NamedTuple):
    """A posterior and what explains it: `target` is nu, as marginals `[N, A]` or as candidates `[K, N d]`."""

    plan: Array
    before: Array
    target: Array
    weights: Float[Array, " K"]
    log_likelihood: Float[Array, " K"]
    effective_size: Float[Array, ""]
    temperature: Float[Array, ""]
    distance: Float[Array, ""]


def ensemble_beliefs(dynamics: EnsembleModel, model: Ensemble) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`advance` and `tell` of a learnt ensemble."""
    model = dynamics.fold(model)

    def advance(obs, action):
        return dynamics.advance(model, obs, action)[0], ()

    def tell(told, obs, action, next_obs):
        # The member axis goes first; all N steps are one batch.
        obs, next_obs = (jnp.swapaxes(x, 0, 1) for x in (obs, next_obs))
        reward, costs, ended = dynamics.tell(model, obs, action, next_obs)
        signals = jnp.concatenate([reward[..., None], costs], -1)
        return jnp.swapaxes(signals, 0, 1), jnp.swapaxes(ended, 0, 1)

    return advance, tell


def predicted_beliefs(predict: Callable[[Array, Array], Prediction]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`advance` and `tell` of a model that says everything at once, such as parametric physics."""

    def advance(obs, action):
        guess = predict(obs, action)
        return guess.next_obs, (jnp.concatenate([guess.reward[..., None], guess.costs], -1), guess.terminated)

    return advance, lambda told, obs, action, next_obs: told


def planner(spec: EnvSpec, config: AwavoConfig) -> Callable[..., Decision]:
    """Build `decide(key, beliefs, obs [d], plan, slices [L, c]) -> Decision`."""
    laws = sequences(spec.action_space, config)
    num, horizon = config.num_sequences, config.horizon
    num_actor = shares(config)[0]
    discounts = config.discount ** jnp.arange(horizon)

    def imagine(key: Array, beliefs: Beliefs, obs: Array, q: Array) -> tuple[Array, Array]:
        """Candidates `[N, K, ...]` and the signals `[M, K, 1 + C]` of their returns."""
        members = beliefs.log_weights.shape[0]
        weights = jnp.exp(beliefs.log_weights)

        def advance(obs, prepared):
            policy = beliefs.policy(jnp.einsum("m,mkd->kd", weights, obs[:, :num_actor]))
            action = laws.propose(prepared, policy)
            next_obs, told = beliefs.advance(obs, laws.execute(action))
            return next_obs, (obs, action, next_obs, told)

        start = jnp.broadcast_to(obs, (members, num, obs.shape[-1]))
        last, (visited, actions, reached, told) = jax.lax.scan(advance, start, laws.prepare(key, q))
        signals, ended = beliefs.tell(told, visited, laws.execute(actions), reached)
        alive = jnp.cumprod(1 - ended, 0)
        running = discounts[:, None, None] * jnp.concatenate([jnp.ones_like(alive[:1]), alive[:-1]])
        total = jnp.sum(running[..., None] * signals, 0)
        return actions, total + config.discount**horizon * alive[-1, ..., None] * beliefs.values(last)

    def one_round(beliefs: Beliefs, obs: Array, slices: Array, q: Array, key: Array) -> tuple[Array, Any]:
        """Draw, weigh, move: q afterwards, and what explains it."""
        imagine_key, move_key = jax.random.split(key)
        actions, signals = imagine(imagine_key, beliefs, obs, q)
        log_likelihood = jax.nn.logsumexp(beliefs.log_weights[:, None] + beliefs.log_optimality(signals), 0)
        if config.effective_share > 0:
            weights, temperature = tempered_weights(log_likelihood, max(config.effective_share * num, 1.0))
        else:
            weights, temperature = jax.nn.softmax(log_likelihood), jnp.ones(())
        q = laws.settle(q, actions)
        moved, target, distance = laws.move(move_key, q, actions, weights, slices)
        return moved, (q, target, weights, log_likelihood, effective_sample_size(weights), temperature, distance)

    def decide(key: Array, beliefs: Beliefs, obs: Array, plan: Array, slices: Array) -> Decision:
        keys = jax.random.split(key, config.num_rounds)
        q, rounds = jax.lax.scan(partial(one_round, beliefs, obs, slices), laws.shift(plan), keys)
        return Decision(q, *(values[-1] for values in rounds))

    return decide
