r"""ORPO-DR: rectified policy optimisation with distributional critics (Algorithm 1 of the paper).

One call of `learn` is one pass of the algorithm. In the paper's numbering:

.. code-block:: text

    1  J_g,i <- mean UNDISCOUNTED cost of the last W episodes                                (constraint estimation)
    2  policy improvement, with w the weights of log p(O_r | s, a) and log p(O_gi | s, a):
    3  if J_g,i <= b_i + tau_c for all i
    4      actor and critics towards the reward                                              w = (1, 0)
    5  else
    6      actor and critics towards smaller costs                                           w = (0, 1 on the violated)

with log-likelihoods :math:`\log p(O_r | s, a) = F_r^{-1}(E Z^0)` and :math:`\log p(O_{g_i} | s, a) = F_g^{-1}(E Z^i)`.
The branch is a choice of weights, and lines 4 and 6 are the same gradient steps (`actor_critic`). Deviations from the
paper's listing, each measured in docs/orpo_dr.md:

* all Z^i are trained in both branches (a superset of its lines 4 and 6);
* `rectify="hard"` is the letter, w as above. With `rectify="posterior"` both optimality variables stay observed, and a
  violated constraint's weight grows by a factor each iteration while the weights of satisfied ones shrink by a smaller
  factor;
* with `entropy_target` eta grows while the policy's entropy is below the target and shrinks above it, so that exploring
  does not depend on the scale of the likelihoods, which one extreme reward can change by a factor;
* with `num_critics` > 1 the most pessimistic of several critics gives targets and likelihoods: on the walker one critic
  promised far more than was earned (docs/orpo_dr.md);
* greedy actions come from a Polyak average of the actor, as the theory outputs an average over iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from awavo.algorithms import replay as ring
from awavo.algorithms.actor_critic import ActorCriticConfig, Imagine, Learner, Objective, actor_critic
from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, push_episodes
from awavo.config import setting
from awavo.inference.operators import Operator, make_operator
from awavo.inference.optimality import SignalBounds, initial_bounds, log_optimality_fn, return_bounds, widen_bounds
from awavo.networks import ActionDistribution, RunningStatistics, actor_parts, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.networks.optimize import all_finite, choose
from awavo.networks.stochastic import kl_divergence
from awavo.types import ActorParts, Algorithm, Critics, EnvSpec, Rollout

__all__ = [
    "OrpoDrConfig",
    "OrpoDrInfo",
    "OrpoDrParts",
    "OrpoDrState",
    "clip_rewards",
    "exceeds",
    "orpo_dr",
    "orpo_dr_parts",
]

# How fast the entropy's weight is adapted, per rollout and nat, and between what.
ENTROPY_RATE, ENTROPY_RANGE = 0.1, (1e-6, 1e3)


@dataclass(frozen=True)
class OrpoDrConfig(ActorCriticConfig):
    """Settings of ORPO-DR. The defaults were chosen by measurement; the paper's are the preset `paper`."""

    rectify: str = setting("posterior", "how a violated constraint acts", choices=("posterior", "hard"))
    tolerance: float = setting(0.5, "tolerance tau_c on every limit", low=0.0, high=1e9)
    margin: float = setting(0.0, "share of each limit kept in reserve", low=0.0, high=1.0)
    window: int = setting(16, "finished episodes W in the constraint estimate", low=1, high=100_000)
    weight_initial: float = setting(0.2, "posterior: first weight of each constraint", low=0.0, high=1e6)
    weight_min: float = setting(0.05, "posterior: smallest weight of a constraint", low=0.0, high=1e6)
    weight_max: float = setting(20.0, "posterior: largest weight of a constraint", low=0.0, high=1e6)
    weight_growth: float = setting(
        0.012, "posterior: growth of a violated constraint's weight per rollout", low=0.0, high=10.0
    )
    weight_decay: float = setting(
        0.0024, "posterior: decay of a satisfied constraint's weight per rollout", low=0.0, high=10.0
    )


class OrpoDrState(NamedTuple):
    """The whole state: learner, memory, statistics, constraint weights, counters."""

    learner: Learner
    replay: ring.ReplayBuffer
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


