r"""CAL: conservative augmented Lagrangian, off-policy (Wu et al. 2024, "Off-Policy Primal-Dual Safe RL").

One call of `learn` is one rollout, stored, and as many gradient steps as `update_ratio` says, 10 for each environment
step (`soft_actor_critic`). With E critics of each cost and b_i = d_i (1 - gamma^T) / (1 - gamma) / T, the discounted
budget of a horizon T:

.. code-block:: text

    1  Qhat^c_i(s, a) =  mean_j Q^c_ij(s, a) + k std_j Q^c_ij(s, a)                 (conservative: an upper bound)
    2  excess_i       =  E[Qhat^c_i(s, a)] - b_i                                     over the stored actions of a batch
    3  p_i            =  max(0, lambda_i + c excess_i)                               (augmented: the price of a cost)
    4  pi             <- ascend  E[min_k Q_k(s, a) - alpha log pi(a|s) - sum_i p_i Qhat^c_i(s, a)]
    5  log lambda_i   <- Adam on  -lambda_i excess_i

With c = 0 the price is lambda_i: the plain Lagrangian. Line 3 is written in the paper as lambda less a term that is
clamped at lambda. Published settings: k = 0.5, E = 4 (8 on MuJoCo), c = 10 (100 on Ant, 1,000 on HalfCheetah and
Humanoid), batches of 12, 10 gradient steps for each environment step (20 on HalfCheetah). Its repository's targets from
the highest of the critics (Humanoid) are not here.

b_i is what T steps spend, as published, and the critics, which bootstrap at a time limit, say d_i / (1 - gamma) / T of
a policy at its limit: where T is not long beside 1 / (1 - gamma), costs are held to about 1 - gamma^T of their limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from awavo.algorithms.soft_actor_critic import Prices, SoftConfig, SoftInfo, SoftState, soft_actor_critic
from awavo.config import setting
from awavo.networks.optimize import descend, optimizer_state
from awavo.types import Algorithm, EnvSpec

__all__ = ["AugmentedDual", "CalConfig", "augmented_prices", "cal", "discounted_budget", "upper_bound"]

# Where log lambda is kept, so that no number overflows on a task that cannot be kept within its limits.
LOG_RANGE = (-20.0, 12.0)
SMALLEST_VARIANCE = 1e-12


@dataclass(frozen=True)
class CalConfig(SoftConfig):
    """Settings of CAL; its paper's, which has others for single MuJoCo tasks."""

    update_ratio: float = setting(10.0, "gradient steps for each environment step", low=1e-6, high=1e3)
    batch_size: int = setting(12, "transitions per gradient step", low=1, high=1_000_000)
    num_cost_critics: int = setting(4, "critics E of each cost", low=1, high=64)
    cost_critic_lr: float = setting(5e-4, "Adam step size of the costs' critics", low=0.0, high=1.0)
    target_every: int = setting(2, "gradient steps between averages", low=1, high=10_000)
    conservatism: float = setting(
        0.5, "k: standard deviations of the costs' critics added to their mean", low=0.0, high=1e3
    )
    penalty: float = setting(10.0, "c: weight of the augmented term", low=0.0, high=1e9)
    multiplier_lr: float = setting(3e-4, "Adam step size of the multipliers' logarithms", low=0.0, high=1.0)
    multiplier_initial: float = setting(0.6931, "first multiplier of every constraint", low=1e-8, high=1e5)


class AugmentedDual(NamedTuple):
    """Logarithms of the multipliers, and their optimiser."""

    log_multipliers: Float[Array, " C"]
    opt: optax.OptState


def cal(spec: EnvSpec, config: CalConfig) -> Algorithm[SoftState, SoftInfo]:
    """Build CAL for a task."""
    return soft_actor_critic(spec, config, augmented_prices(spec, config), "cal")


def augmented_prices(spec: EnvSpec, config: CalConfig) -> Prices:
    """Lines 1 to 3 and 5."""
    optimizer = optax.adam(config.multiplier_lr)
    budgets = (1.0 - config.margin) * discounted_budget(spec, config.discount)

    def init() -> AugmentedDual:
        logs = jnp.full(spec.num_costs, jnp.log(config.multiplier_initial), jnp.float32)
        return AugmentedDual(logs, optimizer_state(optimizer, logs))

    def observe(
        dual: AugmentedDual, totals: Float[Array, " C"], ended: Int[Array, ""], steps: Int[Array, ""]
    ) -> AugmentedDual:
        return dual  # the critics alone tell it of costs

    def prices(
        dual: AugmentedDual, values: Float[Array, "B C"]
    ) -> tuple[AugmentedDual, Float[Array, " C"], Float[Array, ""]]:
        multipliers, excess = jnp.exp(dual.log_multipliers), values.mean(0) - budgets
        logs, opt = descend(optimizer, -multipliers * excess, dual.opt, dual.log_multipliers)
        moved = AugmentedDual(jnp.clip(logs, *LOG_RANGE), opt)
        return moved, jnp.maximum(multipliers + config.penalty * excess, 0.0), jnp.ones(())

    return Prices(
        init,
        observe,
        lambda members: upper_bound(members, config.conservatism),
        prices,
        lambda dual: jnp.exp(dual.log_multipliers),
    )


def upper_bound(members: Float[Array, "E B C"], conservatism: float) -> Float[Array, "B C"]:
    """Mean over the critics plus k of their standard deviations; of one critic, itself."""
    if members.shape[0] == 1:
        return members[0]
    # The root of 0 has no derivative.
    std = jnp.sqrt(jnp.maximum(members.var(0, ddof=1), SMALLEST_VARIANCE))
    return members.mean(0) + conservatism * std


def discounted_budget(spec: EnvSpec, discount: float) -> Float[Array, " C"]:
    """What an episode at its limits spends from a state on, discounted, if it spends evenly."""
    share = (1.0 - discount**spec.horizon) / (1.0 - discount) / spec.horizon
    return jnp.asarray(spec.cost_limits, jnp.float32).reshape(spec.num_costs) * share
