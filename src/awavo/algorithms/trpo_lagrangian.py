r"""TRPO-Lagrangian: trust-region steps on the Lagrangian, the multipliers by dual ascent or by PID control.

One call of `learn` is one iteration, with e_i = (J_ci - d_i) / max(d_i, 1):

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  I_i      <- clip(I_i + k_i e_i, 0, lambda_max)                             (dual ascent)
    3  lambda_i <- clip(I_i + k_p e_i + k_d max(0, e_i - e_i,old), 0, lambda_max)   (k_p = k_d = 0: lambda = I)
    4  A        <- (A_r - sum_i lambda_i A_ci) / (1 + sum_i lambda_i)
    5  x        <- H^-1 grad E[ratio A]
    6  theta    <- theta + sqrt(2 delta / x'Hx) x,  shrunk until KL <= delta and E[ratio A] has not fallen

The baseline of Ray et al. (2019); the PID terms are those of Stooke et al. (2020). The integral is clipped where the
multiplier is, so it does not wind up. Deviation: the excess is relative to the limit, so that one gain serves costs of
any size.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.algorithms.estimation import Estimates
from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyInfo, algorithm, on_policy
from awavo.algorithms.trust_region import Surrogate, local_model, natural_step
from awavo.config import setting
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = [
    "Controller",
    "TrpoLagrangianConfig",
    "TrpoLagrangianInfo",
    "TrpoLagrangianState",
    "trpo_lagrangian",
    "update_multipliers",
]


@dataclass(frozen=True)
class TrpoLagrangianConfig(OnPolicyConfig):
    """Settings of TRPO-Lagrangian; a PID multiplier with `kp` or `kd` above 0."""

    multiplier_initial: float = setting(0.0, "first multiplier of every constraint", low=0.0, high=1e6)
    multiplier_max: float = setting(20.0, "largest multiplier", low=0.0, high=1e6)
    ki: float = setting(0.01, "integral gain (the multiplier's step size) on the relative excess", low=0.0, high=1e3)
    kp: float = setting(0.0, "proportional gain", low=0.0, high=1e3)
    kd: float = setting(0.0, "gain on a rising cost", low=0.0, high=1e3)


class Controller(NamedTuple):
    """The integral of each constraint's excess, and its last excess."""

    integral: Float[Array, " C"]
    excess: Float[Array, " C"]


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
    base = on_policy(spec, config)

    def init(key: Array) -> TrpoLagrangianState:
        integral = jnp.full(spec.num_costs, config.multiplier_initial, jnp.float32)
        return TrpoLagrangianState(*base.init(key), Controller(integral, jnp.zeros(spec.num_costs)))

    def learn(
        key: Array, state: TrpoLagrangianState, rollout: Rollout
    ) -> tuple[TrpoLagrangianState, TrpoLagrangianInfo]:
        estimated = base.estimate(key, state, rollout)  # line 1
        batch = estimated.batch
        excess = (batch.cost_totals - base.limits) / jnp.maximum(base.limits, 1.0)
        controller, multipliers = update_multipliers(state.controller, excess, config)  # lines 2 and 3
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


def update_multipliers(
    controller: Controller, excess: Float[Array, " C"], config: TrpoLagrangianConfig
) -> tuple[Controller, Float[Array, " C"]]:
    """Lines 2 and 3: the controller after one more excess, and the multipliers it gives."""
    integral = jnp.clip(controller.integral + config.ki * excess, 0.0, config.multiplier_max)
    rise = jnp.maximum(excess - controller.excess, 0.0)
    multipliers = jnp.clip(integral + config.kp * excess + config.kd * rise, 0.0, config.multiplier_max)
    return Controller(integral, excess), multipliers
