r"""Actor and quantile critics, and one gradient step of both on stored transitions.

.. code-block:: text

    Z^i  <- quantile Huber step towards  h_i + gamma (1 - terminated) Zbar^i(s', a'),  a' ~ pi(.|s'),  all i
            (with `backup_steps` n > 1: the n stored steps' discounted sum, and Zbar^i after them;
            `Objective.after_end` in the place of the 0 after a termination)
    pi   <- ascend  E[ w_r log p(O_r|s,a) + sum_i w_i log p(O_gi|s,a) ] + eta H(pi)
    Zbar <- Polyak average of Z,   and of pi for the actor that decides greedily

Discrete actions use the exact expectation over actions, continuous ones the pathwise derivative, of every component of
a mixture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from awavo.algorithms import replay as ring
from awavo.config import setting
from awavo.inference.operators import Operator
from awavo.inference.optimality import ReturnRange, log_optimality_fn
from awavo.networks import Actor, Categorical, RunningStatistics, SquashedMixture, actor, normalize
from awavo.networks.critic import CautiousCritic, QuantileCritic, cautious_critic, quantile_critic
from awavo.networks.mlp import unheard_at_first
from awavo.networks.normalizer import normalize_with_tails, num_inputs
from awavo.networks.optimize import adam, descend, optimizer_state, polyak_average
from awavo.networks.quantiles import bellman_targets, quantile_huber
from awavo.types import EnvSpec

__all__ = ["ActorCritic", "ActorCriticConfig", "GradientMetrics", "Imagine", "Learner", "Objective", "actor_critic"]

# Averaging rate of the actor that decides greedily; width of the quantile Huber loss, in units of the returns; largest
# gradient norm.
ACTOR_POLYAK, HUBER, MAX_GRAD_NORM = 0.005, 0.1, 10.0

# Transitions that a model adds to a batch: imagine(key, batch, policy).
Imagine = Callable[[Array, ring.Transitions, Actor], ring.Transitions]


@dataclass(frozen=True)
class ActorCriticConfig:
    """Settings of actor and critics, and of the data they learn from."""

    num_envs: int = setting(0, "environments stepped together; 0: by the rule of sizes", low=0, high=65_536)
    rollout_length: int = setting(
        0, "steps of each environment between updates; 0: by the rule of sizes", low=0, high=100_000
    )
    num_updates: int = setting(0, "gradient steps after each rollout; 0: by the rule of sizes", low=0, high=100_000)
    batch_size: int = setting(0, "transitions per gradient step; 0: by the rule of sizes", low=0, high=1_000_000)
    replay_capacity: int = setting(1_000_000, "transitions kept", low=1, high=1_000_000_000)
    warmup_steps: int = setting(
        0, "environment steps before the first update; 0: by the rule of sizes", low=0, high=1_000_000_000
    )
    hidden: tuple[int, ...] = setting((), "sizes of the hidden layers; none: by the rule of sizes", low=1, high=65_536)
    num_components: int = setting(
        1, "continuous actions: components of the policy, which keep ways apart", low=1, high=4
    )
    num_quantiles: int = setting(16, "quantiles M of each critic", low=1, high=1_024)
    num_critics: int = setting(2, "critics of each signal, of which the most pessimistic counts", low=1, high=16)
    discount: float = setting(0.99, "discount gamma of critics and plans", low=0.0, high=0.99999)
    backup_steps: int = setting(3, "stored steps n before a target bootstraps", low=1, high=1_000)
    actor_lr: float = setting(3e-4, "Adam step size of the actor", low=0.0, high=1.0)
    critic_lr: float = setting(5e-4, "Adam step size of the critics", low=0.0, high=1.0)
    polyak: float = setting(0.01, "averaging rate of the target critics", low=0.0, high=1.0)
    operator: str = setting(
        "logistic",
        "operator F between likelihoods and returns, or MODULE:NAME of one",
        choices=("logistic", "log", "affine", "power"),
        path=True,
    )
    temperature: float = setting(0.15, "lam of the log operator, as a share of the return's range", low=1e-6, high=1e3)


class Learner(NamedTuple):
    """Everything a gradient step changes."""

    actor: Actor
    critic: QuantileCritic | CautiousCritic
    target_critic: QuantileCritic | CautiousCritic
    average_actor: Actor
    actor_opt: optax.OptState
    critic_opt: optax.OptState


class Objective(NamedTuple):
    """What the gradient steps after one rollout have in common: (w_r, w_1, .., w_C), eta, and scales from the data.

    `after_end` are the returns that count after a termination.
    """

    obs_stats: RunningStatistics
    unit: Float[Array, " signals"]
    bounds: ReturnRange
    ranges: ReturnRange
    weights: Float[Array, " signals"]
    entropy_weight: Float[Array, ""]
    after_end: Float[Array, " signals"] | float = 0.0


class GradientMetrics(NamedTuple):
    """Metrics of one gradient step."""

    actor_loss: Array
    clip_rate: Array
    critic_loss: Array
    entropy: Array


class ActorCritic(NamedTuple):
    """`init(key) -> Learner`; `update(key, learner, replay, objective, imagine)` takes one gradient step."""

    init: Callable[[Array], Learner]
    update: Callable[[Array, Learner, ring.ReplayBuffer, Objective, Imagine | None], tuple[Learner, GradientMetrics]]


def actor_critic(spec: EnvSpec, config: ActorCriticConfig, operator: Operator, tails: bool = False) -> ActorCritic:
    """Build actor and critics of a task; with `tails` critics see the ends of each component of an observation."""
    log_optimality = log_optimality_fn(operator)
    width = num_inputs(spec.obs_dim, tails)
    actor_optimizer = adam(config.actor_lr, MAX_GRAD_NORM)
    critic_optimizer = adam(config.critic_lr, MAX_GRAD_NORM)

    def draw_critic(key: Array) -> QuantileCritic:
        critic = quantile_critic(
            key, width, spec.action_space, config.hidden, 1 + spec.num_costs, config.num_quantiles,
            scale=1.0, standardize=True,
        )  # fmt: skip
        if not tails:
            return critic
        # Most tails say nothing of most signals: a critic that hears all of them from the start remembers places.
        return eqx.tree_at(lambda c: c.net, critic, unheard_at_first(critic.net, slice(spec.obs_dim, width)))

    def init(key: Array) -> Learner:
        actor_key, critic_key = jax.random.split(key)
        policy = actor(actor_key, spec.obs_dim, spec.action_space, config.hidden, config.num_components)
        critic = cautious_critic(critic_key, config.num_critics, draw_critic)
        opts = optimizer_state(actor_optimizer, policy), optimizer_state(critic_optimizer, critic)
        return Learner(policy, critic, _copy(critic), _copy(policy), *opts)

    def update(
        key: Array, learner: Learner, replay: ring.ReplayBuffer, objective: Objective, imagine: Imagine | None
    ) -> tuple[Learner, GradientMetrics]:
        batch_key, next_key, action_key = jax.random.split(key, 3)
        batch = ring.sample(batch_key, replay, config.batch_size)
        if imagine is not None:
            imagined = imagine(jax.random.fold_in(key, 1), batch, learner.actor)
            batch = jax.tree.map(lambda real, more: jnp.concatenate([real, more]), batch, imagined)
        ahead = ring.target_inputs(batch, config.discount)
        stats = objective.obs_stats
        seen, next_seen = (normalize_with_tails(stats, x) for x in (batch.obs, ahead.obs))

        # Critics, of the reward and of every cost, whichever branch the actor is on.
        next_action = learner.actor(normalize(stats, ahead.obs)).sample(next_key)
        next_quantiles = learner.target_critic(next_seen, next_action)
        targets = bellman_targets(
            ahead.signals / objective.unit, next_quantiles, ahead.terminated, ahead.discount,
            objective.after_end / objective.unit,
        )  # fmt: skip
        # No return lies outside what the signals of one step allow.
        low, high = (x / objective.unit for x in objective.bounds)
        targets = jnp.clip(targets, low[:, None], high[:, None])
        critic_loss, grads = jax.value_and_grad(
            lambda critic: jnp.sum(
                jax.vmap(lambda own: quantile_huber(own, targets, HUBER))(critic.every(seen, batch.action))
            )
        )(learner.critic)
        critic, critic_opt = descend(critic_optimizer, grads, learner.critic_opt, learner.critic)

        # The actor, under the critics just learnt.
        (actor_loss, (entropy, clip_rate)), grads = jax.value_and_grad(actor_objective, has_aux=True)(
            learner.actor, critic, normalize(stats, batch.obs), seen, objective, action_key
        )
        policy, actor_opt = descend(actor_optimizer, grads, learner.actor_opt, learner.actor)
        target_critic = polyak_average(critic, learner.target_critic, config.polyak)
        average_actor = polyak_average(policy, learner.average_actor, ACTOR_POLYAK)
        learner = Learner(policy, critic, target_critic, average_actor, actor_opt, critic_opt)
        return learner, GradientMetrics(actor_loss, clip_rate, critic_loss, entropy)

    def actor_objective(
        policy: Actor,
        critic: QuantileCritic | CautiousCritic,
        obs: Float[Array, "N d"],
        seen: Float[Array, "N n"],
        objective: Objective,
        key: Array,
    ) -> tuple[Array, tuple[Array, Array]]:
        """The loss of the actor, which sees `obs`, under critics that see `seen`."""
        dist = policy(obs)
        if isinstance(dist, Categorical):
            # E over all actions: the gradient is that of the probabilities alone.
            means = objective.unit * critic.all_actions(seen).mean(-1)
            utility, clip_rate = log_optimality(means, objective.weights, objective.ranges)
            expected = jnp.sum(jnp.exp(dist.log_probs()) * jax.lax.stop_gradient(utility), -1)
            entropy = dist.entropy()
        elif isinstance(dist, SquashedMixture):
            # A draw of every component, by weight: one drawn by chance would teach the weights nothing.
            actions, log_probs, shares = dist.every(key)
            means = objective.unit * jax.vmap(lambda action: critic(seen, action))(actions).mean(-1)
            utility, clip_rate = log_optimality(means, objective.weights, objective.ranges)
            expected, entropy = jnp.sum(shares * utility, 0), -jnp.sum(shares * log_probs, 0)
        else:
            # One draw, differentiated through the action into the critic.
            action, log_prob = dist.sample_with_log_prob(key)
            means = objective.unit * critic(seen, action).mean(-1)
            expected, clip_rate = log_optimality(means, objective.weights, objective.ranges)
            entropy = -log_prob
        loss = -jnp.mean(expected + objective.entropy_weight * entropy)
        return loss, (jnp.mean(entropy), clip_rate)

    return ActorCritic(init, update)


def _copy(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)
