r"""The schedule of Theorem 2, both ways: from T to step sizes and the bound, and from a wanted gap to T.

.. math::
    J_r(\pi^*) - E J_r(\pi) \le \frac{C_5}{(1-\gamma)\sqrt T} + \frac{C_6}{(1-\gamma) m^{H/4}}
        + \frac{C_7 + 2 C_3 \sqrt{\log(1/\delta)}}{(1-\gamma) T m^{H/4}}

The second term does not fall with T: the paper's last line drops it, here it is the floor. The constants are not known
for a network; with the default 1 the result is an order of magnitude, not a guarantee.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from awavo.errors import InputError

__all__ = ["Constants", "Schedule", "iterations_for", "schedule"]


class Constants(NamedTuple):
    """C_3 (TD), C_5 (distance to the optimum and smoothness), C_6 and C_7 (linearisation)."""

    c3: float = 1.0
    c5: float = 1.0
    c6: float = 1.0
    c7: float = 1.0


class Schedule(NamedTuple):
    """Settings for T iterations and the bound they give, term by term."""

    iterations: int
    td_steps: int
    td_steps_statement: int
    td_steps_proof: int
    step_size: float
    tolerance: float
    optimisation: float
    floor: float
    transient: float
    bound: float


def _check(discount: float, width: int, layers: int, delta: float) -> None:
    if not 0 <= discount < 1:
        raise InputError(f"discount={discount} is not in [0, 1).")
    if width < 1 or layers < 1:
        raise InputError(f"width={width} and layers={layers} must be >= 1.")
    if not 0 < delta < 1:
        raise InputError(f"delta={delta} is not between 0 and 1.")


def _whole(value: float) -> int:
    """Round up, but not for the sake of a rounding error."""
    return math.ceil(value * (1 - 1e-12))


def schedule(
    discount: float, width: int, layers: int, iterations: int, delta: float = 0.05, constants: Constants | None = None
) -> Schedule:
    """K_td (the larger of the paper's two), l_Q, tau_c and the bound for T iterations."""
    _check(discount, width, layers, delta)
    if iterations < 1:
        raise InputError(f"iterations={iterations} must be >= 1.")
    c = constants or Constants()
    horizon, size = 1 / (1 - discount), width ** (layers / 4)
    statement, proof = (_whole(horizon**power * width ** (layers / 2)) for power in (1.5, 1.0))
    optimisation = c.c5 * horizon / math.sqrt(iterations)
    floor = c.c6 * horizon / size
    transient = (c.c7 + 2 * c.c3 * math.sqrt(math.log(1 / delta))) * horizon / (iterations * size)
    step_size = 1 / math.sqrt(iterations)
    tolerance = horizon / math.sqrt(iterations) + horizon / (iterations * size)
    steps, terms = (max(statement, proof), statement, proof), (optimisation, floor, transient)
    return Schedule(iterations, *steps, step_size, tolerance, *terms, optimisation + floor + transient)


def iterations_for(
    gap: float, discount: float, width: int, layers: int, delta: float = 0.05, constants: Constants | None = None
) -> Schedule:
    """The smallest T whose bound is at most `gap`; a gap at or below the floor is refused."""
    floor = schedule(discount, width, layers, 1, delta, constants).floor
    if not gap > floor:
        raise InputError(
            f"a gap of {gap:g} cannot be reached: the floor C6 / ((1 - gamma) m^(H/4)) is {floor:.4g} for every T; "
            "widen the network or accept a larger gap."
        )
    # The bound falls with T: double until it fits, then bisect.
    low, high = 0, 1
    while schedule(discount, width, layers, high, delta, constants).bound > gap:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = schedule(discount, width, layers, middle, delta, constants).bound <= gap
        low, high = (low, middle) if fits else (middle, high)
    return schedule(discount, width, layers, high, delta, constants)
