r"""Inference at decision time: from an observation to a posterior over action sequences (Algorithm 2, lines 6 and 7).

.. code-block:: text

    1  K sequences: from the actor inside the model, from the shifted posterior of the step before, from the prior
    2  R, G_i of each in every member: sum of gamma^k h over N steps while alive, and the critics at the end
    3  log p(O | tau) = log sum_m w_m exp( w_r log p(O_r | R_m) + sum_i w_i log p(O_gi | G_im) )      over p_D(theta)
    4  nu = sum_k w_k delta(A_k),  w_k ~ p(O | tau_k)^(1/T),  T from the effective share of candidates asked for, or 1
    5  q <- a few steps of A-GSWD(q, nu) from the shifted posterior; rounds of 1 to 5, each proposing from the q before
    6  act by the first step of q: a sample, or its mode or mean

Discrete actions: q is a categorical law per step. Continuous ones, scaled to [-1, 1]: P particles in R^(N d).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.awavo_config import AwavoConfig
from awavo.inference.ensemble import Ensemble, EnsembleModel, Prediction
from awavo.inference.wvi import effective_sample_size, move_particles, move_probabilities, tempered_weights
from awavo.transport.defining import Defining, LinearForms, Polynomial
from awavo.types import ActionSpace, Box, Discrete, EnvSpec

__all__ = [
    "Beliefs",
    "Decision",
    "action_defining",
    "ensemble_beliefs",
    "planner",
    "predicted_beliefs",
    "slice_shape",
    "start_plan",
    "to_box",
]

MAX_MONOMIAL_DIM = 4


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


def action_defining(spec: EnvSpec, config: AwavoConfig) -> Defining:
    """The defining function of the space q lives in: monomials in few dimensions, powers of linear forms in many."""
    if isinstance(spec.action_space, Discrete) and spec.action_space.num <= MAX_MONOMIAL_DIM:
        return Polynomial(config.degree)
    return LinearForms(num_forms=1 if config.degree == 1 else 4, degree=config.degree)


def slice_shape(spec: EnvSpec, config: AwavoConfig) -> tuple[int, int]:
    """(L, c) of one decision's slices."""
    space = spec.action_space
    dim = space.num if isinstance(space, Discrete) else config.horizon * space.dim
    return config.num_slices, action_defining(spec, config).num_coefficients(dim)


def start_plan(spec: EnvSpec, config: AwavoConfig) -> Array:
    """Q at the start of an episode: uniform, or particles at the centre (the prior's candidates spread them)."""
    if isinstance(spec.action_space, Discrete):
        return jnp.full((config.horizon, spec.action_space.num), 1.0 / spec.action_space.num)
    return jnp.zeros((config.num_particles, config.horizon, spec.action_space.dim))


def shift_plan(space: ActionSpace, plan: Array) -> Array:
    """The posterior one step later: its last step is unknown again."""
    if isinstance(space, Discrete):
        return jnp.concatenate([plan[1:], jnp.full_like(plan[:1], 1.0 / plan.shape[1])])
    return jnp.concatenate([plan[:, 1:], plan[:, -1:]], 1)


