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

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms.baseline_configs import TrpoLagrangianConfig
from awavo.algorithms.estimation import Estimates, estimator
from awavo.algorithms.onpolicy import act, initial_policy
from awavo.algorithms.trust_region import backtrack, local_model
from awavo.networks.optimize import polyak_average
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["Controller", "TrpoLagrangianInfo", "TrpoLagrangianState", "trpo_lagrangian", "update_multipliers"]


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


class TrpoLagrangianInfo(NamedTuple):
    """Metrics of one `learn`."""

    value_loss: Array
    kl: Array
    step_scale: Array
    entropy: Array
    feasible: Array
    cost_estimate: Array
    multiplier: Array


def trpo_lagrangian(spec: EnvSpec, config: TrpoLagrangianConfig) -> Algorithm:
    """Build TRPO-Lagrangian for a task."""
    limits = jnp.asarray(spec.cost_limits) * (1.0 - config.margin)
    estimation = estimator(spec, config)

    def init(key: Array) -> TrpoLagrangianState:
        policy_key, value_key = jax.random.split(key)
        controller = Controller(
            jnp.full(spec.num_costs, config.multiplier_initial, jnp.float32), jnp.zeros(spec.num_costs)
        )
        policy = initial_policy(policy_key, spec, config)
        return TrpoLagrangianState(policy, policy, estimation.init(value_key), controller)

    def learn(
        key: Array, state: TrpoLagrangianState, rollout: Rollout
    ) -> tuple[TrpoLagrangianState, TrpoLagrangianInfo]:
        estimates, batch, value_loss = estimation.update(key, state.estimates, rollout)
        excess = (batch.cost_totals - limits) / jnp.maximum(limits, 1.0)
        controller, multipliers = update_multipliers(state.controller, excess, config)
        total = 1.0 + multipliers.sum()
        advantage = (batch.reward_advantage - batch.cost_advantages @ multipliers) / total

        model = local_model(state.policy, batch, config)
        direction = model.solve(model.gradient(advantage))
        length = direction @ model.fisher(direction)
        step = jnp.sqrt(2 * config.max_kl / jnp.maximum(length, 1e-12)) * direction

        def accept(surrogate):
            return (surrogate.kl <= config.max_kl) & (surrogate.reward - surrogate.costs @ multipliers >= 0)

        parameters, scale, surrogate = backtrack(model, step, accept, config)
        policy = model.rebuild(parameters)
        average = polyak_average(policy, state.average, config.polyak)
        state = TrpoLagrangianState(policy, average, estimates, controller)
        info = TrpoLagrangianInfo(
            value_loss=value_loss,
            kl=surrogate.kl,
            step_scale=scale,
            entropy=state.policy(batch.obs).entropy().mean(),
            feasible=jnp.all(batch.cost_totals <= limits + config.tolerance).astype(jnp.float32),
            cost_estimate=batch.cost_totals,
            multiplier=multipliers,
        )
        return state, info

    return Algorithm(init, act, learn)


def update_multipliers(
    controller: Controller, excess: Float[Array, " C"], config: TrpoLagrangianConfig
) -> tuple[Controller, Float[Array, " C"]]:
    """Lines 2 and 3: the controller after one more excess, and the multipliers it gives."""
    integral = jnp.clip(controller.integral + config.ki * excess, 0.0, config.multiplier_max)
    rise = jnp.maximum(excess - controller.excess, 0.0)
    multipliers = jnp.clip(integral + config.kp * excess + config.kd * rise, 0.0, config.multiplier_max)
    return Controller(integral, excess), multipliers
