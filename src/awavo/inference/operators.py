r"""Operators F between an optimality likelihood p in (0, 1] and a return (Section 4.2, Conditions i and ii).

An operator is a pair of mutually inverse maps for the reward and a pair for the costs. With [low, high] the range of
the return,

.. math::
    F_r : (0, 1] \to [r_{min}, r_{max}] \text{ increasing}, \qquad F_g : (0, 1] \to [g_{min}, g_{max}] \text{
    decreasing}.

Everything is computed in log p: with the log operator the likelihood of the worst return is exp(-range / lam), far
below the smallest float.

========  ==========================================  =====================================
name      F_r(p)                                      F_g(p)
========  ==========================================  =====================================
logistic  high + S log p                              B + W softplus^-1(c - S log p / W)
log       r_max + lam log p                           g_min - lam log p
affine    r_min + (r_max - r_min) p                   g_max - (g_max - g_min) p
power     r_min + (r_max - r_min) p^kappa             g_max - (g_max - g_min) p^kappa
========  ==========================================  =====================================

For log, lam = temperature * range: the range is covered for p >= exp(-1 / temperature) (the floor).

The logistic operator is not tied to the ends of the range: for the reward [low, high] is the measured range of returns
and S its width; for a cost it is [B, B + S], from the budget on, and log p falls by 1 / S per unit above the budget and
bends to flat within W = min(S, B) of it: p is nearly flat where the limit is kept, however wide the range is. Were the
bend as wide as the range, costs far above the budget in memory would push a policy that has none at all.
c = softplus(-1) makes p = 1 at B - W. A budget of 0 leaves no room to bend in: W = S there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.registry import import_named

__all__ = ["OPERATORS", "Operator", "check_operator", "make_operator", "operator_from_maps"]

# The smallest share of the range a bounded operator tells from its worst end: keeps log p finite there.
SHARE_FLOOR = 1e-6

# The narrowest bend of the logistic operator, as a share of the range: a kink has no slope that a float can tell.
BEND_FLOOR = 1e-3

# Maps (value, low, high) of the return's range to a value.
RangeMap = Callable[..., Array]


class Operator(NamedTuple):
    """F as functions of (log p, low, high), and its inverse as functions of (return, low, high)."""

    name: str
    reward: RangeMap
    cost: RangeMap
    reward_log_likelihood: RangeMap
    cost_log_likelihood: RangeMap
    log_floor: float
    bounded: bool = True


def _log(temperature: float) -> Operator:
    def slope(low, high):
        return temperature * (high - low)

    return Operator(
        "log",
        lambda log_p, low, high: high + slope(low, high) * log_p,
        lambda log_p, low, high: low - slope(low, high) * log_p,
        lambda r, low, high: (r - high) / slope(low, high),
        lambda g, low, high: (low - g) / slope(low, high),
        -1.0 / temperature,
    )


def _power(kappa: float, name: str = "power") -> Operator:
    def log_share(share):
        return jnp.log(jnp.maximum(share, SHARE_FLOOR)) / kappa

    return Operator(
        name,
        lambda log_p, low, high: low + (high - low) * jnp.exp(kappa * log_p),
        lambda log_p, low, high: high - (high - low) * jnp.exp(kappa * log_p),
        lambda r, low, high: log_share((r - low) / (high - low)),
        lambda g, low, high: log_share((high - g) / (high - low)),
        float(np.log(SHARE_FLOOR)) / kappa,
    )


def _logistic() -> Operator:
    # log p of a cost one bend below its budget is 0: there is p = 1.
    best = float(np.logaddexp(-1.0, 0.0))

    def bend(low, high):
        """W as a share of S."""
        return jnp.where(low > 0, jnp.clip(low / (high - low), BEND_FLOOR, 1.0), 1.0)

    def excess(log_p):
        # softplus^-1(best - log p), for which exp would overflow
        x = best - log_p
        return x + jnp.log(-jnp.expm1(-x))

    def cost(log_p, low, high):
        share = bend(low, high)
        return low + share * (high - low) * excess(log_p / share)

    def cost_log_likelihood(g, low, high):
        share = bend(low, high)
        return share * (best - jax.nn.softplus((g - low) / (share * (high - low))))

    return Operator(
        "logistic",
        lambda log_p, low, high: high + (high - low) * log_p,
        cost,
        lambda r, low, high: (r - high) / (high - low),
        cost_log_likelihood,
        -1.0,
        bounded=False,
    )


OPERATORS: dict[str, Callable[[float, float], Operator]] = {
    "logistic": lambda temperature, kappa: _logistic(),
    "log": lambda temperature, kappa: _log(temperature),
    "affine": lambda temperature, kappa: _power(1.0, "affine"),
    "power": lambda temperature, kappa: _power(kappa),
}


def make_operator(name: str, *, temperature: float = 0.002, kappa: float = 0.1) -> Operator:
    """Build a shipped operator (`temperature` is for log, `kappa` for power), or import MODULE:NAME of the user's."""
    if ":" in name:
        return _import_operator(name)
    if name not in OPERATORS:
        raise UnknownNameError(f"no operator is named '{name}'.{did_you_mean(name, OPERATORS)}")
    return OPERATORS[name](temperature, kappa)


