"""Proofs by subdivision: a claim about a scalar function, shown box by box on enclosures of its values and slopes.

Boxes are halved until each shows what is claimed. A box whose ends contradict it refutes; a budget that runs out, or a
point that intervals cannot resolve, leaves the claim undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from awavo.formal.certificate import PROVED, REFUTED, UNDECIDED
from awavo.formal.enclosure import Branch, Enclosure
from awavo.formal.interval import Interval, hull, point

__all__ = ["BUDGET", "Proof", "Shown", "in_log_p", "in_return", "prove_order", "prove_range", "prove_small"]

BUDGET = 5_000  # boxes
SMALLEST = 1e-13  # width, relative to its place, of a box that is not halved any more


class Shown(NamedTuple):
    """How a point of the boxes is shown to a person: its symbol, and its value in that unit."""

    symbol: str
    value_of: Callable[[float], float]


in_log_p, in_return = Shown("p", math.exp), Shown("return", float)


class Proof(NamedTuple):
    """What the subdivision found: a verdict with its reason, the boxes it took, all values met."""

    verdict: str
    reason: str
    counterexample: Mapping[str, object] | None
    boxes: int
    values: Interval


def _point_value(enclose: Enclosure, at: float) -> Interval | None:
    branches = enclose(point(at))
    return branches[0].value if len(branches) == 1 and branches[0].defined == "yes" else None


def prove_order(
    enclose: Enclosure, sign: int, boxes: list[Interval], *, flat_from: float | None, shown: Shown, kind: str
) -> Proof:
    """Prove that `sign` times the function never decreases on the boxes, nor stays flat from `flat_from` on."""
    pending, used, values, open_at = list(boxes), 0, None, None
    direction = "increase" if sign > 0 else "decrease"
    while pending and used < BUDGET:
        box = pending.pop()
        branches = enclose(box)
        used += 1
        values = hull(*(b.value for b in branches), *([values] if values else []))
        single = branches[0] if len(branches) == 1 and branches[0].defined == "yes" else None
        if all(b.defined == "no" for b in branches):
            at = shown.value_of(box.hi)
            where = {shown.symbol: at, "value": None}
            return Proof(REFUTED, f"the {kind} map is not defined at {shown.symbol} = {at:.6g}", where, used, values)
        start = math.inf if flat_from is None else flat_from
        inside = box.lo >= start and box.width > 0
        if single and inside and single.slope == (0.0, 0.0):
            low, high = shown.value_of(box.lo), shown.value_of(box.hi)
            where = {shown.symbol: [low, high], "value": single.value.lo}
            reason = f"the {kind} map is flat between {shown.symbol} = {low:.6g} and {high:.6g}"
            return Proof(REFUTED, reason, where, used, values)
        # A slope of the right sign on a single branch: continuous and in order on this box.
        steepness = min(sign * s for s in single.slope) if single else -math.inf
        # A slope that may be zero hides a flat part, unless the box is as narrow as boxes get.
        narrow = box.width < SMALLEST * max(1.0, abs(box.hi))
        if steepness > 0 or (steepness == 0 and (narrow or not inside)):
            continue
        ends = [_point_value(enclose, v) for v in box]
        counter = _contradiction(box, branches, ends, sign, shown)
        if counter is not None:
            what, pair = counter
            (low, high), (first, last) = pair[shown.symbol], pair["values"]
            reason = (
                f"the {kind} map must {direction} in {shown.symbol} without a jump but {what} from {first:.6g} at "
                f"{shown.symbol} = {low:.9g} to {last:.6g} at {shown.symbol} = {high:.9g}"
            )
            return Proof(REFUTED, reason, pair, used, values)
        if narrow:
            open_at = box.hi if open_at is None else open_at
            continue
        # An infinite box is cut at twice its end and one more.
        middle = 2 * box.hi - 1 if math.isinf(box.lo) else 0.5 * (box.lo + box.hi)
        halves = [Interval(box.lo, middle), Interval(middle, box.hi)]
        # Where a flat part may hide the widest box goes first: it shows the flat part, not the edge of it.
        pending = [*halves, *pending] if steepness == 0 else [*pending, *halves]
    values = values or Interval(-math.inf, math.inf)
    if open_at is not None:
        reason = (
            f"the {kind} map has a kink or a flat point at {shown.symbol} = {shown.value_of(open_at):.9g} "
            "that intervals cannot settle"
        )
        return Proof(UNDECIDED, reason, None, used, values)
    if pending:
        reason = f"the budget of {BUDGET} boxes ended before the {kind} map was settled"
        return Proof(UNDECIDED, reason, None, used, values)
    return Proof(PROVED, f"every box shows the {kind} map continuous and in order", None, used, values)


def _contradiction(
    box: Interval, branches: Sequence[Branch], ends: Sequence[Interval | None], sign: int, shown: Shown
) -> tuple[str, dict[str, list[float]]] | None:
    """Two points in the wrong order, or on branches whose values stay apart over a box that is almost a point."""
    first, last = ends
    if first is None or last is None or not (math.isfinite(box.lo) and box.width > 0):
        return None
    where = {shown.symbol: [shown.value_of(box.lo), shown.value_of(box.hi)], "values": [first.lo, last.hi]}
    if (sign > 0 and first.lo > last.hi) or (sign < 0 and first.hi < last.lo):
        where["values"] = [first.lo, last.hi] if sign > 0 else [first.hi, last.lo]
        return "goes", where
    if len(branches) < 2 or box.width >= SMALLEST * max(1.0, abs(box.hi)) or any(b.defined != "yes" for b in branches):
        return None
    # Values of branches that overlap may join: only ends in different groups show a jump.
    merged: list[Interval] = []
    for part in sorted(b.value for b in branches):
        if merged and part.lo <= merged[-1].hi:
            merged[-1] = hull(merged[-1], part)
        else:
            merged.append(part)
    home = [next((i for i, m in enumerate(merged) if m.lo <= e.lo and e.hi <= m.hi), None) for e in (first, last)]
    return ("jumps", where) if None not in home and home[0] != home[1] else None


def prove_range(enclose: Enclosure, order: Proof, low: float, high: float, slack: float, kind: str) -> Proof:
    """Prove that the closure of the range on u <= 0 holds [low, high] up to `slack`; `values` are those at its ends."""
    best, worst = _point_value(enclose, 0.0), _point_value(enclose, -math.inf)
    # `reached` holds the whole range for sure, `inner` lies in it for sure.
    reached = ends = order.values
    inner = Interval(math.inf, -math.inf)
    if best is not None and worst is not None:
        inner, ends = Interval(min(worst.hi, best.hi), max(worst.lo, best.lo)), Interval(worst.lo, best.hi)
        reached = hull(best, worst) if order.verdict == PROVED else reached
    for edge, short, missed in (
        (high, reached.hi < high - slack, reached.hi),
        (low, reached.lo > low + slack, reached.lo),
    ):
        if short:
            share, wanted = ((v - low) / (high - low) for v in (missed, edge))
            reason = f"the range of the {kind} map ends at {share:.6g} of [0, 1] instead of {wanted:g}"
            return Proof(REFUTED, reason, {"missed": edge, "reached": missed}, 0, ends)
    if inner.lo <= low + slack and inner.hi >= high - slack:
        return Proof(PROVED, f"the {kind} map covers the range", None, 0, ends)
    return Proof(UNDECIDED, f"whether the {kind} map covers the range stays open", None, 0, ends)


def prove_small(enclose: Enclosure, whole: Interval, slack: float, kind: str) -> Proof:
    """Prove that a function stays within +- `slack`, by its values or the mean-value form f(m) + f'(box) (box - m)."""
    pending, used, worst, open_at = [whole], 0, Interval(0.0, 0.0), None
    while pending and used < BUDGET:
        box = pending.pop()
        used += 1
        middle = 0.5 * (box.lo + box.hi)
        at, branches = _point_value(enclose, middle), enclose(box)
        if at is not None and (at.lo > slack or at.hi < -slack):
            where = {"return": middle, "comes back as": middle + at.lo}
            reason = f"the {kind} maps are not inverse: {middle:.6g} comes back as {middle + at.lo:.6g}"
            return Proof(REFUTED, reason, where, used, at)
        if at is not None and all(b.defined == "yes" for b in branches):
            shift = Interval(box.lo - middle, box.hi - middle)
            bound = hull(*(b.value for b in branches))
            if len(branches) == 1:
                form = at + branches[0].slope * shift
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
        return Proof(UNDECIDED, f"whether the {kind} maps are inverse stays open{place}", None, used, worst)
    return Proof(PROVED, f"the {kind} maps are inverse to each other", None, used, worst)
