"""Enclosures of a traced scalar function: its values and slopes over a whole interval, by interval arithmetic.

The function is traced once into jax's expression form and that expression is evaluated on intervals together with an
enclosure of its generalised derivative (forward mode). Constants are taken as the program holds them. A comparison that
an interval cannot decide splits the evaluation into branches, each of which is a composition of continuous functions:
one branch means continuous there, several mean that only the branches are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.errors import InputError
from awavo.formal.interval import ONE, WHOLE, ZERO, Interval, hull, point

__all__ = ["Branch", "Enclosure", "Unsupported", "trace_enclosure"]

MAX_BRANCHES = 64


class Unsupported(Exception):
    """A primitive this interpreter has no rule for."""


class Branch(NamedTuple):
    """Values and slopes on an interval; `defined` is "yes", "maybe" or "no"."""

    value: Interval
    slope: Interval
    defined: str = "yes"


NOWHERE = Branch(WHOLE, WHOLE, "no")
SOMEWHERE = Branch(WHOLE, WHOLE, "maybe")
Enclosure = Callable[[Interval], list[Branch]]


def trace_enclosure(function: Callable[[Any], Any], name: str = "function") -> Enclosure:
    """Trace a scalar function and return its enclosure: intervals to branches."""
    try:
        closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((), jnp.float32))
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the {name} cannot be traced by jax ({first}): write it with jax.numpy.") from error
    if len(closed.jaxpr.outvars) != 1 or closed.jaxpr.outvars[0].aval.shape != ():
        raise InputError(f"the {name} must return one number for one number.")

    def enclose(box: Interval) -> list[Branch]:
        found, pending = [], [()]
        while pending:
            decisions = pending.pop()
            fork = _Fork(decisions)
            out = _run(closed.jaxpr, closed.consts, [Branch(box, ONE)], fork)[0]
            found.append(out)
            for depth in range(len(decisions), len(fork.taken)):
                pending += [(*fork.taken[:depth], other) for other in range(1, fork.options[depth])]
            if len(found) + len(pending) > MAX_BRANCHES:
                return [SOMEWHERE]
        return list(dict.fromkeys(found))

    return enclose


class _Fork:
    """The choices of one evaluation: those prescribed, then the first option of every new one."""

    def __init__(self, decisions: tuple[int, ...]):
        self.decisions, self.taken, self.options = decisions, (), ()

    def choose(self, options: int) -> int:
        index = len(self.taken)
        pick = self.decisions[index] if index < len(self.decisions) else 0
        self.taken, self.options = (*self.taken, pick), (*self.options, options)
        return pick


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], fork: _Fork) -> list[Any]:
    env: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return _constant(atom.val) if hasattr(atom, "val") else env[atom]

    env.update(zip(jaxpr.constvars, map(_constant, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.invars]
        name = eqn.primitive.name
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        if inner is not None and name in _CALLS:
            body, extra = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
            outs = _run(body, extra, values, fork)
        elif name == "cond" and isinstance(values[0], bool):
            chosen = eqn.params["branches"][int(values[0])]
            outs = _run(chosen.jaxpr, chosen.consts, values[1:], fork)
        elif name in ("ne", "eq") and eqn.invars[0] is eqn.invars[1] and not hasattr(eqn.invars[0], "val"):
            outs = [name == "eq"]  # x != x asks for NaN, which no real number is
        else:
            outs = [_apply(name, values, eqn.params, fork)]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def _constant(value: Any) -> Any:
    array = np.asarray(value)
    if array.shape != ():
        return value
    if array.dtype == bool:
        return bool(array)
    number = float(array)
    return NOWHERE if math.isnan(number) else Branch(point(number), ZERO)


def _apply(name: str, args: list[Any], params: dict[str, Any], fork: _Fork) -> Any:
    if name in _COMPARE:
        return _compare(name, args, fork)
    if name in ("and", "or", "not", "xor") and all(isinstance(a, bool) for a in args):
        return {"and": all, "or": any, "not": lambda a: not a[0], "xor": lambda a: a[0] != a[1]}[name](args)
    if name == "select_n" and isinstance(args[0], bool):
        return args[1 + args[0]]
    if name == "convert_element_type":
        return _convert(args[0], np.dtype(params["new_dtype"]))
    if name in _COPIES:
        return args[0]
    rule = _RULES.get(name)
    if rule is None or not all(isinstance(a, Branch) for a in args):
        raise Unsupported(f"no interval rule for '{name}'")
    for worst in ("no", "maybe"):
        if any(a.defined == worst for a in args):
            return NOWHERE if worst == "no" else SOMEWHERE
    return rule(args, params, fork)


_COPIES = ("copy", "copy_p", "stop_gradient", "reduce_precision", "squeeze", "reshape", "optimization_barrier")


def _convert(value: Any, dtype: np.dtype) -> Any:
    if isinstance(value, bool):
        return Branch(point(float(value)), ZERO) if dtype.kind == "f" else value
    if dtype.kind == "f":
        return value
    whole = isinstance(value, Branch) and value.value.width == 0 and value.value.lo == int(value.value.lo)
    if whole:
        return value
    raise Unsupported(f"no interval rule for a conversion to {dtype}")


_COMPARE = {"lt", "le", "gt", "ge", "eq", "ne"}


def _compare(name: str, args: list[Any], fork: _Fork) -> bool:
    if all(isinstance(a, bool) for a in args):
        return (args[0] == args[1]) == (name == "eq")
    first, second = args
    if "no" in (first.defined, second.defined):
        return name == "ne"
    if name in ("gt", "ge"):
        first, second, name = second, first, {"gt": "lt", "ge": "le"}[name]
    a, b = first.value, second.value
    known = first.defined == second.defined == "yes"
    if name in ("lt", "le") and known:
        if a.hi < b.lo or (name == "le" and a.hi <= b.lo):
            return True
        if a.lo > b.hi or (name == "lt" and a.lo >= b.hi):
            return False
    if name in ("eq", "ne") and known:
        if a.hi < b.lo or a.lo > b.hi:
            return name == "ne"
        if a == b and a.width == 0:
            return name == "eq"
    return bool(fork.choose(2))


def _near(value: float) -> Interval:
    """An irrational constant."""
    return Interval(value * (1 - 1e-15), value * (1 + 1e-15))


def _chain(value: Interval, derivative: Interval, x: Branch) -> Branch:
    return Branch(value, derivative * x.slope)


def _exp(args, params, fork):
    value = args[0].value.map(math.exp, low=0.0, exact=0.0)
    return _chain(value, value, args[0])


def _log(args, params, fork):
    x = args[0]
    if x.value.hi < 0:
        return NOWHERE
    if x.value.lo < 0:
        return SOMEWHERE
    value = x.value.map(lambda v: -math.inf if v == 0 else math.log(v), exact=1.0)
    return _chain(value, Interval(max(x.value.lo, 0.0), x.value.hi).reciprocal(), x)


def _log1p(args, params, fork):
    x = args[0]
    return _log([Branch(x.value + ONE, x.slope)], params, fork)


def _expm1(args, params, fork):
    x = args[0]
    return _chain(x.value.map(math.expm1, low=-1.0), x.value.map(math.exp, low=0.0), x)


def _power(args, params, fork):
    base, exponent = args
    if exponent.value.width == 0 and exponent.slope == ZERO:
        c = exponent.value.lo
        if c == int(c) and abs(c) < 64:
            return _integer_power([base], {"y": int(c)}, fork)
        if base.value.hi < 0:
            return NOWHERE
        if base.value.lo < 0:
            return SOMEWHERE
        return _chain(_real_power(base.value, c), point(c) * _real_power(base.value, c - 1), base)
    log = _log([base], params, fork)
    if log.defined != "yes":
        return log
    return _exp([_multiply([log, exponent], params, fork)], params, fork)


def _real_power(x: Interval, c: float) -> Interval:
    def f(v: float) -> float:
        if v == 0:
            return math.inf if c < 0 else 0.0 if c > 0 else 1.0
        return v**c if math.isfinite(v) else (math.inf if c > 0 else 0.0)

    if c == 0:
        return ONE
    if c > 0:
        return x.map(f, low=0.0)
    flipped = Interval(x.hi, x.lo)
    low = Interval(flipped.lo, flipped.lo).map(f, low=0.0).lo
    return Interval(low, Interval(flipped.hi, flipped.hi).map(f, low=0.0).hi)


def _integer_power(args, params, fork):
    x, n = args[0], params["y"]
    if n < 0 and x.value.lo <= 0 <= x.value.hi:
        return SOMEWHERE if x.value != ZERO else NOWHERE
    return _chain(x.value.power(n), point(n) * x.value.power(n - 1) if n != 0 else ZERO, x)


def _add(args, params, fork):
    return Branch(args[0].value + args[1].value, args[0].slope + args[1].slope)


def _subtract(args, params, fork):
    return Branch(args[0].value - args[1].value, args[0].slope - args[1].slope)


def _multiply(args, params, fork):
    x, y = args
    return Branch(x.value * y.value, x.slope * y.value + x.value * y.slope)


def _divide(args, params, fork):
    x, y = args
    if y.value == ZERO:
        return NOWHERE
    if y.value.lo <= 0 <= y.value.hi:
        return SOMEWHERE
    inverse = y.value.reciprocal()
    return _multiply([x, Branch(inverse, -(inverse * inverse) * y.slope)], params, fork)


def _sqrt(args, params, fork):
    return _power([args[0], Branch(point(0.5), ZERO)], params, fork)


def _tanh(args, params, fork):
    value = args[0].value.map(math.tanh, -1.0, 1.0)
    slope = ONE - value.power(2)
    return _chain(value, Interval(max(slope.lo, 0.0), slope.hi), args[0])


def _logistic(args, params, fork):
    half = _multiply([args[0], Branch(point(0.5), ZERO)], params, fork)
    curve = _tanh([half], params, fork)
    scaled = _multiply([curve, Branch(point(0.5), ZERO)], params, fork)
    return _add([scaled, Branch(point(0.5), ZERO)], params, fork)


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


def _erf(args, params, fork):
    x = args[0]
    bell = (-(x.value.power(2))).map(math.exp, low=0.0)
    return _chain(x.value.map(math.erf, -1.0, 1.0), _near(2 / math.sqrt(math.pi)) * bell, x)


def _absolute(args, params, fork):
    x = args[0]
    if x.value.lo >= 0:
        return x
    if x.value.hi <= 0:
        return Branch(-x.value, -x.slope)
    return Branch(Interval(0.0, max(-x.value.lo, x.value.hi)), hull(x.slope, -x.slope))


def _maximum(args, params, fork):
    x, y = args
    if x.value.lo >= y.value.hi:
        return x
    if y.value.lo >= x.value.hi:
        return y
    value = Interval(max(x.value.lo, y.value.lo), max(x.value.hi, y.value.hi))
    return Branch(value, hull(x.slope, y.slope))


def _negate(args, params, fork):
    return Branch(-args[0].value, -args[0].slope)


def _minimum(args, params, fork):
    return _negate([_maximum([_negate([a], params, fork) for a in args], params, fork)], params, fork)


def _clamp(args, params, fork):
    low, x, high = args
    return _minimum([high, _maximum([low, x], params, fork)], params, fork)


def _steps(function: Callable[[float], float]):
    def rule(args, params, fork):
        x = args[0].value
        if not (math.isfinite(x.lo) and math.isfinite(x.hi)):
            return SOMEWHERE
        first, last = function(x.lo), function(x.hi)
        levels = last - first
        if levels > MAX_BRANCHES:
            return SOMEWHERE
        pick = fork.choose(int(levels) + 1) if levels else 0
        return Branch(point(first + pick), ZERO)

    return rule


def _sign(value: float) -> float:
    return float(value > 0) - float(value < 0)


_RULES: dict[str, Callable[..., Branch]] = {
    "add": _add,
    "add_any": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "neg": _negate,
    "exp": _exp,
    "exp2": lambda a, p, f: _exp([_multiply([a[0], Branch(_near(math.log(2)), ZERO)], p, f)], p, f),
    "log": _log,
    "log1p": _log1p,
    "expm1": _expm1,
    "pow": _power,
    "integer_pow": _integer_power,
    "square": lambda a, p, f: _integer_power(a, {"y": 2}, f),
    "sqrt": _sqrt,
    "rsqrt": lambda a, p, f: _power([a[0], Branch(point(-0.5), ZERO)], p, f),
    "tanh": _tanh,
    "logistic": _logistic,
    "sin": lambda a, p, f: _chain(_sine(a[0].value, 0), _sine(a[0].value, 1), a[0]),
    "cos": lambda a, p, f: _chain(_sine(a[0].value, 1), -_sine(a[0].value, 0), a[0]),
    "erf": _erf,
    "abs": _absolute,
    "max": _maximum,
    "min": _minimum,
    "clamp": _clamp,
    "floor": _steps(math.floor),
    "ceil": _steps(math.ceil),
    "round": _steps(round),
    "sign": _steps(_sign),
}
