"""Enclosures of a traced scalar function: its values and slopes over a whole interval, by interval arithmetic.

The function is traced once into jax's expression form and that expression is evaluated on intervals together with an
enclosure of its generalised derivative (forward mode). Constants are taken as the program holds them. A comparison that
an interval cannot decide splits the evaluation into branches, each of which is a composition of continuous functions:
one branch means continuous there, several mean that only the branches are known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.typing import ArrayLike
from jaxtyping import Array

from awavo.errors import InputError
from awavo.formal.enclosure_rules import NOWHERE, RULES, SOMEWHERE, STEPS, Branch, constant, integer_power, log_add_exp
from awavo.formal.interval import ONE, Interval
from awavo.types import Fields

__all__ = ["Branch", "Enclosure", "Unsupported", "trace_enclosure"]

MAX_BRANCHES = 64  # beyond them nothing is said of a box: the caller halves it


class Unsupported(Exception):
    """A primitive this interpreter has no rule for."""


Enclosure: TypeAlias = Callable[[Interval], list[Branch]]
# What a variable of the traced program holds: an enclosed number, a decided comparison, or an array that no rule reads.
Value: TypeAlias = Branch | bool | np.ndarray


def trace_enclosure(function: Callable[[Array], Array], name: str = "function") -> Enclosure:
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
            if not isinstance(out, Branch):
                raise Unsupported("its result is not a number")
            found.append(out)
            # Every choice that was met for the first time has other options: each is an evaluation of its own.
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


def _run(jaxpr: Jaxpr, consts: Sequence[ArrayLike], args: Sequence[Value], fork: _Fork) -> list[Value]:
    """Evaluate the traced program, one operation after the other."""
    env: dict[Var, Value] = {}

    def read(atom: Var | Literal) -> Value:
        return _constant(atom.val) if isinstance(atom, Literal) else env[atom]

    env.update(zip(jaxpr.constvars, map(_constant, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.invars]
        name = eqn.primitive.name
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        if name == "custom_jvp_call" and str(inner) == _log_add_exp_program():
            outs = [_apply_log_add_exp(values)]
        elif inner is not None and name in _CALLS:
            body, extra = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
            outs = _run(body, extra, values, fork)
        elif name == "cond" and isinstance(values[0], bool):
            chosen = eqn.params["branches"][int(values[0])]
            outs = _run(chosen.jaxpr, chosen.consts, values[1:], fork)
        elif name in ("ne", "eq") and eqn.invars[0] is eqn.invars[1] and not isinstance(eqn.invars[0], Literal):
            outs = [name == "eq"]  # x != x asks for NaN, which no real number is
        else:
            outs = [_apply(name, values, eqn.params, fork)]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


@functools.cache
def _log_add_exp_program() -> str:
    """The program of jax's logaddexp, which softplus is made of; known by what it computes, not by its name."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    traced = jax.make_jaxpr(jax.nn.softplus)(number).jaxpr
    while traced.eqns[0].primitive.name != "custom_jvp_call":
        traced = traced.eqns[0].params["jaxpr"].jaxpr
    return str(traced.eqns[0].params["call_jaxpr"])


def _apply_log_add_exp(values: list[Value]) -> Value:
    x, y = values
    if not (isinstance(x, Branch) and isinstance(y, Branch)):
        raise Unsupported("no interval rule for 'logaddexp' of these")
    if "no" in (x.defined, y.defined):
        return NOWHERE
    return SOMEWHERE if "maybe" in (x.defined, y.defined) else log_add_exp(x, y)


_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def _constant(value: ArrayLike) -> Value:
    array = np.asarray(value)
    if array.shape != ():
        return array
    if array.dtype == bool:
        return bool(array)
    number = float(array)
    return NOWHERE if math.isnan(number) else constant(number)


def _apply(name: str, args: list[Value], params: Fields, fork: _Fork) -> Value:
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
    branches = [a for a in args if isinstance(a, Branch)]
    if name not in (*RULES, *STEPS, "integer_pow") or len(branches) < len(args):
        raise Unsupported(f"no interval rule for '{name}'")
    for worst in ("no", "maybe"):
        if any(b.defined == worst for b in branches):
            return NOWHERE if worst == "no" else SOMEWHERE
    if name in STEPS:
        return _step(STEPS[name], branches[0].value, fork)
    return integer_power(branches[0], params["y"]) if name == "integer_pow" else RULES[name](*branches)


_COPIES = ("copy", "copy_p", "stop_gradient", "reduce_precision", "squeeze", "reshape", "optimization_barrier")


def _step(function: Callable[[float], float], x: Interval, fork: _Fork) -> Branch:
    """A step function: one of the levels that it takes on the interval."""
    if not (math.isfinite(x.lo) and math.isfinite(x.hi)):
        return SOMEWHERE
    first, last = function(x.lo), function(x.hi)
    levels = last - first
    if levels > MAX_BRANCHES:
        return SOMEWHERE
    return constant(first + (fork.choose(int(levels) + 1) if levels else 0))


def _convert(value: Value, dtype: np.dtype) -> Value:
    if isinstance(value, bool):
        return constant(float(value)) if dtype.kind == "f" else value
    if dtype.kind == "f":
        return value
    whole = isinstance(value, Branch) and value.value.width == 0 and value.value.lo == int(value.value.lo)
    if whole:
        return value
    raise Unsupported(f"no interval rule for a conversion to {dtype}")


_COMPARE = {"lt", "le", "gt", "ge", "eq", "ne"}


def _compare(name: str, args: list[Value], fork: _Fork) -> bool:
    first, second = args
    if isinstance(first, bool) and isinstance(second, bool):
        return (first == second) == (name == "eq")
    if not (isinstance(first, Branch) and isinstance(second, Branch)):
        raise Unsupported(f"no interval rule for '{name}'")
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
