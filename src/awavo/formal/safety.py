"""Safety of a frozen policy: bounds at confidence 1 - delta on every mean episode cost and on P(cost > limit)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from awavo.errors import InputError
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
    # Bonferroni: a mean and a probability for each cost of each policy.
    share = delta / (2 * len(names) * policies)
    evidence, rows = [], list[CostRow]()
    for i, name in enumerate(names):
        column, limit = costs[:, i], float(limits[i])
        mean, chance = _bounds(column, limit, span[i], share, anytime)
        verdict = SUPPORTED if mean[1] <= limit else REFUTED if mean[0] > limit else UNDECIDED
        if max_violation is not None:
            if chance[0] > max_violation:
                verdict = REFUTED
            elif chance[1] > max_violation and verdict == SUPPORTED:
                verdict = UNDECIDED
        more = None
        if verdict == UNDECIDED:
            total = episodes_needed(column, *span[i], limit, share)
            more = None if total is None else max(total - len(column), 1)
        evidence.append(
            Evidence(f"mean cost {name}", float(column.mean()), *mean, f"<= {limit:g}", verdict == SUPPORTED)
        )
        wanted = "" if max_violation is None else f"<= {max_violation:g}"
        ok = None if max_violation is None else chance[1] <= max_violation
        rate = float((column > limit).mean())
        evidence.append(Evidence(f"P(cost {name} > {limit:g})", rate, *chance, wanted, ok))
        rows.append({
            "cost": name, "limit": limit, "mean": float(column.mean()), "mean_bounds": mean, "violation": rate,
            "violation_bounds": chance, "verdict": verdict, "episodes_needed": more,
        })  # fmt: skip
    verdict = weakest(row["verdict"] for row in rows)
    reason = _reason(verdict, rows, delta)
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
        f"at confidence {1 - delta:g}",
        source="beyond the paper: statement about the delivered policy, not about the algorithm",
        method=f"betting bounds on means, {'beta mixture' if anytime else 'Clopper-Pearson'} on probabilities, {kind}; "
        f"Bonferroni over {2 * len(names)} statements and {policies} policies",
        verdict=verdict,
        reason=reason,
        assumptions=tuple(assumptions),
        evidence=(*evidence, Evidence("episodes", len(costs))),
        counterexample=None if worst is None else {"cost": worst["cost"], "lower bound": worst["mean_bounds"][0]},
        inputs=digest(costs, list(limits), delta, anytime, policies, max_violation, inputs),
        details={"episodes": len(costs), "delta": delta, "anytime": anytime, "costs": rows},
    )


def _reason(verdict: str, rows: list[CostRow], delta: float) -> str:
    if verdict == SUPPORTED:
        return f"certified on average at {1 - delta:.0%}: {'; '.join(map(_both, rows))}"
    if verdict == REFUTED:
        row = next(r for r in rows if r["verdict"] == REFUTED)
        return (
            f"certified unsafe at {1 - delta:.0%}: {row['cost']} is at least {row['mean_bounds'][0]:.4g} on average "
            f"(limit {row['limit']:g}), over in at least {row['violation_bounds'][0]:.2%} of episodes"
        )
    row = next(r for r in rows if r["verdict"] == UNDECIDED)
    more = row["episodes_needed"]
    hint = "the mean sits at its limit" if more is None else f"about {more} more episodes would decide"
    low, high = row["mean_bounds"]
    return f"undecided: {row['cost']} lies in [{low:.4g}, {high:.4g}] around its limit {row['limit']:g}; {hint}"


def _both(row: CostRow) -> str:
    """The bound on the mean, and how often one episode is above the limit all the same."""
    low, high = row["violation_bounds"]
    return (
        f"mean {row['cost']} <= {row['mean_bounds'][1]:.4g} (limit {row['limit']:g}), above the limit in "
        f"{row['violation']:.1%} of episodes [{low:.1%}, {high:.1%}]"
    )


def decided(certificates: Sequence[Certificate]) -> bool:
    """Whether sequential sampling may stop."""
    return all(c.verdict != UNDECIDED for c in certificates)


def hopeless(certificate: Certificate, most: int) -> bool:
    """Whether a cost cannot be decided within `most` episodes, and no other is on its way to be refuted."""
    rows = [row for row in certificate.details["costs"] if row["verdict"] == UNDECIDED]
    far = [row["episodes_needed"] is None or row["episodes_needed"] > FAR_TOO_MANY * most for row in rows]
    settled = all(own or row["mean"] <= row["limit"] for own, row in zip(far, rows, strict=True))
    return any(far) and settled and certificate.details["episodes"] >= FAIR_START
