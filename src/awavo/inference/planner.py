r"""Inference at decision time: from an observation to a posterior over action sequences.

.. code-block:: text

    a  K sequences: from the actor inside the model, from the shifted posterior of the step before, from the prior
    b  R, G_i of each in every member: sum of gamma^k h over N steps while alive, and the critics at the end; members
       of known physics follow draws of their spread, the same for all candidates
    c  log p(O | tau) = log sum_m w_m exp( w_r log p(O_r | R_m) + sum_i w_i log p(O_gi | G_im) )      over p_D(theta)
    d  nu = sum_k w_k delta(A_k),  w_k ~ p(O | tau_k)^(1/T),  T from the effective share of the candidates
    e  q <- a few steps of A-GSWD(q, nu) from the shifted posterior
    f  act by the first step of q: a sample, or its mode or mean

This is lines 6 and 7 of the paper's Algorithm 2; the letters here are this file's own. The distributions q, their
proposals and moves are in `sequences`: categorical for discrete actions, particles for continuous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from awavo.inference.ensemble import Ensemble, EnsembleModel, Prediction
from awavo.inference.sequences import PlanningConfig, sequences, shares
from awavo.inference.wvi import effective_sample_size, tempered_weights
from awavo.networks.distributions import ActionDistribution
from awavo.types import EnvSpec

__all__ = ["Decision", "PlanningModel", "ensemble_steps", "planner", "predicted_steps"]

# Effective share of the candidates, which sets T.
EFFECTIVE_SHARE = 0.04

# Of a model of M members: one step, with what it says of it at once, and what N steps meant once all are known.
Advance = Callable[[Array, Array, Array], tuple[Array, PyTree]]
Outcomes = Callable[[PyTree, Array, Array, Array], tuple[Array, Array]]


class PlanningModel(NamedTuple):
    """What a decision rests on, as functions of (batches of) raw observations `[..., d]`.

    `advance(obs [M, K, d], action [K], noise [M, 1, d]) -> (next_obs, said)` moves M members with log-weights
    `log_weights` by one step; `noise` is standard normal, for members that follow draws of their spread;
    `outcomes(said, obs [N, M, K, d], action [N, K], next_obs) -> (signals [N, M, K, 1 + C], terminated)` are those of N
    steps; `policy(obs)` is an action distribution, `values(obs) -> [..., 1 + C]` are the critics' means under it;
    `log_optimality(signals)`.
    """

    advance: Advance
    outcomes: Outcomes
    log_weights: Float[Array, " M"]
    policy: Callable[[Array], ActionDistribution]
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


def ensemble_steps(dynamics: EnsembleModel, model: Ensemble) -> tuple[Advance, Outcomes]:
    """`advance` and `outcomes` of a learnt ensemble."""
    model = dynamics.fold(model)

    # On a CPU what a step means is asked while it is in the cache; elsewhere all N steps are one batch.
    at_once = jax.default_backend() == "cpu"

    def advance(obs, action, noise):
        # Along its mean: what a network is not sure of while it learns is error more than chance (docs/inference.md).
        next_obs = dynamics.advance(model, obs, action)[0]
        return next_obs, meaning(obs, action, next_obs) if at_once else ()

    def meaning(obs, action, next_obs):
        reward, costs, ended = dynamics.outcomes(model, obs, action, next_obs)
        return jnp.concatenate([reward[..., None], costs], -1), ended

    def outcomes(said, obs, action, next_obs):
        if at_once:
            return said
        # The member axis goes first.
        signals, ended = meaning(jnp.swapaxes(obs, 0, 1), action, jnp.swapaxes(next_obs, 0, 1))
        return jnp.swapaxes(signals, 0, 1), jnp.swapaxes(ended, 0, 1)

    return advance, outcomes


def predicted_steps(predict: Callable[[Array, Array], Prediction]) -> tuple[Advance, Outcomes]:
    """`advance` and `outcomes` of a model that says everything at once, such as parametric physics.

    Its members follow draws of the spread that it predicts.
    """

    def advance(obs, action, noise):
        guess = predict(obs, action)
        return guess.next_obs + guess.std * noise, (
            jnp.concatenate([guess.reward[..., None], guess.costs], -1),
            guess.terminated,
        )

    return advance, lambda said, obs, action, next_obs: said


def planner(spec: EnvSpec, config: PlanningConfig) -> Callable[[Array, PlanningModel, Array, Array, Array], Decision]:
    """Build `decide(key, model, obs [d], plan, slices [L, c]) -> Decision`."""
    distributions = sequences(spec.action_space, config)
    num, horizon = config.num_sequences, config.horizon
    num_actor = shares(config)[0]
    discounts = config.discount ** jnp.arange(horizon)

    def imagine(key: Array, model: PlanningModel, obs: Array, q: Array) -> tuple[Array, Array]:
        """Candidates `[N, K, ...]` and the signals `[M, K, 1 + C]` of their returns."""
        members = model.log_weights.shape[0]
        weights = jnp.exp(model.log_weights)

        def advance(obs, drawn):
            prepared, noise = drawn
            # The actor proposes in the members' mean state, the same action for all of them.
            policy = model.policy(jnp.einsum("m,mkd->kd", weights, obs[:, :num_actor]))
            action = distributions.propose(prepared, policy)
            next_obs, said = model.advance(obs, distributions.execute(action), noise)
            return next_obs, (obs, action, next_obs, said)

        start = jnp.broadcast_to(obs, (members, num, obs.shape[-1]))
        # Members differ in what they are and in what befalls them; every candidate meets the same.
        noise = jax.random.normal(jax.random.fold_in(key, 1), (horizon, members, 1, obs.shape[-1]))
        drawn = (distributions.prepare(key, q), noise)
        last, (visited, actions, reached, said) = jax.lax.scan(advance, start, drawn)
        signals, ended = model.outcomes(said, visited, distributions.execute(actions), reached)
        # A step counts in full where no step before it has ended the episode.
        alive = jnp.cumprod(1 - ended, 0)
        running = discounts[:, None, None] * jnp.concatenate([jnp.ones_like(alive[:1]), alive[:-1]])
        total = jnp.sum(running[..., None] * signals, 0)
        return actions, total + config.discount**horizon * alive[-1, ..., None] * model.values(last)

    def decide(key: Array, model: PlanningModel, obs: Array, plan: Array, slices: Array) -> Decision:
        q = distributions.shift(plan)
        imagine_key, move_key = jax.random.split(key)
        actions, signals = imagine(imagine_key, model, obs, q)  # a, b
        log_likelihood = jax.nn.logsumexp(model.log_weights[:, None] + model.log_optimality(signals), 0)  # c
        weights, temperature = tempered_weights(log_likelihood, max(EFFECTIVE_SHARE * num, 1.0))  # d
        moved, target, distance = distributions.move(move_key, q, actions, weights, slices)  # e
        size = effective_sample_size(weights)
        return Decision(moved, q, target, weights, log_likelihood, size, temperature, distance)

    return decide