class OrpoDrParts(NamedTuple):
    """ORPO-DR in parts, for a method that builds on it.

    As in `Algorithm`, but for `learn`, whose `imagine` adds transitions of a model to every batch; and
    `log_optimality(state, means [..., 1 + C])`, the log-likelihood of expected returns under the state's weights.
    """

    init: Callable[[Array], OrpoDrState]
    act: Callable[[Array, OrpoDrState, Array, bool], tuple[Array, tuple[()]]]
    learn: Callable[[Array, OrpoDrState, Rollout, Imagine | None], tuple[OrpoDrState, OrpoDrInfo]]
    policy: Callable[[OrpoDrState, Array], ActionDistribution]
    actor: Callable[[OrpoDrState], ActorParts]
    critics: Critics[OrpoDrState]
    log_optimality: Callable[[OrpoDrState, Array], Array]


def orpo_dr(
    spec: EnvSpec, config: OrpoDrConfig, operator: Operator | None = None
) -> Algorithm[OrpoDrState, OrpoDrInfo]:
    """Build ORPO-DR for a task; `operator` replaces the one named in the configuration."""
    parts = orpo_dr_parts(spec, config, operator)
    return Algorithm(
        parts.init, parts.act, lambda key, state, rollout: parts.learn(key, state, rollout, None),
        policy=parts.policy, actor=parts.actor, critics=parts.critics,
    )  # fmt: skip


def orpo_dr_parts(spec: EnvSpec, config: OrpoDrConfig, operator: Operator | None = None) -> OrpoDrParts:
    """Build the parts of ORPO-DR for a task."""
    operator = operator or make_operator(config.operator, temperature=config.temperature, kappa=config.kappa)
    networks = actor_critic(spec, config, operator)
    likelihood = log_optimality_fn(operator, config.discount, config.bound_margin)

    def init(key: Array) -> OrpoDrState:
        learner = networks.init(key)
        zero = jnp.zeros((), jnp.int32)
        return OrpoDrState(
            learner,
            ring.empty_replay(spec, config.replay_capacity, config.backup_steps),
            running_statistics(spec.obs_dim),
            initial_bounds(1 + spec.num_costs),
            empty_window(config.window, spec.num_costs),
            jnp.full(spec.num_costs, config.weight_initial, jnp.float32),
            jnp.asarray(config.entropy, jnp.float32),
            num_reward_updates=zero, num_rectified_updates=zero, num_skipped_updates=zero,
        )  # fmt: skip

    def act(key: Array, state: OrpoDrState, obs: Array, greedy: bool) -> tuple[Array, tuple[()]]:
        obs = normalize(state.obs_stats, obs)
        if greedy:
            return state.learner.average_actor(obs).mode(), ()
        return state.learner.actor(obs).sample(key), ()

    def learn(
        key: Array, state: OrpoDrState, rollout: Rollout, imagine: Imagine | None
    ) -> tuple[OrpoDrState, OrpoDrInfo]:
        state = observe(state, clip_rewards(rollout, config))
        estimate = cost_estimate(state.window)  # line 1
        violated = exceeds(estimate, spec, config)  # line 3
        feasible = ~jnp.any(violated)
        cost_weights = _adapt_weights(state.cost_weights, violated, config)
        weights = _branch_weights(cost_weights, violated, config)  # lines 3 and 5: the branch, as weights
        objective = Objective(state.obs_stats, state.bounds, weights, state.entropy_weight)

        old = state.learner
        keys = jax.random.split(key, config.num_updates)
        new, metrics = jax.lax.scan(  # lines 4 and 6
            lambda learner, k: networks.update(k, learner, state.replay, objective, imagine), old, keys
        )
        # Computed in any case, kept only after the warm-up and if nothing broke: no branch in the program.
        ready = state.replay.added >= config.warmup_steps
        finite = all_finite(new)
        keep = ready & finite
        learner = choose(keep, new, old)
        state = state._replace(
            learner=learner,
            cost_weights=jnp.where(ready, cost_weights, state.cost_weights),
            entropy_weight=jnp.where(
                keep, adapt_entropy(state.entropy_weight, metrics.entropy.mean()), state.entropy_weight
            ),
            num_reward_updates=state.num_reward_updates + (keep & feasible) * config.num_updates,
            num_rectified_updates=state.num_rectified_updates + (keep & ~feasible) * config.num_updates,
            num_skipped_updates=state.num_skipped_updates + (ready & ~finite) * config.num_updates,
        )
        means = jax.tree.map(jnp.mean, metrics)
        # How far the policy moved, in the states that the rollout began in.
        seen = normalize(state.obs_stats, rollout.obs[0])
        info = OrpoDrInfo(
            **means._asdict(),
            kl=jnp.mean(kl_divergence(old.actor(seen), learner.actor(seen))),
            feasible=feasible.astype(jnp.float32),
            cost_estimate=estimate,
            cost_weight=weights[1:],
            num_reward_updates=state.num_reward_updates,
            num_rectified_updates=state.num_rectified_updates,
            skipped_updates=state.num_skipped_updates,
        )
        return state, info

    def observe(state: OrpoDrState, rollout: Rollout) -> OrpoDrState:
        """Store a rollout, and widen or update all that is counted over the data."""
        memory = ring.add(state.replay, rollout, config.discount, config.backup_steps)
        signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1).reshape(-1, 1 + spec.num_costs)
        bounds = widen_bounds(state.bounds, signals)
        return state._replace(
            replay=memory,
            obs_stats=update_statistics(state.obs_stats, rollout.obs),
            bounds=bounds,
            window=push_episodes(state.window, rollout),
        )

    def adapt_entropy(weight: Array, entropy: Array) -> Array:
        if config.entropy_target is None:
            return weight
        lack = jnp.clip(config.entropy_target - entropy, -1.0, 1.0)
        return jnp.clip(weight * jnp.exp(ENTROPY_RATE * lack), *ENTROPY_RANGE)

    def policy(state: OrpoDrState, obs: Array) -> ActionDistribution:
        return state.learner.average_actor(normalize(state.obs_stats, obs))

    def log_optimality(state: OrpoDrState, means: Float[Array, "... signals"]) -> Float[Array, "..."]:
        violated = exceeds(cost_estimate(state.window), spec, config)
        return likelihood(means, _branch_weights(state.cost_weights, violated, config), state.bounds)[0]

    def actor(state: OrpoDrState) -> ActorParts:
        return actor_parts(state.obs_stats, state.learner.average_actor.net, spec.action_space)

    critics = Critics[OrpoDrState](
        quantiles=lambda state, obs, action: state.learner.critic(normalize(state.obs_stats, obs), action),
        signal_bounds=lambda state: (state.bounds.low, state.bounds.high),
        return_bounds=lambda state: return_bounds(state.bounds, config.discount, config.bound_margin),
    )
    return OrpoDrParts(init, act, learn, policy, actor, critics, log_optimality)


