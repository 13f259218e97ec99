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
* with continuous actions environments explore differently, and one in four decides greedily (`exploration`); in larger
  tasks half of them begin with random actions;
* in larger tasks a cost's critic is told that after a termination costs go on as in another life: else to fall is a
  way to keep a limit, and Hopper takes it (`constraints.cost_rates`; not with `rectify="hard"`);
* greedy actions come from a Polyak average of the actor, as the theory outputs an average over iterates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.algorithms import replay as ring
from awavo.algorithms.actor_critic import ActorCriticConfig, Imagine, Learner, Objective, actor_critic
from awavo.algorithms.constraints import (
    CostProfile,
    control_weights,
    cost_error,
    cost_rates,
    count_costs,
    empty_profile,
    estimate_costs,
    standard_error,
    with_greedy_excess,
)
from awavo.algorithms.exploration import (
    GREEDY_EVERY,
    cut_ages,
    greedy_environments,
    lasting_noise,
    random_environments,
    start_noise,
)
from awavo.algorithms.sizes import generation, has_planner, is_small, patience, resolve_sizes, sees_tails
from awavo.algorithms.units import Units, cost_shares, initial_units, measure_units, rescale
from awavo.config import setting
from awavo.inference.operators import Operator, make_operator
from awavo.inference.optimality import (
    ReturnRange,
    SignalBounds,
    initial_bounds,
    log_optimality_fn,
    measure_range,
    return_bounds,
    widen_bounds,
)
from awavo.networks import (
    ActionDistribution,
    RunningStatistics,
    SquashedGaussian,
    SquashedMixture,
    actor_parts,
    normalize,
)
from awavo.networks.normalizer import follow_tails, normalize_with_tails, running_statistics, update_statistics
from awavo.networks.optimize import all_finite, choose
from awavo.networks.stochastic import kl_divergence
from awavo.types import ActorParts, Algorithm, Critics, Discrete, EnvSpec, Rollout

__all__ = [
    "OrpoDrConfig",
    "OrpoDrInfo",
    "OrpoDrParts",
    "OrpoDrState",
    "entropy_target",
    "orpo_dr",
    "orpo_dr_parts",
]

# How fast the entropy's weight is adapted, per rollout and nat, and between what.
ENTROPY_RATE, ENTROPY_RANGE, ENTROPY_FIRST = 0.1, (1e-3, 1e3), 0.1
# Entropy targets: share of the largest (discrete), nats per dimension of a box of width 2.
ENTROPY_SHARE, ENTROPY_PER_DIM = 0.25, -1.0
# Rows that the return ranges are measured on, steps over which they follow, smallest range of the reward in its unit.
RANGE_ROWS, RANGE_STEPS, REWARD_FLOOR = 1024, 6400.0, 0.1
# Safety margin of the return bounds, as a share of the range of one step's signals.
BOUND_MARGIN = 0.05


@dataclass(frozen=True)
class OrpoDrConfig(ActorCriticConfig):
    """Settings of ORPO-DR. The defaults were chosen by measurement; the paper's are the preset `paper`."""

    rectify: str = setting("posterior", "how a violated constraint acts", choices=("posterior", "hard"))
    tolerance: float = setting(0.0, "hard: tolerance tau_c on every limit", low=0.0, high=1e9)
    margin: float = setting(0.1, "share of each limit kept in reserve", low=0.0, high=1.0)


class OrpoDrState(NamedTuple):
    """The whole state: learner, memory, statistics, constraint weights, counters."""

    learner: Learner
    replay: ring.ReplayBuffer
    obs_stats: RunningStatistics
    units: Units
    bounds: SignalBounds
    ranges: ReturnRange
    profile: CostProfile
    greedy_profile: CostProfile
    integral: Float[Array, " C"]
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
    start: Callable[[int], Array] | None
    explore: Callable[[Array, OrpoDrState, Array, Array], tuple[Array, tuple[()], Array]] | None
    cut_after: Callable[[Array], Array] | None
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
        start=parts.start, explore=parts.explore, policy=parts.policy, actor=parts.actor, critics=parts.critics,
        cut_after=parts.cut_after,
    )  # fmt: skip