def to_box(space: Box, unit: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From [-1, 1] to the box."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (high + low) / 2 + (high - low) / 2 * jnp.clip(unit, -1.0, 1.0)


def to_unit(space: Box, action: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From the box to [-1, 1]."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (2 * action - high - low) / (high - low)


def planner(spec: EnvSpec, config: AwavoConfig) -> Callable[..., Decision]:
    """Build `decide(key, beliefs, obs [d], plan, slices [L, c]) -> Decision`."""
    space = spec.action_space
    discrete = isinstance(space, Discrete)
    num, horizon = config.num_sequences, config.horizon
    num_actor = round(config.actor_share * num)
    num_memory = min(round(config.memory_share * num), num - num_actor)
    defining = action_defining(spec, config)
    discounts = config.discount ** jnp.arange(horizon)

    # All random numbers and all that needs no imagined state are drawn before the loop over the horizon.
    def prepare_discrete(key, plan):
        memory = jnp.broadcast_to(plan[:, None], (horizon, num_memory, space.num))
        prior = jnp.full((horizon, num - num_actor - num_memory, space.num), 1.0 / space.num)
        others = jnp.log(jnp.concatenate([memory, prior], 1) + 1e-6)
        return jax.random.gumbel(key, (horizon, num, space.num)), others

    def propose_discrete(prepared, beliefs, obs):
        noise, others = prepared
        actor = jax.nn.softmax(beliefs.policy(obs).logits)
        mixed = (1 - config.proposal_noise) * actor + config.proposal_noise / space.num
        return jnp.argmax(jnp.concatenate([jnp.log(mixed), others]) + noise, -1)

    def prepare_box(key, plan):
        actor_key, noise_key, prior_key = jax.random.split(key, 3)
        rows = jnp.swapaxes(plan, 0, 1)[:, jnp.arange(num_memory) % config.num_particles]
        noise = config.proposal_noise * jax.random.normal(noise_key, (horizon, num_actor + num_memory, space.dim))
        shape = (horizon, num - num_actor - num_memory, space.dim)
        prior = jax.random.uniform(prior_key, shape, minval=-1.0, maxval=1.0)
        others = jnp.concatenate([rows + noise[:, num_actor:], prior], 1)
        return jax.random.split(actor_key, horizon), noise[:, :num_actor], jnp.clip(others, -1.0, 1.0)

    def propose_box(prepared, beliefs, obs):
        key, noise, others = prepared
        actor = to_unit(space, beliefs.policy(obs).sample(key)) + noise
        return jnp.concatenate([jnp.clip(actor, -1.0, 1.0), others])

    def imagine(key, beliefs, obs, plan):
        """Candidates `[N, K, ...]` and the signals `[M, K, 1 + C]` of their returns."""
        members = beliefs.log_weights.shape[0]
        weights = jnp.exp(beliefs.log_weights)
        prepare, propose = (prepare_discrete, propose_discrete) if discrete else (prepare_box, propose_box)

        def advance(obs, prepared):
            action = propose(prepared, beliefs, jnp.einsum("m,mkd->kd", weights, obs[:, :num_actor]))
            next_obs, told = beliefs.advance(obs, action if discrete else to_box(space, action))
            return next_obs, (obs, action, next_obs, told)

        start = jnp.broadcast_to(obs, (members, num, obs.shape[-1]))
        last, (visited, actions, reached, told) = jax.lax.scan(advance, start, prepare(key, plan))
        executed = actions if discrete else to_box(space, actions)
        signals, ended = beliefs.tell(told, visited, executed, reached)
        alive = jnp.cumprod(1 - ended, 0)
        running = discounts[:, None, None] * jnp.concatenate([jnp.ones_like(alive[:1]), alive[:-1]])
        total = jnp.sum(running[..., None] * signals, 0)
        return actions, total + config.discount**horizon * alive[-1, ..., None] * beliefs.values(last)

    def one_round(beliefs: Beliefs, obs: Array, q: Array, slices: Array, key: Array) -> tuple[Array, Any]:
        """Draw, weigh, move: q afterwards, and what explains it."""
        imagine_key, pick_key = jax.random.split(key)
        actions, signals = imagine(imagine_key, beliefs, obs, q)
        likelihoods = beliefs.log_optimality(signals)
        log_likelihood = jax.nn.logsumexp(beliefs.log_weights[:, None] + likelihoods, 0)
        if config.effective_share > 0:
            weights, temperature = tempered_weights(log_likelihood, max(config.effective_share * num, 1.0))
        else:
            weights, temperature = jax.nn.softmax(log_likelihood), jnp.ones(())
        if discrete:
            target = jnp.einsum("k,nka->na", weights, jax.nn.one_hot(actions, space.num))
            moved, distance = target, jnp.zeros(())
            if config.metric == "a-gswd":
                moved, left = move_probabilities(q, target, slices, **steps)
                distance = jnp.mean(left)
        else:
            target = jnp.swapaxes(actions, 0, 1).reshape(num, -1)
            flat = q.reshape(config.num_particles, -1)
            if config.metric == "a-gswd":
                flat, distance = move_particles(flat, target, weights, slices, **steps)
            else:
                flat, distance = target[resample(pick_key, weights, config.num_particles)], jnp.zeros(())
            moved = jnp.clip(flat, -1.0, 1.0).reshape(q.shape)
        return moved, (q, target, weights, log_likelihood, effective_sample_size(weights), temperature, distance)

    def decide(key: Array, beliefs: Beliefs, obs: Array, plan: Array, slices: Array) -> Decision:
        keys = jax.random.split(key, config.num_rounds)
        q, rounds = jax.lax.scan(lambda q, k: one_round(beliefs, obs, q, slices, k), shift_plan(space, plan), keys)
        return Decision(q, *(values[-1] for values in rounds))

    steps: dict[str, Any] = dict(defining=defining, order=config.order, num_steps=config.num_steps)
    return decide


def resample(key: Array, weights: Float[Array, " K"], num: int) -> Array:
    """Systematic resampling: indices whose counts differ from the expected ones by less than 1."""
    points = (jnp.arange(num) + jax.random.uniform(key)) / num
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), points), weights.shape[0] - 1)
