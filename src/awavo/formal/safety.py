"""Safety of a frozen policy: bounds at confidence 1 - delta on every mean episode cost and on P(cost > limit)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from awavo.errors import InputError, bound_text, confidence_text, share_text
from awavo.formal.bounds import beta_mixture, betting_mean, clopper_pearson, episodes_needed
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

__all__ = ["certify_safety", "decided", "hopeless"]

Floats = NDArray[np.float64]
# When sequential sampling gives up: not before so many episodes, and when so many times the most are needed.
FAIR_START, FAR_TOO_MANY = 100, 2


class CostRow(TypedDict):
    """What is known of one cost: two-sided bounds of its mean and of the probability to exceed its limit."""

    cost: str
    limit: float
    mean: float
    mean_bounds: tuple[float, float]
    violation: float
    violation_bounds: tuple[float, float]
    verdict: str
    episodes_needed: int | None


def _looks(num: int) -> NDArray[np.int64]:
    """Sample sizes at which the sequence is read: doubling, then the end."""
    return np.unique([*(min(num, 25 * 2**k) for k in range(20)), num])


def _bounds(costs: Floats, limit: float, span: tuple[float, float], delta: float, anytime: bool):
    """Bounds of the mean and of the violation probability, each at delta."""
    num, over = len(costs), costs > limit
    if not anytime:
        mean = betting_mean(costs, *span, delta)
        low, high = clopper_pearson(over.sum(), num, delta)
        return mean, (float(low), float(high))
    looks = _looks(num)
    mean = betting_mean(costs, *span, delta, looks)
    lows, highs = beta_mixture(np.cumsum(over)[looks - 1], looks, delta)
    return mean, (float(lows.max()), float(highs.min()))


def certify_safety(
    costs: Floats,
    *,
    names: Sequence[str],
    limits: Sequence[float],
    span: Sequence[tuple[float, float]],
    delta: float = 0.05,
    anytime: bool = False,
    max_violation: float | None = None,
    policies: int = 1,
    label: str = "policy",
    bounds_known: Assumption | None = None,
    inputs: object = None,
) -> Certificate:
    """Certify one frozen policy from fresh episode costs `[N, C]`.

    Every J_g,i and every P(cost_i > b_i) gets two-sided bounds; delta is split evenly over the 2 C statements and over
    `policies`, so that all statements about all policies hold together with probability at least 1 - delta.
    `span` bounds each episode's cost. With `anytime` the bounds hold at every sample size at once, so that one may stop
    as soon as a verdict is reached.
    """
    costs = np.asarray(costs, float)
    if costs.ndim != 2 or costs.shape[1] != len(names) or not len(names) == len(limits) == len(span):
        raise InputError(f"costs {costs.shape} do not fit {len(names)} names, {len(limits)} limits, {len(span)} spans.")
    if not names:
        raise InputError("there is no cost to certify: give at least one name with its limit.")
    # Bonferroni: a mean and a probability for each cost of each policy.
    share = delta / (2 * len(names) * policies)
    evidence, rows = [], list[CostRow]()
    for i, name in enumerate(names):
        row, figures = _judge(name, costs[:, i], float(limits[i]), span[i], share, anytime, max_violation)
        rows.append(row)
        evidence += figures
    verdict = weakest(row["verdict"] for row in rows)
    reason = _reason(verdict, rows, delta, max_violation)
    # The bounds rest on the range: where an episode left it nothing is certified by them.
    if verdict == SUPPORTED and bounds_known is not None and bounds_known.verdict == REFUTED:
        verdict, reason = UNDECIDED, f"undecided: {bounds_known.text}: {bounds_known.note}"
    kind = "anytime-valid: stopping early is sound" if anytime else "for a sample size fixed in advance"
    worst = next((r for r in rows if r["verdict"] == REFUTED), None)
    assumptions = [
        Assumption(
            "episodes are independent, with the policy frozen and the environment as trained", PROVED, "fresh keys"
        ),
        bounds_known or Assumption("an episode's cost lies within its stated bounds", UNDECIDED),
    ]
    return Certificate(
        name=f"safety.{label}",
        claim=f"the frozen policy ({label.replace('_', ' ')}) keeps every limit on its mean episode cost, "
        + ("" if max_violation is None else f"and exceeds each in at most {max_violation:g} of episodes, ")
        + f"at confidence {1 - delta:.14g}",
        source="beyond the paper: statement about the delivered policy, not about the algorithm",
        method=f"betting bounds on means, {'beta mixture' if anytime else 'Clopper-Pearson'} on probabilities, {kind}; "
        f"Bonferroni over {2 * len(names)} statements and {policies} policies",
        verdict=verdict,
        reason=reason,
        assumptions=tuple(assumptions),
        evidence=(*evidence, Evidence("episodes", len(costs))),
        counterexample=None if worst is None else _counterexample(worst),
        inputs=digest(costs, list(limits), delta, anytime, policies, max_violation, inputs),
        details={"episodes": len(costs), "delta": delta, "anytime": anytime, "costs": rows}
        | ({} if max_violation is None else {"max_violation": max_violation}),
    )


def _judge(
    name: str,
    costs: Floats,
    limit: float,
    span: tuple[float, float],
    share: float,
    anytime: bool,
    max_violation: float | None,
) -> tuple[CostRow, list[Evidence]]:
    """What is known of one cost: its row, and the figures for its mean and for its probability."""
    over = costs > limit
    mean, chance = _bounds(costs, limit, span, share, anytime)
    rate, wanted, ok, parts = float(over.mean()), "", None, [_side(mean, limit)]
    more = [episodes_needed(costs, *span, limit, share)] if parts[0] == UNDECIDED else []
    if max_violation is not None:
        wanted, ok = f"<= {max_violation:g}", chance[1] <= max_violation
        parts.append(_side(chance, max_violation))
        more += [episodes_needed(over, 0, 1, max_violation, share)] if parts[1] == UNDECIDED else []
    verdict = weakest(parts)
    totals = [total for total in more if total is not None]
    known = verdict == UNDECIDED and len(totals) == len(more)
    row: CostRow = {
        "cost": name, "limit": limit, "mean": float(costs.mean()), "mean_bounds": mean, "violation": rate,
        "violation_bounds": chance, "verdict": verdict,
        "episodes_needed": max(max(totals) - len(costs), 1) if known else None,
    }  # fmt: skip
    return row, [
        Evidence(f"mean cost {name}", row["mean"], *mean, f"<= {limit:g}", parts[0] == SUPPORTED),
        Evidence(f"P(cost {name} > {limit:g})", rate, *chance, wanted, ok),
    ]


def _side(bounds: tuple[float, float], limit: float) -> str:
    """On which side of a limit the bounds lie."""
    return SUPPORTED if bounds[1] <= limit else REFUTED if bounds[0] > limit else UNDECIDED


def _counterexample(row: CostRow) -> dict[str, object]:
    """The bound that excludes the claim: that on the mean, or else that on the probability."""
    if row["mean_bounds"][0] > row["limit"]:
        return {"cost": row["cost"], "lower bound": row["mean_bounds"][0]}
    return {"cost": row["cost"], "lower bound on P(cost > limit)": row["violation_bounds"][0]}


def _reason(verdict: str, rows: list[CostRow], delta: float, max_violation: float | None) -> str:
    if verdict == SUPPORTED:
        return f"certified on average at {confidence_text(delta)}: {'; '.join(map(_both, rows))}"
    row = next(r for r in rows if r["verdict"] == verdict)
    limit, asked = row["limit"], f"{100 * (max_violation or 0):g}%"
    low, high = bound_text(row["mean_bounds"][0], False), bound_text(row["mean_bounds"][1], True)
    seldom, often = share_text(row["violation_bounds"][0], False), share_text(row["violation_bounds"][1], True)
    if verdict == REFUTED:
        unsafe = f"certified unsafe at {confidence_text(delta)}: {row['cost']} is "
        if row["mean_bounds"][0] > limit:
            return f"{unsafe}at least {low} on average (limit {limit:g}), over in at least {seldom} of episodes"
        return f"{unsafe}over its limit {limit:g} in at least {seldom} of episodes (at most {asked} asked)"
    more = row["episodes_needed"]
    if row["mean_bounds"][1] > limit:
        hint = "the mean sits at its limit" if more is None else f"about {more} more episodes would decide"
        return f"undecided: {row['cost']} lies in [{low}, {high}] around its limit {limit:g}; {hint}"
    hint = "no number of episodes tells them apart" if more is None else f"about {more} more episodes would decide"
    return (
        f"undecided: {row['cost']} is over its limit {limit:g} in [{seldom}, {often}] of episodes around the "
        f"{asked} asked; {hint}"
    )


def _both(row: CostRow) -> str:
    """The bound on the mean, and how often one episode is above the limit all the same."""
    low, high = row["violation_bounds"]
    return (
        f"mean {row['cost']} <= {bound_text(row['mean_bounds'][1], True)} (limit {row['limit']:g}), above the limit in "
        f"{row['violation']:.1%} of episodes [{share_text(low, False)}, {share_text(high, True)}]"
    )


def decided(certificates: Sequence[Certificate]) -> bool:
    """Whether sequential sampling may stop."""
    return all(c.verdict != UNDECIDED for c in certificates)


def hopeless(certificate: Certificate, most: int) -> bool:
    """Whether a cost cannot be decided within `most` episodes, and no other is on its way to be refuted."""
    rows = [row for row in certificate.details["costs"] if row["verdict"] == UNDECIDED]
    far = [row["episodes_needed"] is None or row["episodes_needed"] > FAR_TOO_MANY * most for row in rows]
    often = certificate.details.get("max_violation", 1.0)
    within = [row["mean"] <= row["limit"] and row["violation"] <= often for row in rows]
    settled = all(own or kept for own, kept in zip(far, within, strict=True))
    return any(far) and settled and certificate.details["episodes"] >= FAIR_START
