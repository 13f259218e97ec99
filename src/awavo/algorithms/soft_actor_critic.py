r"""What SAC-Lagrangian and CAL share: soft actor-critic (Haarnoja et al. 2018) with a critic of every cost.

.. code-block:: text

    y   =  r + gamma (1 - terminated) (min_k Qbar_k(s', a') - alpha log pi(a'|s')),    a' ~ pi(.|s')
    y_j =  c + gamma (1 - terminated) Qbar^c_j(s', a')                                  (each member j its own)
    Q   <- Adam on sum_k (Q_k(s, a) - y)^2,   Q^c <- Adam on sum_j (Q^c_j(s, a) - y_j)^2
    pi  <- Adam on  E[alpha log pi(a|s) - min_k Q_k(s, a) + sum_i p_i Qhat^c_i(s, a)] / n(p),    a ~ pi(.|s)
    log alpha <- Adam on  -log alpha (log pi + target),   target: -1 nat per dimension of a box of width 2
    Qbar <- Polyak average of Q, every `target_every` gradient steps

Qhat^c and the prices p, the multipliers in one form or another, are a method's own (`Prices`). Deviations from the
usual setting, for both methods: several environments are stepped at once, with as many gradient steps after a rollout
as would have been made on the way; observations are scaled by their running mean and standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from awavo.algorithms import replay as ring
from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, push_episodes
from awavo.algorithms.orpo_dr import entropy_target
from awavo.config import setting
from awavo.errors import ConfigError
from awavo.networks import (
    ActionDistribution,
    Actor,
    RunningStatistics,
    SquashedGaussian,
    actor,
    actor_parts,
    normalize,
    quantile_critic,
)
from awavo.networks.critic import CautiousCritic, QuantileCritic, cautious_critic
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.networks.optimize import all_finite, choose, descend, optimizer_state, polyak_average
from awavo.types import ActorParts, Algorithm, Box, EnvSpec, Rollout

__all__ = [
    "Prices", "SoftConfig", "SoftInfo", "SoftLearner", "SoftState", "require_box", "soft_actor_critic", "soft_targets",
]  # fmt: skip

AnyCritic = QuantileCritic | CautiousCritic


@dataclass(frozen=True)
class SoftConfig:
    """Settings of the rollouts, of actor and critics, and of their gradient steps."""

    num_envs: int = setting(16, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(8, "steps of each environment between updates", low=1, high=100_000)
    update_ratio: float = setting(1.0, "gradient steps for each environment step", low=1e-6, high=1e3)
    batch_size: int = setting(256, "transitions per gradient step", low=1, high=1_000_000)
    replay_capacity: int = setting(1_000_000, "transitions kept", low=1, high=1_000_000_000)
    warmup_steps: int = setting(
        5_000, "environment steps of random actions before the first update", low=0, high=1_000_000_000
    )
    hidden: tuple[int, ...] = setting((256, 256), "sizes of the hidden layers", low=1, high=65_536)
    num_cost_critics: int = setting(1, "critics of each cost", low=1, high=64)
    discount: float = setting(0.99, "discount gamma of the critics", low=0.0, high=0.99999)
    actor_lr: float = setting(3e-4, "Adam step size of the actor", low=0.0, high=1.0)
    critic_lr: float = setting(3e-4, "Adam step size of the reward's critics", low=0.0, high=1.0)
    cost_critic_lr: float = setting(3e-4, "Adam step size of the costs' critics", low=0.0, high=1.0)
    entropy_lr: float = setting(3e-4, "Adam step size of the entropy's weight alpha", low=0.0, high=1.0)
    entropy_initial: float = setting(1.0, "first weight alpha of the entropy", low=1e-8, high=1e6)
    polyak: float = setting(0.005, "averaging rate of the target critics", low=0.0, high=1.0)
    target_every: int = setting(1, "gradient steps between averages", low=1, high=10_000)
    window: int = setting(16, "finished episodes W in the constraint estimate", low=1, high=100_000)
    margin: float = setting(0.0, "share of each limit kept in reserve", low=0.0, high=1.0)
    tolerance: float = setting(0.0, "tolerance on every limit", low=0.0, high=1e9)


class SoftLearner(NamedTuple):
    """Everything a gradient step changes; `dual` is the method's own."""

    actor: Actor
    critic: AnyCritic
    cost_critic: AnyCritic
    target_critic: AnyCritic
    target_cost_critic: AnyCritic
    log_alpha: Float[Array, ""]
    dual: PyTree
    opts: tuple[optax.OptState, optax.OptState, optax.OptState, optax.OptState]


