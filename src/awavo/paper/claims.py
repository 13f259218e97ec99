"""What the paper says about Figure 4, and whether these results agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from awavo.paper.comparison import Standing, TaskComparison, difference
from awavo.paper.names import ALGO_NAMES
from awavo.results.outcome import format_estimate

__all__ = ["CLAIMS", "CONFIRMED", "REFUTED", "UNDECIDED", "Claim", "Verdict", "check_claims"]

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "not confirmed", "undecided"


@dataclass(frozen=True)
class Claim:
    """The paper: `better` outperforms `worse` on these tasks."""

    better: str
    worse: str
    tasks: tuple[str, ...]
    text: str


ALL = ("cartpole", "acrobot", "walker", "drone")
CLAIMS = (
    Claim("awavo", "paets", ALL, "AWaVO outperforms PaETS"),
    Claim("crpo", "paets", ALL, "CRPO outperforms PaETS"),
    Claim("pcpo", "trpo-ipo", ("acrobot", "cartpole", "walker"), "PCPO performs better than TRPO-IPO"),
    Claim("trpo-ipo", "pcpo", ("drone",), "TRPO-IPO outperforms PCPO"),
    Claim("crpo", "awavo", ("drone",), "CRPO performs better than AWaVO"),
)


@dataclass(frozen=True)
class Verdict:
    """A claim on one task, with what was found."""

    claim: Claim
    task: str
    verdict: str
    reason: str


def check_claims(comparisons: Sequence[TaskComparison]) -> list[Verdict]:
    """Judge every claim whose two methods were run.

    A method within limits outperforms one that is not. Of two that are alike in this, the mean final returns decide,
    if the 95% interval of their difference excludes zero.
    """
    found = []
    for claim in CLAIMS:
        for comparison in comparisons:
            better, worse = comparison.of(claim.better), comparison.of(claim.worse)
            if comparison.task in claim.tasks and better is not None and worse is not None:
                found.append(Verdict(claim, comparison.task, *_judge(better, worse)))
    return found


def _judge(better: Standing, worse: Standing) -> tuple[str, str]:
    first, second = (ALGO_NAMES.get(s.entry.algo, s.entry.algo) for s in (better, worse))
    steps = f"; {better.entry.env_steps:,} and {worse.entry.env_steps:,} steps"
    if better.is_within != worse.is_within:
        kept, lost, name = (first, worse, second) if better.is_within else (second, better, first)
        reason = f"{kept} keeps its limits, {name} does in {lost.feasible_seeds} of {len(lost.entry.seeds)}{steps}"
        return (CONFIRMED if better.is_within else REFUTED), reason
    gap = difference(better.entry.final.returns, worse.entry.final.returns)
    reason = f"return of {first} less that of {second}: {format_estimate(gap)}{steps}"
    if gap.low > 0:
        return CONFIRMED, reason
    return (REFUTED if gap.high < 0 else UNDECIDED), reason
