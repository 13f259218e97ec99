"""What on-policy methods share besides their step: state, first policy, acting, and the tail of an iteration.

At rest the trust-region methods step to and fro across the limits. Samples, which the method learns from, come from the
last policy; greedy actions, which a user keeps, from the running average of the parameters (`polyak = 1` is the last
one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.algorithms.estimation import Batch, Estimates, EstimationConfig, estimator
from awavo.algorithms.trust_region import LocalModel, Surrogate, TrustRegionConfig, backtrack
from awavo.config import setting
from awavo.networks import ActionDistribution, actor_parts, normalize
from awavo.networks.optimize import polyak_average
from awavo.networks.stochastic import StochasticPolicy, stochastic_policy
from awavo.types import ActorParts, Algorithm, EnvSpec, Rollout

__all__ = [
    "Estimated", "OnPolicy", "OnPolicyConfig", "OnPolicyInfo", "OnPolicyState", "PolicyConfig", "TrustRegion",
    "algorithm", "on_policy", "trust_region",
]  # fmt: skip


@dataclass(frozen=True)
class PolicyConfig(EstimationConfig):
    """What all on-policy methods share, whatever their step is."""

    tolerance: float = setting(0.5, "tolerance on every limit", low=0.0, high=1e9)
    polyak: float = setting(0.05, "share of the newest policy in the average that acts greedily", low=1e-6, high=1.0)
    margin: float = setting(0.0, "share of each limit kept in reserve", low=0.0, high=1.0)
    window: int = setting(32, "finished episodes W in the constraint estimate", low=1, high=100_000)


@dataclass(frozen=True)
class OnPolicyConfig(TrustRegionConfig, PolicyConfig):
    """What all trust-region methods share. Defaults were chosen by measurement; a paper's are the preset `paper`."""


class OnPolicyState(NamedTuple):
    """The policy, its average and the estimates."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates


@runtime_checkable
class _PolicyState(Protocol):
    """A state that has at least the fields of `OnPolicyState`."""

    @property
    def policy(self) -> StochasticPolicy: ...
    @property
    def average(self) -> StochasticPolicy: ...
    @property
    def estimates(self) -> Estimates: ...


class OnPolicyInfo(NamedTuple):
    """Metrics that all on-policy methods have; `step_scale` is the share of the whole step that was taken."""

    value_loss: Array
    kl: Array
    step_scale: Array
    entropy: Array
    feasible: Array
    cost_estimate: Array


class Estimated(NamedTuple):
    """What an iteration estimates before its step."""

    estimates: Estimates
    batch: Batch
    value_loss: Float[Array, ""]


class OnPolicy(NamedTuple):
    """What a method adds its step to.

    `limits` are the task's, less the reserve; `estimate(key, state, rollout)` begins an iteration, and `finish(state,
    estimated, policy, kl, scale)` ends it with the policy after the step, how far it went and its share of a whole one.
    """

    limits: Float[Array, " C"]
    init: Callable[[Array], OnPolicyState]
    estimate: Callable[[Array, _PolicyState, Rollout], Estimated]
    finish: Callable[[_PolicyState, Estimated, StochasticPolicy, Array, Array], tuple[OnPolicyState, OnPolicyInfo]]


class TrustRegion(NamedTuple):
    """As `OnPolicy`, with `move(state, estimated, model, step, accept)` as the end: shrinks until `accept` takes it."""

    limits: Float[Array, " C"]
    init: Callable[[Array], OnPolicyState]
    estimate: Callable[[Array, _PolicyState, Rollout], Estimated]
    move: Callable[
        [_PolicyState, Estimated, LocalModel, Array, Callable[[Surrogate], Bool[Array, ""]]],
        tuple[OnPolicyState, OnPolicyInfo],
    ]


def on_policy(spec: EnvSpec, config: PolicyConfig) -> OnPolicy:
    """Build what on-policy methods share, for a task."""
    limits = jnp.asarray(spec.cost_limits) * (1.0 - config.margin)
    estimation = estimator(spec, config, config.window)

    def init(key: Array) -> OnPolicyState:
        policy_key, value_key = jax.random.split(key)
        policy = stochastic_policy(
            policy_key, spec.obs_dim, spec.action_space, config.hidden, config.activation, config.log_std
        )
        return OnPolicyState(policy, policy, estimation.init(value_key))

    def estimate(key: Array, state: _PolicyState, rollout: Rollout) -> Estimated:
        return Estimated(*estimation.update(key, state.estimates, rollout))

    def finish(
        state: _PolicyState,
        estimated: Estimated,
        policy: StochasticPolicy,
        kl: Float[Array, ""],
        scale: Float[Array, ""],
    ) -> tuple[OnPolicyState, OnPolicyInfo]:
        average = polyak_average(policy, state.average, config.polyak)
        batch = estimated.batch
        info = OnPolicyInfo(
            value_loss=estimated.value_loss,
            kl=kl,
            step_scale=scale,
            entropy=policy(batch.obs).entropy().mean(),
            feasible=jnp.all(batch.cost_totals <= limits + config.tolerance).astype(jnp.float32),
            cost_estimate=batch.cost_totals,
        )
        return OnPolicyState(policy, average, estimated.estimates), info

    return OnPolicy(limits, init, estimate, finish)


def trust_region(spec: EnvSpec, config: OnPolicyConfig) -> TrustRegion:
    """Build what the trust-region methods share, for a task."""
    base = on_policy(spec, config)

    def move(
        state: _PolicyState,
        estimated: Estimated,
        model: LocalModel,
        step: Float[Array, " n"],
        accept: Callable[[Surrogate], Bool[Array, ""]],
    ) -> tuple[OnPolicyState, OnPolicyInfo]:
        parameters, scale, surrogate = backtrack(model, step, accept, config)
        policy = model.rebuild(parameters)  # the old one, where no scale of the step was accepted
        return base.finish(state, estimated, policy, surrogate.kl, scale)

    return TrustRegion(base.limits, base.init, base.estimate, move)


State = TypeVar("State", bound=_PolicyState)
Info = TypeVar("Info")


def algorithm(
    init: Callable[[Array], State], learn: Callable[[Array, State, Rollout], tuple[State, Info]]
) -> Algorithm[State, Info]:
    """Put a method together from its own `init` and `learn`, and what all share."""
    return Algorithm(init, _act, learn, policy=_policy, actor=_actor)


def _act(key: Array, state: _PolicyState, obs: Float[Array, "E d"], greedy: bool) -> tuple[Array, Array]:
    """Sample the last policy or take the mode of the average; the sample travels with the rollout, for the ratios."""
    policy = state.average if greedy else state.policy
    distribution = policy(normalize(state.estimates.obs_stats, obs))
    # In the space the densities are written in: ratios need what was sampled, not what was executed.
    sample = distribution.mode() if greedy else distribution.sample(key)
    return state.policy.action(sample), sample


def _policy(state: _PolicyState, obs: Float[Array, "E d"]) -> ActionDistribution:
    return state.average.actions(normalize(state.estimates.obs_stats, obs))


def _actor(state: _PolicyState) -> ActorParts:
    return actor_parts(state.estimates.obs_stats, state.average.net, state.average.space)
