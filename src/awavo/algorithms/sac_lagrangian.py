r"""SAC-Lagrangian: soft actor-critic on the Lagrangian, the multipliers under PID control.

One call of `learn` is one rollout, stored, and as many gradient steps as `update_ratio` says (`soft_actor_critic`):

.. code-block:: text

    1  J_ci <- mean UNDISCOUNTED cost of the last W episodes
    2  after every n episodes that ended:  lambda_i <- PID step on the relative excess, n steps of the integral
    3  Q, Q^c, alpha as in soft actor-critic
    4  pi <- ascend  E[min_k Q_k(s, a) - alpha log pi(a|s) - sum_i lambda_i Q^c_i(s, a)] / (1 + sum_i lambda_i)

Haarnoja et al. (2018) with the Lagrangian of Ray et al. (2019) and the PID terms of Stooke et al. (2020): OmniSafe's
SACPID, with these deviations. Its gains are of raw costs, at every gradient step and smoothed, here of the excess
relative to the limit, where episodes end; its multiplier waits for 200,000 steps, here for `multiplier_warmup` of them;
alpha is adapted; a cost's target is at a sampled next action, there at the greedy one; actor and targets move at every
gradient step, there at every second. docs/baselines.md has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.algorithms.multipliers import (
    Controller,
    MultiplierConfig,
    initial_controller,
    relative_excess,
    update_multipliers,
)
from awavo.algorithms.soft_actor_critic import Prices, SoftConfig, SoftInfo, SoftState, soft_actor_critic
from awavo.config import setting
from awavo.networks.optimize import choose
from awavo.types import Algorithm, EnvSpec

__all__ = ["PidDual", "SacLagrangianConfig", "pid_prices", "sac_lagrangian"]


@dataclass(frozen=True)
class SacLagrangianConfig(MultiplierConfig, SoftConfig):
    """Settings of SAC-Lagrangian."""

    multiplier_max: float = setting(100.0, "largest multiplier", low=0.0, high=1e6)
    ki: float = setting(0.02, "integral gain on the relative excess, for each finished episode", low=0.0, high=1e3)
    kp: float = setting(0.5, "proportional gain", low=0.0, high=1e3)
    kd: float = setting(0.1, "gain on a rising cost", low=0.0, high=1e3)
    multiplier_warmup: int = setting(
        0, "environment steps before the multipliers move; OmniSafe's wait for 200,000", low=0, high=1_000_000_000
    )


class PidDual(NamedTuple):
    """The multipliers and their controller."""

    controller: Controller
    multipliers: Float[Array, " C"]


def sac_lagrangian(spec: EnvSpec, config: SacLagrangianConfig) -> Algorithm[SoftState, SoftInfo]:
    """Build SAC-Lagrangian for a task."""
    return soft_actor_critic(spec, config, pid_prices(spec, config), "sac-lagrangian")


def pid_prices(spec: EnvSpec, config: SacLagrangianConfig) -> Prices:
    """Lines 1 and 2: multipliers that move when episodes end, and stay between."""
    limits = jnp.asarray(spec.cost_limits, jnp.float32).reshape(spec.num_costs) * (1.0 - config.margin)

    def init() -> PidDual:
        controller = initial_controller(spec.num_costs, config)
        return PidDual(controller, jnp.copy(controller.integral))

    def observe(dual: PidDual, totals: Float[Array, " C"], ended: Int[Array, ""], steps: Int[Array, ""]) -> PidDual:
        moved = update_multipliers(dual.controller, relative_excess(totals, limits), config, ended)
        return choose((ended > 0) & (steps >= config.multiplier_warmup), PidDual(*moved), dual)

    def prices(dual: PidDual, values: Float[Array, "B C"]) -> tuple[PidDual, Float[Array, " C"], Float[Array, ""]]:
        return dual, dual.multipliers, 1.0 + dual.multipliers.sum()

    return Prices(init, observe, lambda members: members.mean(0), prices, lambda dual: dual.multipliers)
