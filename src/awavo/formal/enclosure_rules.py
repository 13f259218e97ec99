"""Interval rules of jax's scalar operations: from enclosures of the arguments to values and slopes of the result.

Every rule is the chain rule on intervals. Where an operation is not defined on all of its interval the result is
`NOWHERE` or `SOMEWHERE`; where it is continuous with a kink, the slope is the hull of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from awavo.formal.interval import ONE, WHOLE, ZERO, Interval, hull, point

__all__ = ["NOWHERE", "RULES", "SOMEWHERE", "STEPS", "Branch", "constant", "integer_power", "log_add_exp"]


class Branch(NamedTuple):
    """Values and slopes on an interval; `defined` is "yes", "maybe" or "no"."""

    value: Interval
    slope: Interval
    defined: str = "yes"


NOWHERE = Branch(WHOLE, WHOLE, "no")
SOMEWHERE = Branch(WHOLE, WHOLE, "maybe")


def constant(value: float) -> Branch:
    """A number: its slope is zero."""
    return Branch(point(value), ZERO)


def _near(value: float) -> Interval:
    """An irrational constant."""
    return Interval(value * (1 - 1e-15), value * (1 + 1e-15))


def _chain(value: Interval, derivative: Interval, x: Branch) -> Branch:
    return Branch(value, derivative * x.slope)


def _exp(x: Branch) -> Branch:
    value = x.value.map(math.exp, low=0.0, exact=0.0)
    return _chain(value, value, x)


def _log(x: Branch) -> Branch:
    if x.value.hi < 0:
        return NOWHERE
    if x.value.lo < 0:
        return SOMEWHERE
    value = x.value.map(lambda v: -math.inf if v == 0 else math.log(v), exact=1.0)
    return _chain(value, Interval(max(x.value.lo, 0.0), x.value.hi).reciprocal(), x)


def _expm1(x: Branch) -> Branch:
    return _chain(x.value.map(math.expm1, low=-1.0), x.value.map(math.exp, low=0.0), x)


def _power(base: Branch, exponent: Branch) -> Branch:
    if exponent.value.width == 0 and exponent.slope == ZERO:
        c = exponent.value.lo
        if c == int(c) and abs(c) < 64:
            return integer_power(base, int(c))
        if base.value.hi < 0:
            return NOWHERE
        if base.value.lo < 0:
            return SOMEWHERE
        return _chain(_real_power(base.value, c), point(c) * _real_power(base.value, c - 1), base)
    # x^y = exp(y log x).
    log = _log(base)
    return log if log.defined != "yes" else _exp(_multiply(log, exponent))


def _real_power(x: Interval, c: float) -> Interval:
    def f(v: float) -> float:
        if v == 0:
            return math.inf if c < 0 else 0.0 if c > 0 else 1.0
        return v**c if math.isfinite(v) else (math.inf if c > 0 else 0.0)

    if c == 0:
        return ONE
    if c > 0:
        return x.map(f, low=0.0)
    # `map` is for increasing functions: a negative power takes its low end from the high end of x.
    low, high = point(x.hi).map(f, low=0.0).lo, point(x.lo).map(f, low=0.0).hi
    return Interval(low, high)


def integer_power(x: Branch, n: int) -> Branch:
    """x^n with its slope n x^(n - 1)."""
    if n < 0 and x.value.lo <= 0 <= x.value.hi:
        return SOMEWHERE if x.value != ZERO else NOWHERE
    return _chain(x.value.power(n), point(n) * x.value.power(n - 1) if n != 0 else ZERO, x)


def _add(x: Branch, y: Branch) -> Branch:
    return Branch(x.value + y.value, x.slope + y.slope)


def _subtract(x: Branch, y: Branch) -> Branch:
    return Branch(x.value - y.value, x.slope - y.slope)


def _multiply(x: Branch, y: Branch) -> Branch:
    return Branch(x.value * y.value, x.slope * y.value + x.value * y.slope)


def _divide(x: Branch, y: Branch) -> Branch:
    if y.value == ZERO:
        return NOWHERE
    if y.value.lo <= 0 <= y.value.hi:
        return SOMEWHERE
    inverse = y.value.reciprocal()
    return _multiply(x, Branch(inverse, -(inverse * inverse) * y.slope))


def _tanh(x: Branch) -> Branch:
    value = x.value.map(math.tanh, -1.0, 1.0)
    slope = ONE - value.power(2)
    return _chain(value, Interval(max(slope.lo, 0.0), slope.hi), x)


def _logistic(x: Branch) -> Branch:
    # (1 + tanh(x / 2)) / 2.
    half = constant(0.5)
    return _add(_multiply(_tanh(_multiply(x, half)), half), half)


def _sine(x: Interval, shift: float) -> Interval:
    """sin(x + shift pi / 2): the ends, and the extremes where a peak may lie inside."""
    if not math.isfinite(x.width) or x.width >= 6 or max(map(abs, x)) > 1e6:
        return Interval(-1.0, 1.0)
    margin = 1e-9
    ends = [math.sin(v + shift * math.pi / 2) for v in x]
    quarter = [(v + shift * math.pi / 2) / (math.pi / 2) for v in (x.lo - margin, x.hi + margin)]
    peaks = range(math.ceil(quarter[0]), math.floor(quarter[1]) + 1)
    high = 1.0 if any(k % 4 == 1 for k in peaks) else min(max(ends) + margin, 1.0)
    low = -1.0 if any(k % 4 == 3 for k in peaks) else max(min(ends) - margin, -1.0)
    return Interval(low, high)


def _erf(x: Branch) -> Branch:
    bell = (-(x.value.power(2))).map(math.exp, low=0.0)
    return _chain(x.value.map(math.erf, -1.0, 1.0), _near(2 / math.sqrt(math.pi)) * bell, x)


def _arctangent(x: Branch) -> Branch:
    quarter = math.nextafter(math.pi / 2, 2.0)
    return _chain(x.value.map(math.atan, -quarter, quarter), (ONE + x.value.power(2)).reciprocal(), x)


def _cube_root(x: Branch) -> Branch:
    value = x.value.map(math.cbrt)
    square = point(3.0) * value.power(2)
    # Steeper without bound towards 0, and rising all the same.
    slope = square.reciprocal() if square.lo > 0 else Interval(point(square.hi).reciprocal().lo, math.inf)
    return _chain(value, slope, x)


def log_add_exp(x: Branch, y: Branch) -> Branch:
    """log(e^x + e^y) = y + log(1 + e^(x - y)), whose slope is logistic: smooth where the program has a kink."""
    gap = _subtract(x, y)
    value = _log(_add(constant(1.0), _exp(Branch(gap.value, ONE)))).value
    return _add(y, _chain(value, _logistic(Branch(gap.value, ONE)).value, gap))


def _absolute(x: Branch) -> Branch:
    if x.value.lo >= 0:
        return x
    if x.value.hi <= 0:
        return _negate(x)
    return Branch(Interval(0.0, max(-x.value.lo, x.value.hi)), hull(x.slope, -x.slope))


def _maximum(x: Branch, y: Branch) -> Branch:
    if x.value.lo >= y.value.hi:
        return x
    if y.value.lo >= x.value.hi:
        return y
    value = Interval(max(x.value.lo, y.value.lo), max(x.value.hi, y.value.hi))
    return Branch(value, hull(x.slope, y.slope))


def _negate(x: Branch) -> Branch:
    return Branch(-x.value, -x.slope)


def _minimum(x: Branch, y: Branch) -> Branch:
    return _negate(_maximum(_negate(x), _negate(y)))


RULES: dict[str, Callable[..., Branch]] = {
    "add": _add,
    "add_any": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "neg": _negate,
    "exp": _exp,
    "exp2": lambda x: _exp(_multiply(x, Branch(_near(math.log(2)), ZERO))),
    "log": _log,
    "log1p": lambda x: _log(Branch(x.value + ONE, x.slope)),
    "expm1": _expm1,
    "pow": _power,
    "square": lambda x: integer_power(x, 2),
    "sqrt": lambda x: _power(x, constant(0.5)),
    "rsqrt": lambda x: _power(x, constant(-0.5)),
    "tanh": _tanh,
    "logistic": _logistic,
    "sin": lambda x: _chain(_sine(x.value, 0), _sine(x.value, 1), x),
    "cos": lambda x: _chain(_sine(x.value, 1), -_sine(x.value, 0), x),
    "erf": _erf,
    "atan": _arctangent,
    "cbrt": _cube_root,
    "abs": _absolute,
    "max": _maximum,
    "min": _minimum,
    "clamp": lambda low, x, high: _minimum(high, _maximum(low, x)),
}

# Increasing step functions: an interval may meet several of their levels, each a branch of its own.
STEPS: dict[str, Callable[[float], float]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "sign": lambda value: float(value > 0) - float(value < 0),
}
