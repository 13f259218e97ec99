r"""TRPO-Lagrangian: trust-region steps on the Lagrangian, the multipliers by dual ascent or by PID control.

One call of `learn` is one iteration, with e_i = (J_ci - d_i) / max(d_i, 1):

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  I_i      <- clip(I_i + k_i e_i, 0, lambda_max), where an episode ended     (dual ascent)
    3  lambda_i <- clip(I_i + k_p e_i + k_d max(0, e_i - e_i,old), 0, lambda_max)   (k_p = k_d = 0: lambda = I)
    4  A        <- (A_r - sum_i lambda_i A_ci) / (1 + sum_i lambda_i)
    5  x        <- H^-1 grad E[ratio A]
    6  theta    <- theta + sqrt(2 delta / x'Hx) x,  shrunk until KL <= delta and E[ratio A] has not fallen

The baseline of Ray et al. (2019); lines 2 and 3 are `multipliers`.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Bool

from awavo.algorithms.estimation import Estimates
from awavo.algorithms.multipliers import (
    Controller,
    MultiplierConfig,
    initial_controller,
    relative_excess,
    update_multipliers,
)
from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyInfo, algorithm, trust_region
from awavo.algorithms.trust_region import Surrogate, local_model, natural_step
from awavo.networks.optimize import choose
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["TrpoLagrangianConfig", "TrpoLagrangianInfo", "TrpoLagrangianState", "trpo_lagrangian"]


@dataclass(frozen=True)
class TrpoLagrangianConfig(MultiplierConfig, OnPolicyConfig):
    """Settings of TRPO-Lagrangian."""


class TrpoLagrangianState(NamedTuple):
    """The policy, its average, the estimates and the multipliers' controller."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates
    controller: Controller


# Metrics of one `learn`: the shared ones, and lambda.
TrpoLagrangianInfo = namedtuple("TrpoLagrangianInfo", (*OnPolicyInfo._fields, "multiplier"))


def trpo_lagrangian(spec: EnvSpec, config: TrpoLagrangianConfig) -> Algorithm[TrpoLagrangianState, TrpoLagrangianInfo]:
    """Build TRPO-Lagrangian for a task."""
    base = trust_region(spec, config)

    def init(key: Array) -> TrpoLagrangianState:
        return TrpoLagrangianState(*base.init(key), initial_controller(spec.num_costs, config))

    def learn(
        key: Array, state: TrpoLagrangianState, rollout: Rollout
    ) -> tuple[TrpoLagrangianState, TrpoLagrangianInfo]:
        estimated = base.estimate(key, state, rollout)  # line 1
        batch = estimated.batch
        excess = relative_excess(batch.cost_totals, base.limits)
        # Without news of the costs the same excess is not counted again.
        excess, news = choose(rollout.done.any(), (excess, 1), (state.controller.excess, 0))
        controller, multipliers = update_multipliers(state.controller, excess, config, news)  # lines 2 and 3
        total = 1.0 + multipliers.sum()
        advantage = (batch.reward_advantage - batch.cost_advantages @ multipliers) / total  # line 4

        model = local_model(state.policy, batch, config)
        step = natural_step(model, advantage, config.max_kl)  # line 5

        def accept(surrogate: Surrogate) -> Bool[Array, ""]:
            return (surrogate.kl <= config.max_kl) & (surrogate.reward - surrogate.costs @ multipliers >= 0)

        moved, info = base.move(state, estimated, model, step, accept)  # line 6
        state = TrpoLagrangianState(**moved._asdict(), controller=controller)
        return state, TrpoLagrangianInfo(**info._asdict(), multiplier=multipliers)

    return algorithm(init, learn)
