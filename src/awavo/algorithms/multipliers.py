r"""Lagrange multipliers under proportional, integral and derivative control, one for each constraint.

.. code-block:: text

    e_i      =  (J_ci - d_i) / max(d_i, 1)                                       (relative excess)
    I_i      <- clip(I_i + k_i e_i n, 0, lambda_max)                               (dual ascent, n steps at once)
    lambda_i <- clip(I_i + k_p e_i + k_d max(0, e_i - e_i,old), 0, lambda_max)     (k_p = k_d = 0: lambda = I)

The PID terms are those of Stooke et al. (2020). The integral is clipped where the multiplier is, so it does not wind
up. The excess is relative to the limit, so that one gain serves costs of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.config import setting

__all__ = ["Controller", "MultiplierConfig", "initial_controller", "relative_excess", "update_multipliers"]


@dataclass(frozen=True)
class MultiplierConfig:
    """Settings of the multipliers; a PID multiplier with `kp` or `kd` above 0."""

    multiplier_initial: float = setting(0.0, "first multiplier of every constraint", low=0.0, high=1e6)
    multiplier_max: float = setting(20.0, "largest multiplier", low=0.0, high=1e6)
    ki: float = setting(0.01, "integral gain (the multiplier's step size) on the relative excess", low=0.0, high=1e3)
    kp: float = setting(0.0, "proportional gain", low=0.0, high=1e3)
    kd: float = setting(0.0, "gain on a rising cost", low=0.0, high=1e3)


class Controller(NamedTuple):
    """The integral of each constraint's excess, and its last excess."""

    integral: Float[Array, " C"]
    excess: Float[Array, " C"]


def initial_controller(num_costs: int, config: MultiplierConfig) -> Controller:
    """Before the first excess."""
    return Controller(jnp.full(num_costs, config.multiplier_initial, jnp.float32), jnp.zeros(num_costs))


def relative_excess(totals: Float[Array, " C"], limits: Float[Array, " C"]) -> Float[Array, " C"]:
    """e_i: how far an episode's costs are above their limits, in units of these."""
    return (totals - limits) / jnp.maximum(limits, 1.0)


def update_multipliers(
    controller: Controller, excess: Float[Array, " C"], config: MultiplierConfig, steps: Int[Array, ""] | int = 1
) -> tuple[Controller, Float[Array, " C"]]:
    """The controller after one more excess, which counts as so many steps, and the multipliers it gives."""
    integral = jnp.clip(controller.integral + config.ki * steps * excess, 0.0, config.multiplier_max)
    rise = jnp.maximum(excess - controller.excess, 0.0)
    multipliers = jnp.clip(integral + config.kp * excess + config.kd * rise, 0.0, config.multiplier_max)
    return Controller(integral, excess), multipliers