class SoftState(NamedTuple):
    """The whole state: learner, memory, statistics, finished episodes."""

    learner: SoftLearner
    replay: ring.ReplayBuffer
    obs_stats: RunningStatistics
    window: EpisodeWindow
    num_skipped_updates: Int[Array, ""]


class SoftInfo(NamedTuple):
    """Metrics of one `learn`."""

    critic_loss: Array
    cost_critic_loss: Array
    actor_loss: Array
    entropy: Array
    entropy_weight: Array
    feasible: Array
    cost_estimate: Array
    multiplier: Array
    skipped_updates: Array


class Prices(NamedTuple):
    """What a method adds to soft actor-critic.

    `init()` are the numbers it keeps. `observe(dual, totals, ended, steps)` moves them once a rollout, by the mean
    costs of the last episodes, `ended` of them new, after so many environment steps. `cost_value(members [K, B, C]) ->
    [B, C]` is what the critics say together. `prices(dual, values [B, C]) -> (dual, p [C], n)` moves them once a
    gradient step, by the values of stored actions, and gives the price of every cost and what the actor's objective is
    divided by. `multipliers(dual)` is for metrics.
    """

    init: Callable[[], PyTree]
    observe: Callable[[Any, Float[Array, " C"], Int[Array, ""], Int[Array, ""]], PyTree]
    cost_value: Callable[[Float[Array, "K B C"]], Float[Array, "B C"]]
    prices: Callable[[Any, Float[Array, "B C"]], tuple[PyTree, Float[Array, " C"], Float[Array, ""]]]
    multipliers: Callable[[Any], Float[Array, " C"]]


def require_box(spec: EnvSpec, name: str) -> Box:
    """The box of actions, or an error for discrete ones."""
    if not isinstance(spec.action_space, Box):
        raise ConfigError(
            f"{name} needs continuous actions, but task '{spec.name}' has {spec.action_space.num} discrete ones: use "
            "ppo-lagrangian, or an algorithm of `awavo list` that takes them."
        )
    return spec.action_space


def soft_targets(
    signals: Float[Array, "B S"],
    terminated: Bool[Array, " B"],
    values: Float[Array, "K B"],
    cost_values: Float[Array, "J B C"],
    log_prob: Float[Array, " B"],
    alpha: Float[Array, ""],
    discount: float,
) -> tuple[Float[Array, " B"], Float[Array, "J B C"]]:
    """Targets of the reward, and of the costs for each of their critics; `signals` is the reward, then the costs."""
    stays = discount * (1.0 - terminated.astype(jnp.float32))
    reward = signals[:, 0] + stays * (values.min(0) - alpha * log_prob)
    return reward, signals[:, 1:] + stays[:, None] * cost_values


