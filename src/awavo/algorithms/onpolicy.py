"""What the trust-region methods share besides their step: the first policy, and acting.

At rest these methods step to and fro across the limits. Samples, which the method learns from, come from the last
policy; greedy actions, which a user keeps, from the running average of the parameters (`polyak = 1` is the last one).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float

from awavo.algorithms.baseline_configs import OnPolicyConfig
from awavo.algorithms.estimation import Estimates
from awavo.networks import normalize
from awavo.networks.stochastic import StochasticPolicy, stochastic_policy
from awavo.types import EnvSpec

__all__ = ["OnPolicyState", "act", "initial_policy"]


@runtime_checkable
class OnPolicyState(Protocol):
    """A state with a policy and what was estimated with it."""

    @property
    def policy(self) -> StochasticPolicy:
        """The last policy."""
        ...

    @property
    def average(self) -> StochasticPolicy:
        """The running average of the policies' parameters."""
        ...

    @property
    def estimates(self) -> Estimates:
        """Values, statistics and constraint totals."""
        ...


def initial_policy(key: Array, spec: EnvSpec, config: OnPolicyConfig) -> StochasticPolicy:
    """Draw the first policy."""
    return stochastic_policy(key, spec.obs_dim, spec.action_space, config.hidden, config.activation, config.log_std)


def act(key: Array, state: OnPolicyState, obs: Float[Array, "E d"], greedy: bool) -> tuple[Array, Array]:
    """Sample the last policy or take the mode of the average; the sample travels with the rollout, for the ratios."""
    policy = state.average if greedy else state.policy
    distribution = policy(normalize(state.estimates.obs_stats, obs))
    sample = distribution.mode() if greedy else distribution.sample(key)
    return state.policy.action(sample), sample