def clip_rewards(rollout: Rollout, config: ActorCriticConfig) -> Rollout:
    """The rollout as the learner sees it: without rewards that no observation announces, where the user says so."""
    if config.reward_clip is None:
        return rollout
    return rollout._replace(reward=jnp.clip(rollout.reward, -config.reward_clip, config.reward_clip))


def exceeds(estimate: Float[Array, " C"], spec: EnvSpec, config: OrpoDrConfig) -> Bool[Array, " C"]:
    """Where a constraint estimate is above its limit, less the reserve, plus the tolerance."""
    return estimate > (1.0 - config.margin) * jnp.asarray(spec.cost_limits) + config.tolerance


def _adapt_weights(weights: Array, violated: Array, config: OrpoDrConfig) -> Array:
    factor = jnp.where(violated, 1.0 + config.weight_growth, 1.0 / (1.0 + config.weight_decay))
    return jnp.clip(weights * factor, config.weight_min, config.weight_max)


def _branch_weights(cost_weights: Array, violated: Array, config: OrpoDrConfig) -> Float[Array, " signals"]:
    """(w_r, w_1, .., w_C) of the branch that `violated` selects."""
    if config.rectify == "hard":
        reward = jnp.where(jnp.any(violated), 0.0, 1.0)
        return jnp.concatenate([reward[None], violated.astype(jnp.float32)])
    return jnp.concatenate([jnp.ones(1), cost_weights])
