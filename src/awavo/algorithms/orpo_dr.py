r"""ORPO-DR: rectified policy optimisation with distributional critics (Algorithm 1 of the paper).

One call of `learn` is one pass of the algorithm:

.. code-block:: text

    1  store the rollout, widen the return bounds, update J_g,i (mean UNDISCOUNTED cost of the last W episodes)
    2  feasible  <=>  J_g,i <= b_i + tau_c for all i
    3  for each gradient step
    4      Z^i  <- quantile Huber step towards  h_i + gamma (1 - terminated) Zbar^i(s', a'),  a' ~ pi(.|s'),  all i
           (with `backup_steps` n > 1: the n stored steps' discounted sum, and Zbar^i after them)
    5      pi   <- ascend  E[ w_r log p(O_r|s,a) + sum_i w_i log p(O_gi|s,a) ] + eta H(pi)
    6      Zbar <- Polyak average

with log-likelihoods :math:`\log p(O_r | s, a) = F_r^{-1}(E Z^0)` and :math:`\log p(O_{g_i} | s, a) = F_g^{-1}(E
Z^i)`. Discrete actions use the
exact expectation over actions, continuous ones the pathwise derivative. Deviations from the paper's listing, each
measured in docs/orpo_dr.md:

* all Z^i are trained in both branches (a superset of its lines 4 and 6);
* `rectify="hard"` is the letter: (w_r, w_i) = (1, 0) when feasible, (0, 1 on the violated) otherwise. With
  `rectify="posterior"` both optimality variables stay observed, and a violated constraint's weight grows by a factor
  each iteration while the weights of satisfied ones shrink by a smaller factor;
* with `entropy_target` eta grows while the policy's entropy is below the target and shrinks above it, so that exploring
  does not depend on the scale of the likelihoods, which one extreme reward can change by a factor;
* with `num_critics` > 1 the most pessimistic of several critics gives targets and likelihoods: on the walker one critic
  promised far more than was earned (docs/orpo_dr.md);
* greedy actions come from a Polyak average of the actor, as the theory outputs an average over iterates.

`learn` takes an optional `imagine`, by which AWaVO adds transitions of its model to every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from awavo.algorithms import replay as ring
from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, push_episodes
from awavo.config import OrpoDrConfig
from awavo.inference.operators import Operator, make_operator
from awavo.networks import Actor, CautiousCritic, QuantileCritic, RunningStatistics, actor, cautious_critic, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.networks.optimize import adam, descend, polyak_average
from awavo.networks.quantiles import bellman_targets, quantile_huber
from awavo.types import Algorithm, Discrete, EnvSpec, Rollout

__all__ = [
    "Imagine",
    "Learner",
    "OrpoDrInfo",
    "OrpoDrState",
    "SignalBounds",
    "clip_rewards",
    "critic_quantiles",
    "current_weights",
    "log_optimality_fn",
    "orpo_dr",
    "return_bounds",
]

# How fast the entropy's weight is adapted, per rollout and nat, and between what.
ENTROPY_RATE, ENTROPY_RANGE = 0.1, (1e-6, 1e3)

# Transitions a model adds to a batch: imagine(key, batch, policy).
Imagine = Callable[[Array, ring.Transitions, Actor], ring.Transitions]


class Learner(NamedTuple):
    """Everything a gradient step changes."""

    actor: Actor
    critic: QuantileCritic | CautiousCritic
    target_critic: QuantileCritic | CautiousCritic
    average_actor: Actor
    actor_opt: Any
    critic_opt: Any


class SignalBounds(NamedTuple):
    """Smallest and largest value of each signal in one step (always including 0), from the data."""

    low: Float[Array, " 1+C"]
    high: Float[Array, " 1+C"]


class OrpoDrState(NamedTuple):
    """The whole state: learner, memory, statistics, constraint weights, counters."""

    learner: Learner
    replay: ring.Replay
    obs_stats: RunningStatistics
    bounds: SignalBounds
    window: EpisodeWindow
    cost_weights: Float[Array, " C"]
    entropy_weight: Float[Array, ""]
    num_reward_updates: Int[Array, ""]
    num_rectified_updates: Int[Array, ""]
    num_skipped_updates: Int[Array, ""]


class OrpoDrInfo(NamedTuple):
    """Metrics of one `learn`."""

    critic_loss: Array
    actor_loss: Array
    entropy: Array
    kl: Array
    feasible: Array
    cost_estimate: Array
    cost_weight: Array
    clip_rate: Array
    num_reward_updates: Array
    num_rectified_updates: Array
    skipped_updates: Array


def orpo_dr(spec: EnvSpec, config: OrpoDrConfig, operator: Operator | None = None) -> Algorithm:
    """Build ORPO-DR for a task; `operator` replaces the one named in the configuration."""
    num_signals = 1 + spec.num_costs
    discrete = isinstance(spec.action_space, Discrete)
    likelihood = operator or make_operator(config.operator, temperature=config.temperature, kappa=config.kappa)
    log_optimality = log_optimality_fn(config, likelihood)
    actor_optimizer = adam(config.actor_lr, config.max_grad_norm)
    critic_optimizer = adam(config.critic_lr, config.max_grad_norm)

    def init(key: Array) -> OrpoDrState:
        actor_key, critic_key = jax.random.split(key)
        policy: Any = actor(actor_key, spec.obs_dim, spec.action_space, config.hidden)
        critic: Any = cautious_critic(
            critic_key,
            config.num_critics,
            spec.obs_dim,
            spec.action_space,
            config.hidden,
            num_signals,
            config.num_quantiles,
            config.value_scale,
            config.critic_layers == "standardized",
        )
        learner = Learner(
            policy, critic, _copy(critic), _copy(policy), actor_optimizer.init(policy), critic_optimizer.init(critic)
        )
        zero = jnp.zeros((), jnp.int32)
        return OrpoDrState(
            learner,
            ring.empty_replay(spec, config.replay_capacity, config.backup_steps),
            running_statistics(spec.obs_dim),
            SignalBounds(jnp.zeros(num_signals), jnp.full(num_signals, 1e-3, jnp.float32)),
            empty_window(config.window, spec.num_costs),
            jnp.full(spec.num_costs, config.weight_initial, jnp.float32),
            jnp.asarray(config.entropy, jnp.float32),
            zero,
            zero,
            zero,
        )

    def act(key: Array, state: OrpoDrState, obs: Array, greedy: bool) -> tuple[Array, tuple[()]]:
        obs = normalize(state.obs_stats, obs)
        if greedy:
            return state.learner.average_actor(obs).mode(), ()
        return state.learner.actor(obs).sample(key), ()

    def learn(
        key: Array, state: OrpoDrState, rollout: Rollout, imagine: Imagine | None = None
    ) -> tuple[OrpoDrState, OrpoDrInfo]:
        state = observe(state, clip_rewards(rollout, config))
        estimate = cost_estimate(state.window)
        violated = exceeds(estimate, spec, config)
        feasible = ~jnp.any(violated)
        cost_weights = _adapt_weights(state.cost_weights, violated, config)
        weights = _branch_weights(cost_weights, violated, config)

        old = state.learner
        keys = jax.random.split(key, config.num_updates)
        new, metrics = jax.lax.scan(lambda learner, k: update(k, learner, state, weights, imagine), old, keys)
        ready = state.replay.added >= config.warmup_steps
        finite = jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), new))
        keep = ready & finite
        learner = jax.tree.map(lambda fresh, stale: jnp.where(keep, fresh, stale), new, old)
        state = state._replace(
            learner=learner,
            cost_weights=jnp.where(ready, cost_weights, state.cost_weights),
            entropy_weight=jnp.where(
                keep, adapt_entropy(state.entropy_weight, metrics["entropy"].mean()), state.entropy_weight
            ),
            num_reward_updates=state.num_reward_updates + (keep & feasible) * config.num_updates,
            num_rectified_updates=state.num_rectified_updates + (keep & ~feasible) * config.num_updates,
            num_skipped_updates=state.num_skipped_updates + (ready & ~finite) * config.num_updates,
        )
        means = jax.tree.map(jnp.mean, metrics)
        seen = normalize(state.obs_stats, rollout.obs[0])
        before: Any = old.actor(seen)
        info = OrpoDrInfo(
            **means,
            kl=jnp.mean(before.kl(learner.actor(seen))),
            feasible=feasible.astype(jnp.float32),
            cost_estimate=estimate,
            cost_weight=weights[1:],
            num_reward_updates=state.num_reward_updates,
            num_rectified_updates=state.num_rectified_updates,
            skipped_updates=state.num_skipped_updates,
        )
        return state, info

    def observe(state: OrpoDrState, rollout: Rollout) -> OrpoDrState:
        memory = ring.add(state.replay, rollout, config.discount, config.backup_steps)
        signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1).reshape(-1, num_signals)
        bounds = SignalBounds(
            jnp.minimum(state.bounds.low, signals.min(0)), jnp.maximum(state.bounds.high, signals.max(0))
        )
        return state._replace(
            replay=memory,
            obs_stats=update_statistics(state.obs_stats, rollout.obs),
            bounds=bounds,
            window=push_episodes(state.window, rollout),
        )

    def update(
        key: Array, learner: Learner, state: OrpoDrState, weights: Array, imagine: Imagine | None
    ) -> tuple[Learner, dict[str, Array]]:
        batch_key, next_key, action_key = jax.random.split(key, 3)
        batch = ring.sample(batch_key, state.replay, config.batch_size)
        if imagine is not None:
            imagined = imagine(jax.random.fold_in(key, 1), batch, learner.actor)
            batch = jax.tree.map(lambda real, more: jnp.concatenate([real, more]), batch, imagined)
        ahead = ring.ahead_of(batch, config.discount)
        obs, next_obs = (normalize(state.obs_stats, x) for x in (batch.obs, ahead.obs))

        next_action = learner.actor(next_obs).sample(next_key)
        next_quantiles = learner.target_critic(next_obs, next_action)
        targets = bellman_targets(ahead.signals, next_quantiles, ahead.terminated, ahead.discount)
        if config.clip_targets == "on":
            low, high = return_bounds(state.bounds, config)
            targets = jnp.clip(targets, low[:, None], high[:, None])
        critic_loss, grads = jax.value_and_grad(
            lambda critic: jnp.sum(
                jax.vmap(lambda own: quantile_huber(own, targets, config.huber))(critic.every(obs, batch.action))
            )
        )(learner.critic)
        critic, critic_opt = descend(critic_optimizer, grads, learner.critic_opt, learner.critic)

        (actor_loss, (entropy, clip_rate)), grads = jax.value_and_grad(actor_objective, has_aux=True)(
            learner.actor, critic, obs, weights, state.bounds, state.entropy_weight, action_key
        )
        policy, actor_opt = descend(actor_optimizer, grads, learner.actor_opt, learner.actor)
        learner = Learner(
            policy,
            critic,
            polyak_average(critic, learner.target_critic, config.polyak),
            polyak_average(policy, learner.average_actor, config.actor_polyak),
            actor_opt,
            critic_opt,
        )
        metrics = dict(critic_loss=critic_loss, actor_loss=actor_loss, entropy=entropy, clip_rate=clip_rate)
        return learner, metrics

    def adapt_entropy(weight: Array, entropy: Array) -> Array:
        if config.entropy_target is None:
            return weight
        lack = jnp.clip(config.entropy_target - entropy, -1.0, 1.0)
        return jnp.clip(weight * jnp.exp(ENTROPY_RATE * lack), *ENTROPY_RANGE)

    def actor_objective(policy, critic, obs, weights, bounds, entropy_weight, key):
        dist = policy(obs)
        if discrete:
            utility, clip_rate = log_optimality(critic.all_actions(obs).mean(-1), weights, bounds)
            expected = jnp.sum(jnp.exp(dist.log_probs()) * jax.lax.stop_gradient(utility), -1)
            entropy = dist.entropy()
        else:
            action, log_prob = dist.sample_with_log_prob(key)
            expected, clip_rate = log_optimality(critic(obs, action).mean(-1), weights, bounds)
            entropy = -log_prob
        loss = -jnp.mean(expected + entropy_weight * entropy)
        return loss, (jnp.mean(entropy), clip_rate)

    return Algorithm(init, act, learn)


def log_optimality_fn(config: OrpoDrConfig, likelihood: Operator) -> Callable[..., tuple[Array, Array]]:
    """Build `f(means [..., 1 + C], weights, bounds)`: w_r log p(O_r) + sum_i w_i log p(O_gi), and the clip rate."""

    def log_optimality(means: Float[Array, "... signals"], weights: Array, bounds: SignalBounds) -> tuple[Array, Array]:
        low, high = return_bounds(bounds, config)
        clipped = jnp.clip(means, low, high)
        clip_rate = jnp.mean((clipped != means).astype(jnp.float32))
        reward = likelihood.reward_log_likelihood(clipped[..., 0], low[0], high[0])
        costs = likelihood.cost_log_likelihood(clipped[..., 1:], low[1:], high[1:])
        return weights[0] * reward + costs @ weights[1:], clip_rate

    return log_optimality


def clip_rewards(rollout: Rollout, config: OrpoDrConfig) -> Rollout:
    """The rollout as the learner sees it: without rewards that no observation announces, where the user says so."""
    if config.reward_clip is None:
        return rollout
    return rollout._replace(reward=jnp.clip(rollout.reward, -config.reward_clip, config.reward_clip))


def exceeds(estimate: Float[Array, " C"], spec: EnvSpec, config: OrpoDrConfig) -> Bool[Array, " C"]:
    """Where a constraint estimate is above its limit, less the reserve, plus the tolerance."""
    return estimate > (1.0 - config.margin) * jnp.asarray(spec.cost_limits) + config.tolerance


def current_weights(state: OrpoDrState, spec: EnvSpec, config: OrpoDrConfig) -> Float[Array, " signals"]:
    """(w_r, w_1, .., w_C) of the branch that the last finished episodes select."""
    violated = exceeds(cost_estimate(state.window), spec, config)
    return _branch_weights(state.cost_weights, violated, config)


def critic_quantiles(state: OrpoDrState, obs: Array, action: Array) -> Float[Array, "... signals M"]:
    """What the critics say of the given actions: M quantiles of the discounted return of each signal."""
    return state.learner.critic(normalize(state.obs_stats, obs), action)


def _copy(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


def return_bounds(bounds: SignalBounds, config: OrpoDrConfig) -> tuple[Array, Array]:
    """Bounds of the discounted return: the range of one step over the effective horizon, with a safety margin."""
    horizon = 1.0 / (1.0 - config.discount)
    margin = config.bound_margin * (bounds.high - bounds.low)
    return horizon * (bounds.low - margin), horizon * (bounds.high + margin)


def _adapt_weights(weights: Array, violated: Array, config: OrpoDrConfig) -> Array:
    factor = jnp.where(violated, 1.0 + config.weight_growth, 1.0 / (1.0 + config.weight_decay))
    return jnp.clip(weights * factor, config.weight_min, config.weight_max)


def _branch_weights(cost_weights: Array, violated: Array, config: OrpoDrConfig) -> Float[Array, " signals"]:
    """(w_r, w_1, .., w_C) of the branch that `violated` selects."""
    if config.rectify == "hard":
        reward = jnp.where(jnp.any(violated), 0.0, 1.0)
        return jnp.concatenate([reward[None], violated.astype(jnp.float32)])
    return jnp.concatenate([jnp.ones(1), cost_weights])
