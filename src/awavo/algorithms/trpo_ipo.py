r"""TRPO-IPO: interior-point policy optimisation (Liu, Ding and Liu, 2020) with trust-region steps.

One call of `learn` is one iteration:

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  J_ci(theta) = J_ci + L E[(ratio - 1) A_ci],   L the mean episode length
    3  phi_i(theta) = log(d_i - J_ci(theta)) / t                    where J_ci < d_i
                    = -penalty E[(ratio - 1) A_ci]                  where it is violated
    4  F(theta) = w E[(ratio - 1) A_r] + sum_i phi_i(theta),   w = 0 while anything is violated (phase I), else 1
    5  x     <- H^-1 grad F,   grad F = E[A grad log pi],  A = w A_r - sum_i k_i A_ci,  k_i = L / (t slack_i) or penalty
    6  theta <- theta + sqrt(2 delta / x'Hx) x, shrunk until KL <= delta, F has not fallen
                and every satisfied constraint keeps slack >= min_slack

Deviations: the paper's base is PPO and it needs a feasible start; phase I replaces that need (`infeasible="penalty"`
keeps the reward, w = 1). The predicted cost is the surrogate of line 2 and not a product of ratios over whole
episodes, whose variance grows with their length.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyInfo, OnPolicyState, algorithm, trust_region
from awavo.algorithms.trust_region import Surrogate, local_model, natural_step
from awavo.config import setting
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["Barrier", "TrpoIpoConfig", "TrpoIpoInfo", "barrier", "objective", "trpo_ipo"]


@dataclass(frozen=True)
class TrpoIpoConfig(OnPolicyConfig):
    """Settings of TRPO-IPO."""

    barrier: float = setting(20.0, "sharpness t of the log barrier", low=1e-6, high=1e9)
    infeasible: str = setting("phase1", "what replaces a violated barrier", choices=("phase1", "penalty"))
    penalty: float = setting(1.0, "penalty: weight of a violation per step", low=0.0, high=1e6)
    min_slack: float = setting(1e-3, "smallest slack the line search may leave", low=0.0, high=1e6)


# Metrics of one `learn`: the shared ones, and k_i.
TrpoIpoInfo = namedtuple("TrpoIpoInfo", (*OnPolicyInfo._fields, "barrier_weight"))


class Barrier(NamedTuple):
    """F around the old policy: slacks d - J_c, which of them a barrier keeps, and the weights (w, k_i) of line 5."""

    slack: Float[Array, " C"]
    inside: Bool[Array, " C"]
    episode_length: Float[Array, ""]
    reward_weight: Float[Array, ""]
    cost_weights: Float[Array, " C"]


def trpo_ipo(spec: EnvSpec, config: TrpoIpoConfig) -> Algorithm[OnPolicyState, TrpoIpoInfo]:
    """Build TRPO-IPO for a task."""
    base = trust_region(spec, config)

    def learn(key: Array, state: OnPolicyState, rollout: Rollout) -> tuple[OnPolicyState, TrpoIpoInfo]:
        estimated = base.estimate(key, state, rollout)  # line 1
        batch = estimated.batch
        local = barrier(base.limits - batch.cost_totals, batch.episode_length, config)
        advantage = local.reward_weight * batch.reward_advantage - batch.cost_advantages @ local.cost_weights

        model = local_model(state.policy, batch, config)
        step = natural_step(model, advantage, config.max_kl)  # line 5
        here = objective(local, Surrogate(jnp.zeros(()), jnp.zeros(spec.num_costs), jnp.zeros(())), config)

        def accept(surrogate: Surrogate) -> Bool[Array, ""]:
            slack = local.slack - local.episode_length * surrogate.costs
            safe = jnp.all(~local.inside | (slack >= config.min_slack))
            return (surrogate.kl <= config.max_kl) & safe & (objective(local, surrogate, config) >= here)

        state, info = base.move(state, estimated, model, step, accept)  # line 6
        return state, TrpoIpoInfo(**info._asdict(), barrier_weight=local.cost_weights)

    return algorithm(base.init, learn)


def barrier(slack: Float[Array, " C"], episode_length: Float[Array, ""], config: TrpoIpoConfig) -> Barrier:
    """The barrier around a policy with the given slacks."""
    inside = slack > config.min_slack
    weights = jnp.where(inside, episode_length / (config.barrier * jnp.where(inside, slack, 1.0)), config.penalty)
    alone = (config.infeasible == "phase1") & ~jnp.all(inside)
    return Barrier(slack, inside, episode_length, jnp.where(alone, 0.0, 1.0), weights)


def objective(local: Barrier, surrogate: Surrogate, config: TrpoIpoConfig) -> Float[Array, ""]:
    """F of line 4; beyond a limit that was kept it is minus infinity."""
    slack = local.slack - local.episode_length * surrogate.costs
    kept = jnp.where(local.inside & (slack > 0), slack, 1.0)
    log_barrier = jnp.where(slack > 0, jnp.log(kept) / config.barrier, -jnp.inf)
    terms = jnp.where(local.inside, log_barrier, -config.penalty * surrogate.costs)
    return local.reward_weight * surrogate.reward + terms.sum()
