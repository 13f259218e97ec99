"""Conditions (i) and (ii) on an operator F, proved or refuted by interval arithmetic over all of (0, 1].

With u = log p, F is enclosed with its slope on boxes that cover u <= 0, and boxes are halved until each shows a slope
of the right sign on a single continuous branch. A box whose ends contradict the order, a flat box, or two branches
whose values stay apart refute; a budget that runs out, or a kink whose sides only touch, leaves the claim undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
from awavo.formal.enclosure import Branch, Enclosure, Unsupported, trace_enclosure
from awavo.formal.interval import LIBRARY_ULPS, Interval, hull, point
from awavo.inference.operators import Operator

__all__ = ["certify_operator", "require_operator"]

BUDGET = 5_000
SMALLEST = 1e-13
RANGE_TOLERANCE = 1e-6
INVERSE_TOLERANCE = 1e-3
FLAT_SHARE = 1 / 64
RANGES = ((0.0, 1.0), (-1.0, 3.0))

ASSUMPTIONS = (
    Assumption("the map is the real function its traced program computes, constants as stored", PROVED),
    Assumption(
        f"the C library's exp, log and powers are within {LIBRARY_ULPS} units in the last place",
        SUPPORTED,
        "documented by glibc (at most 2); tested against correctly rounded decimals",
    ),
)


class Scale(NamedTuple):
    """How a point of the boxes is shown to a person."""

    symbol: str
    of: Callable[[float], float]


_probability, _return = Scale("p", math.exp), Scale("return", float)


class Finding(NamedTuple):
    """What the subdivision found."""

    verdict: str
    reason: str
    counterexample: dict[str, Any] | None
    boxes: int
    values: Interval


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
                f"({certificate.source.split(':')[0]}). Mend the operator, or take log, affine or power."
            )
    return certificates


def _worst(certificates: Sequence[Certificate]) -> Certificate:
    verdict = weakest(c.verdict for c in certificates)
    return next(c for c in certificates if c.verdict == verdict)


def _condition(
    operator: Operator, kind: str, number: str, sign: int, forward: Callable[..., Any], low: float, high: float
) -> Certificate:
    wanted = "increasing" if sign > 0 else "decreasing"
    floor = operator.log_floor
    try:
        enclose = trace_enclosure(lambda u: forward(u, low, high), f"{kind} operator")
        boxes = [Interval(-math.inf, floor), Interval(floor, 0.0)]
        finding = _monotone(enclose, sign, boxes, flat_from=floor, show=_probability, kind=kind)
        reach, range_verdict, range_reason, range_counter = _covers(enclose, sign, finding, low, high, kind)
    except Unsupported as error:
        finding = Finding(UNDECIDED, f"the proof stops at this operator: {error}", None, 0, Interval(low, high))
        reach, range_verdict, range_reason, range_counter = Interval(low, high), UNDECIDED, finding.reason, None
    verdict = weakest((finding.verdict, range_verdict))
    ordered = finding if finding.verdict == verdict else None
    return Certificate(
        name=f"operator.{kind}",
        claim=f"F_{kind[0] if kind == 'reward' else 'g'} is continuous and {wanted} on (0, 1] and its range covers "
        f"[{low:g}, {high:g}] (its closure; up to {RANGE_TOLERANCE:g} of the range)",
        source=f"Condition ({number}): Section 5; needed by Proposition 3, Theorems 1 and 2",
        method="interval arithmetic with outward rounding on values and slopes, adaptive subdivision in log p",
        verdict=verdict,
        reason=ordered.reason if ordered else range_reason,
        assumptions=ASSUMPTIONS,
        evidence=(
            Evidence("boxes", finding.boxes, required=f"at most {BUDGET}"),
            Evidence("worst value reached", reach.lo, required=f"{low if sign > 0 else high:g}"),
            Evidence("best value reached", reach.hi, required=f"{high if sign > 0 else low:g}"),
            Evidence("p above which the range is covered in floats", math.exp(floor)),
        ),
        counterexample=ordered.counterexample if ordered else range_counter,
        inputs=digest(operator.name, floor, low, high, _samples(forward, floor, low, high)),
    )


def _samples(forward: Callable[..., Any], floor: float, low: float, high: float) -> list[float]:
    """A fingerprint of the map: its values at a few places."""
    return [float(forward(share * floor, low, high)) for share in (1.0, 0.5, 0.25, 0.1, 0.01, 0.0)]


def _point_value(enclose: Enclosure, at: float) -> Interval | None:
    branches = enclose(point(at))
    return branches[0].value if len(branches) == 1 and branches[0].defined == "yes" else None


def _monotone(
    enclose: Enclosure,
    sign: int,
    boxes: list[Interval],
    *,
    flat_from: float | None,
    show: Scale,
    kind: str,
) -> Finding:
    """Prove that `sign` times the function never decreases on the boxes."""
    pending, used, open_at = list(boxes), 0, None
    values = None
    direction = "increase" if sign > 0 else "decrease"
    while pending and used < BUDGET:
        box = pending.pop()
        branches = enclose(box)
        used += 1
        values = hull(*(b.value for b in branches), *([values] if values else []))
        single = branches[0] if len(branches) == 1 and branches[0].defined == "yes" else None
        if all(b.defined == "no" for b in branches):
            at = show.of(box.hi)
            where = {show.symbol: at, "value": None}
            return Finding(REFUTED, f"the {kind} map is not defined at {show.symbol} = {at:.6g}", where, used, values)
        start = math.inf if flat_from is None else flat_from
        inside = box.lo >= start and box.width > 0
        if single and inside and single.slope == (0.0, 0.0):
            low, high = show.of(box.lo), show.of(box.hi)
            where = {show.symbol: [low, high], "value": single.value.lo}
            reason = f"the {kind} map is flat between {show.symbol} = {low:.6g} and {high:.6g}"
            return Finding(REFUTED, reason, where, used, values)
        steepness = min(sign * s for s in single.slope) if single else -math.inf
        if steepness > 0 or (steepness == 0 and not (inside and box.width > -FLAT_SHARE * start)):
            continue
        ends = [_point_value(enclose, v) for v in box]
        counter = _contradiction(box, branches, ends, sign, show)
        if counter is not None:
            what, where = counter
            (low, high), (first, last) = where[show.symbol], where["values"]
            reason = (
                f"the {kind} map must {direction} in {show.symbol} without a jump but {what} from {first:.6g} at "
                f"{show.symbol} = {low:.9g} to {last:.6g} at {show.symbol} = {high:.9g}"
            )
            return Finding(REFUTED, reason, where, used, values)
        if box.width < SMALLEST * max(1.0, abs(box.hi)):
            open_at = box.hi if open_at is None else open_at
            continue
        middle = 2 * box.hi - 1 if math.isinf(box.lo) else 0.5 * (box.lo + box.hi)
        pending += [Interval(box.lo, middle), Interval(middle, box.hi)]
    values = values or Interval(-math.inf, math.inf)
    if open_at is not None:
        reason = (
            f"the {kind} map has a kink or a flat point at {show.symbol} = {show.of(open_at):.9g} "
            "that intervals cannot settle"
        )
        return Finding(UNDECIDED, reason, None, used, values)
    if pending:
        reason = f"the budget of {BUDGET} boxes ended before the {kind} map was settled"
        return Finding(UNDECIDED, reason, None, used, values)
    return Finding(PROVED, f"every box shows the {kind} map continuous and in order", None, used, values)


def _contradiction(
    box: Interval,
    branches: Sequence[Branch],
    ends: Sequence[Interval | None],
    sign: int,
    show: Scale,
) -> tuple[str, dict[str, Any]] | None:
    """Two points in the wrong order, or on branches whose values stay apart over a box that is almost a point."""
    first, last = ends
    if first is None or last is None or not (math.isfinite(box.lo) and box.width > 0):
        return None
    where = {show.symbol: [show.of(box.lo), show.of(box.hi)], "values": [first.lo, last.hi]}
    if (sign > 0 and first.lo > last.hi) or (sign < 0 and first.hi < last.lo):
        where["values"] = [first.lo, last.hi] if sign > 0 else [first.hi, last.lo]
        return "goes", where
    if len(branches) < 2 or box.width >= SMALLEST * max(1.0, abs(box.hi)) or any(b.defined != "yes" for b in branches):
        return None
    merged: list[Interval] = []
    for part in sorted(b.value for b in branches):
        if merged and part.lo <= merged[-1].hi:
            merged[-1] = hull(merged[-1], part)
        else:
            merged.append(part)
    home = [next((i for i, m in enumerate(merged) if m.lo <= e.lo and e.hi <= m.hi), None) for e in (first, last)]
    return ("jumps", where) if None not in home and home[0] != home[1] else None


def _covers(
    enclose: Enclosure, sign: int, finding: Finding, low: float, high: float, kind: str
) -> tuple[Interval, str, str, dict[str, Any] | None]:
    """Whether the closure of the range holds [low, high], up to the tolerance."""
    slack = RANGE_TOLERANCE * (high - low)
    best, worst = _point_value(enclose, 0.0), _point_value(enclose, -math.inf)
    if finding.verdict == PROVED and best is not None and worst is not None:
        reached = hull(best, worst)
        inner = Interval(min(worst.hi, best.hi), max(worst.lo, best.lo))
    else:
        reached, inner = finding.values, Interval(math.inf, -math.inf)
        if best is not None and worst is not None:
            inner = Interval(min(worst.hi, best.hi), max(worst.lo, best.lo))
    ends = Interval(worst.lo, best.hi) if best is not None and worst is not None else reached
    for edge, short, missed in (
        (high, reached.hi < high - slack, reached.hi),
        (low, reached.lo > low + slack, reached.lo),
    ):
        if short:
            share = (missed - low) / (high - low)
            reason = (
                f"the range of the {kind} map ends at {share:.6g} of [0, 1] instead of {(edge - low) / (high - low):g}"
            )
            return ends, REFUTED, reason, {"missed": edge, "reached": missed}
    if inner.lo <= low + slack and inner.hi >= high - slack:
        return ends, PROVED, f"the {kind} map covers the range", None
    return ends, UNDECIDED, f"whether the {kind} map covers the range stays open", None


def _inverse(
    operator: Operator,
    kind: str,
    sign: int,
    forward: Callable[..., Any],
    inverse: Callable[..., Any],
    low: float,
    high: float,
) -> Certificate:
    """|F(F^-1(v)) - v| over the whole range, by the mean-value form; and F^-1 in order."""
    slack = INVERSE_TOLERANCE * (high - low)
    whole = Interval(low, high)
    try:
        likelihood = trace_enclosure(lambda v: inverse(v, low, high), f"{kind} likelihood")
        ordered = _monotone(likelihood, sign, [whole], flat_from=None, show=_return, kind=f"{kind} likelihood")
        error = trace_enclosure(lambda v: forward(inverse(v, low, high), low, high) - v, f"{kind} composition")
        finding = _small(error, whole, slack, kind)
    except Unsupported as failure:
        ordered = finding = Finding(UNDECIDED, f"the proof stops at this operator: {failure}", None, 0, whole)
    verdict = weakest((ordered.verdict, finding.verdict))
    shown = finding if finding.verdict == verdict else ordered
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
            Evidence("largest error of F(F^-1(v))", max(map(abs, finding.values)), required=f"<= {slack:g}"),
            Evidence("boxes", ordered.boxes + finding.boxes, required=f"at most {2 * BUDGET}"),
        ),
        counterexample=shown.counterexample,
        inputs=digest(operator.name, operator.log_floor, low, high, _samples(forward, operator.log_floor, low, high)),
    )


def _small(enclose: Enclosure, whole: Interval, slack: float, kind: str) -> Finding:
    pending, used, worst, open_at = [whole], 0, Interval(0.0, 0.0), None
    while pending and used < BUDGET:
        box = pending.pop()
        used += 1
        middle = 0.5 * (box.lo + box.hi)
        at, branches = _point_value(enclose, middle), enclose(box)
        if at is not None and (at.lo > slack or at.hi < -slack):
            where = {"return": middle, "comes back as": middle + at.lo}
            reason = f"the {kind} maps are not inverse: {middle:.6g} comes back as {middle + at.lo:.6g}"
            return Finding(REFUTED, reason, where, used, at)
        if at is not None and all(b.defined == "yes" for b in branches):
            shift = Interval(box.lo - middle, box.hi - middle)
            spread = hull(*(b.slope for b in branches)) if len(branches) == 1 else None
            bound = hull(*(b.value for b in branches))
            if spread is not None:
                form = at + spread * shift
                bound = form if form.width < bound.width else bound
            if max(map(abs, bound)) <= slack:
                worst = hull(worst, bound)
                continue
        if box.width < SMALLEST * max(1.0, abs(middle)):
            open_at = middle
            continue
        pending += [Interval(box.lo, middle), Interval(middle, box.hi)]
    if open_at is not None or pending:
        place = f" near {open_at:.6g}" if open_at is not None else ""
        return Finding(UNDECIDED, f"whether the {kind} maps are inverse stays open{place}", None, used, worst)
    return Finding(PROVED, f"the {kind} maps are inverse to each other", None, used, worst)