def soft_actor_critic(spec: EnvSpec, config: SoftConfig, prices: Prices, name: str) -> Algorithm[SoftState, SoftInfo]:
    """Build a method from its prices, for a task."""
    space = require_box(spec, name)
    target = entropy_target(spec)
    limits = jnp.asarray(spec.cost_limits, jnp.float32).reshape(spec.num_costs) * (1.0 - config.margin)
    rows = config.num_envs * config.rollout_length
    num_updates = max(1, round(config.update_ratio * rows))
    capacity = -(-config.replay_capacity // rows) * rows  # whole rollouts
    rates = (config.actor_lr, config.critic_lr, config.cost_critic_lr, config.entropy_lr)
    optimizers = tuple(optax.flatten(optax.adam(rate)) for rate in rates)

    def critics(key: Array, count: int, signals: int) -> AnyCritic:
        def draw(member: Array) -> QuantileCritic:
            return quantile_critic(member, spec.obs_dim, space, config.hidden, signals, 1, scale=1.0)

        return cautious_critic(key, count, draw)

    def init(key: Array) -> SoftState:
        actor_key, critic_key, cost_key = jax.random.split(key, 3)
        policy = actor(actor_key, spec.obs_dim, space, config.hidden)
        critic = critics(critic_key, 2, 1)
        cost_critic = critics(cost_key, config.num_cost_critics, spec.num_costs)
        log_alpha = jnp.log(jnp.asarray(config.entropy_initial, jnp.float32))
        nets = (policy, critic, cost_critic, log_alpha)
        opts: Any = tuple(optimizer_state(own, net) for own, net in zip(optimizers, nets, strict=True))
        target_critic, target_cost_critic = jax.tree.map(jnp.copy, (critic, cost_critic))
        return SoftState(
            SoftLearner(policy, critic, cost_critic, target_critic, target_cost_critic, log_alpha, prices.init(), opts),
            ring.empty_replay(spec, capacity),
            running_statistics(spec.obs_dim),
            empty_window(config.window, spec.num_costs),
            jnp.zeros((), jnp.int32),
        )

    def act(key: Array, state: SoftState, obs: Float[Array, "E d"], greedy: bool) -> tuple[Array, tuple[()]]:
        dist = policy(state, obs)
        if greedy:
            return dist.mode(), ()
        key, random_key = jax.random.split(key)
        low, high = jnp.asarray(space.low), jnp.asarray(space.high)
        anywhere = jax.random.uniform(random_key, dist.mode().shape, minval=low, maxval=high)
        return jnp.where(state.replay.added < config.warmup_steps, anywhere, dist.sample(key)), ()

    def learn(key: Array, state: SoftState, rollout: Rollout) -> tuple[SoftState, SoftInfo]:
        memory = ring.add(state.replay, rollout)
        obs_stats = update_statistics(state.obs_stats, rollout.obs)
        window = push_episodes(state.window, rollout)
        totals, ended = cost_estimate(window), rollout.done.sum()
        old = state.learner
        # Gradient steps are counted over all rollouts: an average may be due only once in several of them.
        numbers = (memory.added // rows - 1) * num_updates + jnp.arange(num_updates)
        first = old._replace(dual=prices.observe(old.dual, totals, ended, memory.added))
        new, metrics = jax.lax.scan(
            lambda learner, step: update(*step, learner, memory, obs_stats),
            first,
            (jax.random.split(key, num_updates), numbers),
        )
        # Computed in any case, kept only after the warm-up and if nothing broke: no branch in the program.
        ready, finite = memory.added >= config.warmup_steps, all_finite((new, obs_stats))
        learner = choose(ready & finite, new, old)
        skipped = state.num_skipped_updates + (ready & ~finite) * num_updates
        state = SoftState(learner, memory, choose(finite, obs_stats, state.obs_stats), window, skipped)
        return state, SoftInfo(
            **jax.tree.map(jnp.mean, metrics),
            feasible=jnp.all(totals <= limits + config.tolerance).astype(jnp.float32),
            cost_estimate=totals,
            multiplier=prices.multipliers(learner.dual),
            skipped_updates=skipped,
        )

    def update(
        key: Array, number: Array, learner: SoftLearner, memory: ring.ReplayBuffer, obs_stats: RunningStatistics
    ) -> tuple[SoftLearner, dict[str, Array]]:
        """One gradient step of critics, actor and alpha on a batch."""
        batch_key, next_key, action_key = jax.random.split(key, 3)
        batch = ring.sample(batch_key, memory, config.batch_size)
        obs, next_obs = (normalize(obs_stats, x) for x in (batch.obs, batch.next_obs))
        alpha = jnp.exp(learner.log_alpha)
        actor_opt, critic_opt, cost_opt, alpha_opt = learner.opts

        next_action, next_log_prob = gaussian(learner.actor, next_obs).sample_with_log_prob(next_key)
        reward_target, cost_targets = soft_targets(
            batch.signals, batch.terminated,
            learner.target_critic.every(next_obs, next_action)[..., 0, 0],
            learner.target_cost_critic.every(next_obs, next_action)[..., 0],
            next_log_prob, alpha, config.discount,
        )  # fmt: skip

        def critic_loss_fn(critic: AnyCritic) -> Float[Array, ""]:
            return jnp.sum(jnp.mean((critic.every(obs, batch.action)[..., 0, 0] - reward_target) ** 2, -1))

        def cost_loss_fn(critic: AnyCritic) -> tuple[Float[Array, ""], Float[Array, "K B C"]]:
            values = critic.every(obs, batch.action)[..., 0]
            return jnp.sum(jnp.mean((values - cost_targets) ** 2, 1)), values

        critic_loss, grads = jax.value_and_grad(critic_loss_fn)(learner.critic)
        critic, critic_opt = descend(optimizers[1], grads, critic_opt, learner.critic)
        (cost_loss, stored), grads = jax.value_and_grad(cost_loss_fn, has_aux=True)(learner.cost_critic)
        cost_critic, cost_opt = descend(optimizers[2], grads, cost_opt, learner.cost_critic)

        # The actor, under the critics just learnt.
        dual, price, divisor = prices.prices(learner.dual, prices.cost_value(stored))

        def actor_loss_fn(policy: Actor) -> tuple[Float[Array, ""], Float[Array, " B"]]:
            action, log_prob = gaussian(policy, obs).sample_with_log_prob(action_key)
            value = critic.every(obs, action)[..., 0, 0].min(0)
            costs = prices.cost_value(cost_critic.every(obs, action)[..., 0])
            return jnp.mean(alpha * log_prob - value + costs @ price) / divisor, log_prob

        (actor_loss, log_prob), grads = jax.value_and_grad(actor_loss_fn, has_aux=True)(learner.actor)
        policy, actor_opt = descend(optimizers[0], grads, actor_opt, learner.actor)
        alpha_grad = -jnp.mean(log_prob + target)
        log_alpha, alpha_opt = descend(optimizers[3], alpha_grad, alpha_opt, learner.log_alpha)

        targets = (learner.target_critic, learner.target_cost_critic)
        averaged = polyak_average((critic, cost_critic), targets, config.polyak)
        if config.target_every > 1:
            averaged = choose(number % config.target_every == 0, averaged, targets)
        learner = SoftLearner(
            policy, critic, cost_critic, *averaged, log_alpha, dual, (actor_opt, critic_opt, cost_opt, alpha_opt)
        )
        return learner, {
            "critic_loss": critic_loss,
            "cost_critic_loss": cost_loss,
            "actor_loss": actor_loss,
            "entropy": -jnp.mean(log_prob),
            "entropy_weight": alpha,
        }

    def policy(state: SoftState, obs: Float[Array, "... d"]) -> ActionDistribution:
        return state.learner.actor(normalize(state.obs_stats, obs))

    def parts(state: SoftState) -> ActorParts:
        return actor_parts(state.obs_stats, state.learner.actor.net, space)

    return Algorithm(init, act, learn, policy=policy, actor=parts)


def gaussian(policy: Actor, obs: Float[Array, "... d"]) -> SquashedGaussian:
    """The policy's distribution over a box."""
    dist = policy(obs)
    assert isinstance(dist, SquashedGaussian)
    return dist