def orpo_dr_parts(spec: EnvSpec, config: OrpoDrConfig, operator: Operator | None = None) -> OrpoDrParts:
    """Build the parts of ORPO-DR for a task."""
    config = resolve_sizes(spec, config)
    operator = operator or make_operator(config.operator, temperature=config.temperature)
    networks = actor_critic(spec, config, operator, sees_tails(spec))
    likelihood = log_optimality_fn(operator)
    limits = jnp.asarray(spec.cost_limits, jnp.float32).reshape(spec.num_costs)
    shares = cost_shares(spec, config.discount)
    target = entropy_target(spec)
    rows, episodes = config.num_envs * config.rollout_length, generation(spec, config)
    # Discrete actions are drawn anew at every step, planned ones by the planner.
    dim = 0 if isinstance(spec.action_space, Discrete) else spec.action_space.dim
    explores = dim > 0 and not has_planner(config)
    has_greedy = explores and config.num_envs >= GREEDY_EVERY
    explores_first, outlived = not is_small(spec), not is_small(spec) and config.rectify == "posterior"

    def init(key: Array) -> OrpoDrState:
        learner = networks.init(key)
        zero, signals = jnp.zeros((), jnp.int32), 1 + spec.num_costs
        return OrpoDrState(
            learner,
            ring.empty_replay(spec, config.replay_capacity, config.backup_steps),
            running_statistics(spec.obs_dim, sees_tails(spec)),
            initial_units(spec, config.num_envs),
            initial_bounds(signals),
            ReturnRange(jnp.zeros(signals), jnp.zeros(signals)),
            empty_profile(spec.num_costs, spec.horizon),
            empty_profile(spec.num_costs, spec.horizon),
            jnp.zeros(spec.num_costs),
            jnp.asarray(ENTROPY_FIRST, jnp.float32),
            num_reward_updates=zero, num_rectified_updates=zero, num_skipped_updates=zero,
        )  # fmt: skip

    def act(key: Array, state: OrpoDrState, obs: Array, greedy: bool) -> tuple[Array, tuple[()]]:
        obs = normalize(state.obs_stats, obs)
        if greedy:
            return state.learner.average_actor(obs).mode(), ()
        return state.learner.actor(obs).sample(key), ()

    def explore(key: Array, state: OrpoDrState, obs: Array, memory: Array) -> tuple[Array, tuple[()], Array]:
        """Actions of the policy with each environment's own noise, and greedy ones."""
        noise, memory = lasting_noise(key, memory)
        seen = normalize(state.obs_stats, obs)
        dist = state.learner.actor(seen)
        if isinstance(dist, SquashedMixture):
            dist = dist.choose(jax.random.fold_in(key, 1))
        assert isinstance(dist, SquashedGaussian)
        greedy = greedy_environments(obs.shape[0])[:, None]
        chosen = jnp.where(greedy, state.learner.average_actor(seen).mode(), dist.at(noise))
        if explores_first:
            begins = (state.replay.added < config.warmup_steps) & random_environments(obs.shape[0])[:, None]
            chosen = jnp.where(begins, dist.anywhere(jax.random.fold_in(key, 2)), chosen)
        return chosen, (), memory

    def learn(
        key: Array, state: OrpoDrState, rollout: Rollout, imagine: Imagine | None
    ) -> tuple[OrpoDrState, OrpoDrInfo]:
        range_key, key = jax.random.split(key)
        state = observe(state, rollout)
        ready = state.replay.added >= config.warmup_steps
        first = state.replay.added - rows < config.warmup_steps
        estimate, error = constraint_errors(state)  # lines 1 and 3
        feasible = ~jnp.any(error > 0)
        integral, weights = branch(state.integral, error)  # lines 3 and 5: the branch, as weights
        batch = ring.sample(range_key, state.replay, RANGE_ROWS)
        rate = jnp.where(ready, jnp.where(first, 1.0, 1.0 - math.exp(-rows / RANGE_STEPS)), 0.0)
        state = state._replace(obs_stats=follow_tails(state.obs_stats, batch.obs, rate))
        seen = normalize_with_tails(state.obs_stats, batch.obs)
        values = raw_values(state, state.learner.target_critic(seen, batch.action))
        floors = jnp.concatenate([REWARD_FLOOR * state.units.unit[:1], state.units.unit[1:]])
        state = state._replace(ranges=measure_range(state.ranges, values, floors, rate))
        bounds = return_bounds(state.bounds, config.discount, BOUND_MARGIN)
        objective = Objective(
            state.obs_stats, state.units.unit, bounds, ranges_of(state), weights, state.entropy_weight,
            after_end(state),
        )  # fmt: skip

        old = state.learner
        keys = jax.random.split(key, config.num_updates)
        new, metrics = jax.lax.scan(  # lines 4 and 6
            lambda learner, k: networks.update(k, learner, state.replay, objective, imagine), old, keys
        )
        # Computed in any case, kept only after the warm-up and if nothing broke: no branch in the program.
        finite = all_finite(new)
        keep = ready & finite
        learner = choose(keep, new, old)
        state = state._replace(
            learner=learner,
            integral=jnp.where(ready, integral, state.integral),
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
        units = measure_units(state.units, rollout, shares, config.discount)
        # Before the first step there is no value to keep.
        ratio = jnp.where(state.units.steps > 0, state.units.unit / units.unit, 1.0)
        learner = state.learner._replace(
            critic=rescale(state.learner.critic, ratio), target_critic=rescale(state.learner.target_critic, ratio)
        )
        return state._replace(
            learner=learner,
            replay=memory,
            obs_stats=update_statistics(state.obs_stats, rollout.obs),
            units=units,
            bounds=widen_bounds(state.bounds, signals),
            profile=count_costs(state.profile, rollout, spec.horizon, episodes),
            greedy_profile=count_greedy(state.greedy_profile, rollout),
        )

    def count_greedy(profile: CostProfile, rollout: Rollout) -> CostProfile:
        if not has_greedy:
            return profile
        alone = jax.tree.map(lambda x: x[:, GREEDY_EVERY - 1 :: GREEDY_EVERY], rollout)
        return count_costs(profile, alone, spec.horizon, episodes / GREEDY_EVERY)

    def constraint_errors(state: OrpoDrState) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """J_i, and how far it is above its aim as a share of the limit."""
        estimate = estimate_costs(state.profile, spec.horizon)
        if has_greedy:
            estimate = with_greedy_excess(estimate, state.greedy_profile, spec.horizon)
        if config.rectify == "hard":
            return estimate, estimate - (1.0 - config.margin) * limits - config.tolerance
        return estimate, cost_error(
            estimate, standard_error(state.profile), limits, config.margin, episodes, patience(spec)
        )

    def after_end(state: OrpoDrState) -> Float[Array, " signals"]:
        """What counts after a termination: nothing is earned, and costs go on as in another life."""
        if not outlived:
            return jnp.zeros(1 + spec.num_costs)
        return jnp.concatenate([jnp.zeros(1), cost_rates(state.profile, spec.horizon) / (1.0 - config.discount)])

    def branch(integral: Array, error: Array) -> tuple[Array, Array]:
        """The next integral parts, and (w_r, w_1, .., w_C) of the branch that the errors select."""
        if config.rectify == "hard":
            violated = error > 0
            return integral, jnp.concatenate(
                [jnp.where(jnp.any(violated), 0.0, 1.0)[None], violated.astype(jnp.float32)]
            )
        integral, w = control_weights(integral, error, rows / (episodes * spec.horizon), patience(spec))
        return integral, jnp.concatenate([jnp.ones(1), w]) / (1.0 + w.sum())

    def raw_values(state: OrpoDrState, quantiles: Float[Array, "... signals M"]) -> Float[Array, "... signals"]:
        return state.units.unit * quantiles.mean(-1)

    def ranges_of(state: OrpoDrState) -> ReturnRange:
        """What the likelihoods are relative to: for costs, from the budget on."""
        reachable = return_bounds(state.bounds, config.discount, BOUND_MARGIN)
        if operator.bounded:
            return reachable
        # Before the first measurement, what returns can be at all.
        low, high = choose(jnp.all(state.ranges.high > state.ranges.low), state.ranges, reachable)
        span = high - low
        start = jnp.concatenate([low[:1], (1.0 - config.margin) * shares])
        return ReturnRange(start, start + span)

    def adapt_entropy(weight: Array, entropy: Array) -> Array:
        lack = jnp.clip(target - entropy, -1.0, 1.0)
        return jnp.clip(weight * jnp.exp(ENTROPY_RATE * lack), *ENTROPY_RANGE)

    def policy(state: OrpoDrState, obs: Array) -> ActionDistribution:
        return state.learner.average_actor(normalize(state.obs_stats, obs))

    def log_optimality(state: OrpoDrState, means: Float[Array, "... signals"]) -> Float[Array, "..."]:
        weights = branch(state.integral, constraint_errors(state)[1])[1]
        return likelihood(means, weights, ranges_of(state))[0]

    def actor(state: OrpoDrState) -> ActorParts:
        return actor_parts(state.obs_stats, state.learner.average_actor.net, spec.action_space, config.num_components)

    critics = Critics[OrpoDrState](
        quantiles=lambda state, obs, action: (
            state.units.unit[:, None] * state.learner.critic(normalize_with_tails(state.obs_stats, obs), action)
        ),
        signal_bounds=lambda state: (state.bounds.low, state.bounds.high),
        return_bounds=lambda state: return_bounds(state.bounds, config.discount, BOUND_MARGIN),
        after_end=after_end if outlived else None,
    )
    return OrpoDrParts(
        init, act, learn,
        start=(lambda num_envs: start_noise(num_envs, dim)) if explores else None,
        explore=explore if explores else None,
        cut_after=(lambda steps: cut_ages(steps, config.num_envs, spec.horizon)) if explores else None,
        policy=policy, actor=actor, critics=critics, log_optimality=log_optimality,
    )  # fmt: skip


def entropy_target(spec: EnvSpec) -> float:
    """Entropy in nats that the policy is kept at: a share of the largest, or so much per dimension of a box."""
    space = spec.action_space
    if isinstance(space, Discrete):
        return ENTROPY_SHARE * math.log(space.num)
    width = sum(math.log((high - low) / 2.0) for low, high in zip(space.low, space.high, strict=True))
    return ENTROPY_PER_DIM * space.dim + width
