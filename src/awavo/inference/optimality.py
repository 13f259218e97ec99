r"""How likely a return is optimal: from the critics' means to the log-likelihoods that weigh reward against costs.

.. math::  \log p(O \mid s, a) = w_r \log p(O_r \mid s, a) + \sum_i w_i \log p(O_{g_i} \mid s, a),

each term :math:`F^{-1}` of an expected return, on the range that returns can have: the signals seen in one step, over
the effective horizon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.inference.operators import Operator

__all__ = [
    "ReturnRange",
    "SignalBounds",
    "initial_bounds",
    "log_optimality_fn",
    "measure_range",
    "return_bounds",
    "widen_bounds",
]


# Which points of the critics' values are the ends of a measured range.
RANGE_POINTS = (5.0, 95.0)


class SignalBounds(NamedTuple):
    """Smallest and largest value of each signal in one step (always including 0), from the data."""

    low: Float[Array, " signals"]
    high: Float[Array, " signals"]


class ReturnRange(NamedTuple):
    """The range of each signal's discounted return that the likelihoods are relative to."""

    low: Float[Array, " signals"]
    high: Float[Array, " signals"]


def initial_bounds(num_signals: int) -> SignalBounds:
    """Before any data: a range that is small, but not empty."""
    return SignalBounds(jnp.zeros(num_signals), jnp.full(num_signals, 1e-3, jnp.float32))


def widen_bounds(bounds: SignalBounds, signals: Float[Array, "N signals"]) -> SignalBounds:
    """Bounds that hold the new signals too."""
    return SignalBounds(jnp.minimum(bounds.low, signals.min(0)), jnp.maximum(bounds.high, signals.max(0)))


def return_bounds(bounds: SignalBounds, discount: float, margin: float) -> ReturnRange:
    """Bounds of the discounted return: the range of one step over the effective horizon, with a safety margin."""
    horizon = 1.0 / (1.0 - discount)
    extra = margin * (bounds.high - bounds.low)
    return ReturnRange(horizon * (bounds.low - extra), horizon * (bounds.high + extra))


def measure_range(
    ranges: ReturnRange, values: Float[Array, "N signals"], floors: Float[Array, " signals"], rate: Float[Array, ""]
) -> ReturnRange:
    """Follow the 5% and 95% points of the critics' values, a share `rate` of the way; no range below its floor."""
    low, high = (jnp.percentile(values, point, axis=0) for point in RANGE_POINTS)
    high = jnp.maximum(high, low + floors)
    return ReturnRange(ranges.low + rate * (low - ranges.low), ranges.high + rate * (high - ranges.high))


def log_optimality_fn(
    operator: Operator,
) -> Callable[[Float[Array, "... signals"], Float[Array, " signals"], ReturnRange], tuple[Array, Array]]:
    """Build `f(means, weights, ranges)`: w_r log p(O_r) + sum_i w_i log p(O_gi), and the share of means clipped."""

    def log_optimality(
        means: Float[Array, "... signals"], weights: Float[Array, " signals"], ranges: ReturnRange
    ) -> tuple[Array, Array]:
        low, high = ranges
        clip_rate = jnp.zeros(())
        if operator.bounded:
            # Defined on its range only; means beyond it are counted, as they bring no gradient.
            clipped = jnp.clip(means, low, high)
            clip_rate = jnp.mean((clipped != means).astype(jnp.float32))
            means = clipped
        reward = operator.reward_log_likelihood(means[..., 0], low[0], high[0])
        costs = operator.cost_log_likelihood(means[..., 1:], low[1:], high[1:])
        return weights[0] * reward + costs @ weights[1:], clip_rate

    return log_optimality
