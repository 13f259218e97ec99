"""Conditions (i) and (ii) on an operator F, proved or refuted by interval arithmetic over all of (0, 1].

With u = log p, F is enclosed with its slope on boxes that cover u <= 0, and boxes are halved until each shows a slope
of the right sign on a single continuous branch. A box whose ends contradict the order, a flat box, or two branches
whose values stay apart refute; a budget that runs out, or a kink whose sides only touch, leaves the claim undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from jax.typing import ArrayLike
from jaxtyping import Array

from awavo.errors import ConfigError
from awavo.formal.certificate import (
    PROVED,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Assumption,
    Certificate,
    Evidence,
    digest,
    weakest,
)
from awavo.formal.enclosure import Unsupported, trace_enclosure
from awavo.formal.interval import LIBRARY_ULPS, Interval
from awavo.formal.subdivision import BUDGET, Proof, in_log_p, in_return, prove_order, prove_range, prove_small
from awavo.inference.operators import Operator

__all__ = ["certify_operator", "require_operator"]

# F or its inverse, of (log p or return, low, high).
Map: TypeAlias = Callable[[ArrayLike, float, float], Array]

# Shares of the range by which it may be missed, and by which F may miss the inverse of its likelihood.
RANGE_TOLERANCE = 1e-6
INVERSE_TOLERANCE = 1e-3
# The last begins above 0 and is wide for that, as a cost's from its budget on: there the logistic operator bends.
RANGES = ((0.0, 1.0), (-1.0, 3.0), (0.1, 1.1))

ASSUMPTIONS = (
    Assumption("the map is the real function its traced program computes, constants as stored", PROVED),
    Assumption(
        f"the C library's exp, log and powers are within {LIBRARY_ULPS} units in the last place",
        SUPPORTED,
        "documented by glibc (at most 2); tested against correctly rounded decimals",
    ),
)


def certify_operator(operator: Operator, ranges: Sequence[tuple[float, float]] = RANGES) -> list[Certificate]:
    """Certify F_r (Condition i), F_g (Condition ii), and that the likelihoods used are their inverses."""
    sides = (
        ("reward", "i", 1, operator.reward, operator.reward_log_likelihood),
        ("cost", "ii", -1, operator.cost, operator.cost_log_likelihood),
    )
    found = []
    for kind, number, sign, forward, inverse in sides:
        per_range = [_condition(operator, kind, number, sign, forward, low, high) for low, high in ranges]
        found.append(_worst(per_range))
        if found[-1].verdict != REFUTED:
            found.append(_worst([_inverse(operator, kind, sign, forward, inverse, low, high) for low, high in ranges]))
    return found


def require_operator(operator: Operator) -> list[Certificate]:
    """Certify an operator before training; one that is refuted is refused with its counter-example."""
    certificates = certify_operator(operator)
    for certificate in certificates:
        if certificate.verdict == REFUTED:
            raise ConfigError(
                f"operator '{operator.name}' is refused before training: {certificate.reason} "
                f"({certificate.source.split(':')[0]}). Mend the operator, or take logistic, log, affine or power."
            )
    return certificates


def _worst(certificates: Sequence[Certificate]) -> Certificate:
    verdict = weakest(c.verdict for c in certificates)
    return next(c for c in certificates if c.verdict == verdict)


def _condition(
    operator: Operator, kind: str, number: str, sign: int, forward: Map, low: float, high: float
) -> Certificate:
    wanted = "increasing" if sign > 0 else "decreasing"
    floor = operator.log_floor
    try:
        enclose = trace_enclosure(lambda u: forward(u, low, high), f"{kind} operator")
        boxes = [Interval(-math.inf, floor), Interval(floor, 0.0)]
        order = prove_order(enclose, sign, boxes, flat_from=floor, shown=in_log_p, kind=kind)
        covered = prove_range(enclose, order, low, high, RANGE_TOLERANCE * (high - low), kind)
    except Unsupported as error:
        reason = f"the proof stops at this operator: {error}"
        order = covered = Proof(UNDECIDED, reason, None, 0, Interval(low, high))
    verdict = weakest((order.verdict, covered.verdict))
    shown = order if order.verdict == verdict else covered
    return Certificate(
        name=f"operator.{kind}",
        claim=f"F_{kind[0] if kind == 'reward' else 'g'} is continuous and {wanted} on (0, 1] and its range covers "
        f"[{low:g}, {high:g}] (its closure; up to {RANGE_TOLERANCE:g} of the range)",
        source=f"Condition ({number}): Section 5; needed by Proposition 3, Theorems 1 and 2",
        method="interval arithmetic with outward rounding on values and slopes, adaptive subdivision in log p",
        verdict=verdict,
        reason=shown.reason,
        assumptions=ASSUMPTIONS,
        evidence=(
            Evidence("boxes", order.boxes, required=f"at most {BUDGET}"),
            Evidence("worst value reached", covered.values.lo, required=f"{low if sign > 0 else high:g}"),
            Evidence("best value reached", covered.values.hi, required=f"{high if sign > 0 else low:g}"),
            Evidence("p above which the range is covered in floats", math.exp(floor)),
        ),
        counterexample=shown.counterexample,
        inputs=digest(operator.name, floor, low, high, _samples(forward, floor, low, high)),
    )


def _samples(forward: Map, floor: float, low: float, high: float) -> list[float]:
    """A fingerprint of the map: its values at a few places."""
    return [float(forward(share * floor, low, high)) for share in (1.0, 0.5, 0.25, 0.1, 0.01, 0.0)]


def _inverse(
    operator: Operator, kind: str, sign: int, forward: Map, inverse: Map, low: float, high: float
) -> Certificate:
    """|F(F^-1(v)) - v| over the whole range, by the mean-value form; and F^-1 in order."""
    slack = INVERSE_TOLERANCE * (high - low)
    whole = Interval(low, high)
    try:
        likelihood = trace_enclosure(lambda v: inverse(v, low, high), f"{kind} likelihood")
        order = prove_order(likelihood, sign, [whole], flat_from=None, shown=in_return, kind=f"{kind} likelihood")
        error = trace_enclosure(lambda v: forward(inverse(v, low, high), low, high) - v, f"{kind} composition")
        inverse_proof = prove_small(error, whole, slack, kind)
    except Unsupported as failure:
        order = inverse_proof = Proof(UNDECIDED, f"the proof stops at this operator: {failure}", None, 0, whole)
    verdict = weakest((order.verdict, inverse_proof.verdict))
    shown = inverse_proof if inverse_proof.verdict == verdict else order
    return Certificate(
        name=f"operator.{kind}_inverse",
        claim=f"the {kind} likelihood the actor ascends inverts F on [{low:g}, {high:g}] (to {INVERSE_TOLERANCE:g}) "
        "and never reverses the order of returns",
        source="Section 4.2: policy update through p(O) = F^-1",
        method="interval arithmetic: mean-value form of F(F^-1(v)) - v, slopes of F^-1",
        verdict=verdict,
        reason=shown.reason,
        assumptions=ASSUMPTIONS,
        evidence=(
            Evidence("largest error of F(F^-1(v))", max(map(abs, inverse_proof.values)), required=f"<= {slack:g}"),
            Evidence("boxes", order.boxes + inverse_proof.boxes, required=f"at most {2 * BUDGET}"),
        ),
        counterexample=shown.counterexample,
        inputs=digest(operator.name, operator.log_floor, low, high, _samples(forward, operator.log_floor, low, high)),
    )