def _import_operator(path: str) -> Operator:
    found = import_named(path, "operator")
    if not isinstance(found, Operator):
        raise InputError(f"operator='{path}' is not an operator: build it with awavo.operator_from_maps.")
    return found


def operator_from_maps(
    reward: Callable[[Array], Array],
    reward_inverse: Callable[[Array], Array],
    cost: Callable[[Array], Array],
    cost_inverse: Callable[[Array], Array],
) -> Operator:
    """Build an operator from a user's maps between p in (0, 1] and the unit range [0, 1] of a return, and check it.

    Returns are shifted and scaled from [low, high] to [0, 1], so one pair of maps serves every task.
    """

    def inverse(map_fn, share):
        p = map_fn(jnp.clip(share, 0.0, 1.0))
        return jnp.log(jnp.maximum(p, SHARE_FLOOR))

    operator = Operator(
        "user",
        lambda log_p, low, high: low + (high - low) * reward(jnp.exp(log_p)),
        lambda log_p, low, high: low + (high - low) * cost(jnp.exp(log_p)),
        lambda r, low, high: inverse(reward_inverse, (r - low) / (high - low)),
        lambda g, low, high: inverse(cost_inverse, (g - low) / (high - low)),
        float(np.log(SHARE_FLOOR)),
    )
    check_operator(operator)
    return operator


def check_operator(operator: Operator, *, num_points: int = 20_001) -> None:
    """Refuse an operator that is not monotone, jumps, misses part of the range, or whose maps are not inverse.

    A numerical check on a grid of log p down to the operator's floor: it can refute the conditions, not prove them.
    """
    log_p = jnp.linspace(operator.log_floor, 0.0, num_points)
    p = np.exp(np.asarray(log_p, np.float64))
    # Any range will do, as long as it is not the unit range that a user's maps are written for.
    low, high = jnp.float32(-1.0), jnp.float32(3.0)
    for kind, forward, inverse, sign in (
        ("reward", operator.reward, operator.reward_log_likelihood, 1.0),
        ("cost", operator.cost, operator.cost_log_likelihood, -1.0),
    ):
        values = np.asarray(jax.vmap(lambda q, f=forward: f(q, low, high))(log_p), np.float64)
        _check_monotone(kind, p, values, sign)
        _check_range(kind, operator, values, float(low), float(high), sign)
        # There and back again must be the identity in p.
        back = np.exp(np.asarray(jax.vmap(lambda v, f=inverse: f(v, low, high))(jnp.asarray(values, jnp.float32))))
        worst = int(np.argmax(np.abs(back - p)))
        if not abs(back[worst] - p[worst]) <= 1e-3:
            raise InputError(
                f"operator '{operator.name}': the {kind} maps are not inverse to each other: p = {p[worst]:.4g} "
                f"comes back as {back[worst]:.4g}; pass F and its inverse."
            )


def _check_monotone(kind: str, p: np.ndarray, values: np.ndarray, sign: float) -> None:
    if not np.all(np.isfinite(values)):
        raise InputError(
            f"the {kind} operator is not finite at p = {p[np.argmin(np.isfinite(values))]:.4g}: "
            "it must be finite on (0, 1]."
        )
    steps = sign * np.diff(values)
    worst = int(np.argmin(steps))
    if steps[worst] < -1e-5:
        wanted = "increase" if sign > 0 else "decrease"
        raise InputError(
            f"the {kind} operator must {wanted} in p, but goes from {values[worst]:.4g} at p = {p[worst]:.4g} to "
            f"{values[worst + 1]:.4g} at p = {p[worst + 1]:.4g}."
        )
    jump = int(np.argmax(steps))
    if steps[jump] > 0.05 * max(np.ptp(values), 1e-9):
        raise InputError(
            f"the {kind} operator jumps by {steps[jump]:.4g} between p = {p[jump]:.6g} and {p[jump + 1]:.6g}: "
            "it must be continuous."
        )


def _check_range(kind: str, operator: Operator, values: np.ndarray, low: float, high: float, sign: float) -> None:
    worst, best = (low, high) if sign > 0 else (high, low)
    for label, value, wanted in (("best", values[-1], best), ("worst", values[0], worst)):
        if abs(value - wanted) > 0.02 * (high - low):
            share = (value - low) / (high - low)
            raise InputError(
                f"the {kind} operator covers too little: its {label} value is at {share:.3g} of the range, expected "
                f"{(wanted - low) / (high - low):.0f}; widen it to all of [low, high]."
            )
