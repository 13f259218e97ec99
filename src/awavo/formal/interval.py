"""Interval arithmetic with outward rounding: every operation returns an interval that holds all results.

The four operations are correctly rounded, so one step of `nextafter` on each side is rigorous. For elementary
functions the C library is trusted to `LIBRARY_ULPS` units in the last place (glibc documents at most 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LIBRARY_ULPS", "WHOLE", "ZERO", "Interval", "hull", "point"]

LIBRARY_ULPS = 4
INF = math.inf


class Interval(NamedTuple):
    """A closed interval of the extended reals."""

    lo: float
    hi: float

    def __add__(self, other: Interval) -> Interval:  # type: ignore[override]
        if other == ZERO:  # exact: no rounding
            return self
        if self == ZERO:
            return other
        return Interval(_sum(self.lo, other.lo, -1), _sum(self.hi, other.hi, 1))

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: Interval) -> Interval:
        return self + (-other)

    def __mul__(self, other: Interval) -> Interval:  # type: ignore[override]
        if ZERO in (self, other):
            return ZERO
        if other == ONE:
            return self
        if self == ONE:
            return other
        pairs = [(a, b) for a in self for b in other]
        return Interval(min(_product(a, b, -1) for a, b in pairs), max(_product(a, b, 1) for a, b in pairs))

    def __truediv__(self, other: Interval) -> Interval:
        return self * other.reciprocal()

    def reciprocal(self) -> Interval:
        """1 / x; the whole line if zero lies inside."""
        if self.lo < 0 < self.hi or self == ZERO:
            return WHOLE
        low = -INF if self.hi == 0 else 1 / self.hi
        high = INF if self.lo == 0 else 1 / self.lo
        return _outward(low, high)

    @property
    def width(self) -> float:
        """Length."""
        return self.hi - self.lo

    def map(
        self, function: Callable[[float], float], low: float = -INF, high: float = INF, exact: float | None = None
    ) -> Interval:
        """Image under an increasing elementary function with range [low, high], without rounding at `exact`."""
        below = function(self.lo) if self.lo == exact else _library(function, self.lo, -1)
        above = function(self.hi) if self.hi == exact else _library(function, self.hi, 1)
        return Interval(max(below, low), min(above, high))

    def power(self, exponent: int) -> Interval:
        """Image under a whole power."""
        if exponent < 0:
            return self.power(-exponent).reciprocal()
        if exponent == 0:
            return ONE
        if exponent == 1:
            return self
        ends = sorted((_whole_power(self.lo, exponent), _whole_power(self.hi, exponent)))
        if exponent % 2 == 0 and self.lo <= 0 <= self.hi:
            return Interval(0.0, _steps(ends[1], 1, exponent))
        low, high = _steps(ends[0], -1, exponent), _steps(ends[1], 1, exponent)
        return Interval(max(low, 0.0), high) if exponent % 2 == 0 else Interval(low, high)


ZERO, ONE = Interval(0.0, 0.0), Interval(1.0, 1.0)
WHOLE = Interval(-INF, INF)


def point(value: float) -> Interval:
    """The interval of one number."""
    return Interval(float(value), float(value))


def hull(*parts: Interval) -> Interval:
    """The smallest interval that holds all parts."""
    return Interval(min(p.lo for p in parts), max(p.hi for p in parts))


def _sum(a: float, b: float, direction: int) -> float:
    """A + b rounded up or down; the error of the sum is computed exactly, so an exact sum stays as it is."""
    total = a + b
    if math.isnan(total):
        return direction * INF
    if math.isinf(total):
        return total if math.isinf(a) or math.isinf(b) else _steps(total, direction)
    # Knuth's two-sum: the rounding error of a + b as a float.
    part = total - a
    error = (a - (total - part)) + (b - part)
    return total if error * direction <= 0 else math.nextafter(total, direction * INF)


def _product(a: float, b: float, direction: int) -> float:
    """A b rounded up or down, with 0 times infinity 0: the bound zero is attained, never exceeded."""
    if a == 0 or b == 0:
        return 0.0
    product = a * b
    if math.isinf(product) and (math.isinf(a) or math.isinf(b)):
        return product
    return math.nextafter(product, direction * INF)


def _whole_power(value: float, exponent: int) -> float:
    try:
        return value**exponent
    except OverflowError:
        return INF if value > 0 or exponent % 2 == 0 else -INF


def _steps(value: float, direction: int, count: int = 1) -> float:
    for _ in range(count):
        value = math.nextafter(value, direction * INF)
    return value


def _outward(low: float, high: float) -> Interval:
    return Interval(math.nextafter(low, -INF), math.nextafter(high, INF))


def _library(function: Callable[[float], float], at: float, direction: int) -> float:
    try:
        value = function(at)
    except OverflowError:
        value = INF if direction > 0 else math.nextafter(INF, 0)  # beyond every float, yet finite
    if math.isinf(value) and math.isinf(at):
        return value
    return _steps(value, direction, LIBRARY_ULPS)
