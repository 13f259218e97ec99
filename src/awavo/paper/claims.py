"""What the paper says about Figure 4, and whether these results agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from awavo.paper.comparison import Standing, TaskComparison, difference
from awavo.paper.names import ALGO_NAMES
from awavo.results.outcome import format_estimate
from awavo.types import Estimate

__all__ = ["CLAIMS", "CONFIRMED", "REFUTED", "UNDECIDED", "Claim", "Verdict", "check_claims", "outperforms"]

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "not confirmed", "undecided"


@dataclass(frozen=True)
class Claim:
    """The paper: `better` outperforms `worse` on these tasks."""

    better: str
    worse: str
    tasks: tuple[str, ...]
    text: str


ALL = ("cartpole", "acrobot", "walker", "drone")
SUPERIOR = "the superiority of CRPO and AWaVO"
# Every comparative sentence about simulated tasks: the caption of Figure 4, and the text about it, which calls CRPO and
# AWaVO superior to the other two and names one exception.
CLAIMS = (
    Claim("awavo", "paets", ALL, "AWaVO outperforms PaETS"),
    Claim("crpo", "paets", ALL, "CRPO outperforms PaETS"),
    Claim("awavo", "pcpo", ALL, f"AWaVO outperforms PCPO ({SUPERIOR})"),
    Claim("awavo", "trpo-ipo", ALL, f"AWaVO outperforms TRPO-IPO ({SUPERIOR})"),
    Claim("crpo", "pcpo", ALL, f"CRPO outperforms PCPO ({SUPERIOR})"),
    Claim("crpo", "trpo-ipo", ALL, f"CRPO outperforms TRPO-IPO ({SUPERIOR})"),
    Claim("pcpo", "trpo-ipo", ("acrobot", "cartpole", "walker"), "PCPO performs better than TRPO-IPO"),
    Claim("trpo-ipo", "pcpo", ("drone",), "TRPO-IPO outperforms PCPO"),
    Claim("crpo", "awavo", ("drone",), "CRPO performs better than AWaVO"),
)
# Steps of two methods may differ by this share of the larger and still count as equal.
STEP_SLACK = 0.1


@dataclass(frozen=True)
class Verdict:
    """A claim on one task, with what was found."""

    claim: Claim
    task: str
    verdict: str
    reason: str


def check_claims(comparisons: Sequence[TaskComparison]) -> list[Verdict]:
    """Judge every claim whose two methods were run.

    Undecided where both are outside their limits, where their steps differ, and where the 95% interval of the
    difference of their final returns holds 0. A method within limits outperforms one that is not.
    """
    found = []
    for claim in CLAIMS:
        for comparison in comparisons:
            better, worse = comparison.of(claim.better), comparison.of(claim.worse)
            if comparison.task in claim.tasks and better is not None and worse is not None:
                found.append(Verdict(claim, comparison.task, *_judge(better, worse)))
    return found


def outperforms(better_within: bool, worse_within: bool, gap: Estimate) -> str:
    """The verdict on "better outperforms worse": by limits where one alone keeps them, by return where both do."""
    if better_within != worse_within:
        return CONFIRMED if better_within else REFUTED
    if not better_within:
        return UNDECIDED
    return CONFIRMED if gap.low > 0 else REFUTED if gap.high < 0 else UNDECIDED


def _judge(better: Standing, worse: Standing) -> tuple[str, str]:
    first, second = (ALGO_NAMES.get(s.entry.algo, s.entry.algo) for s in (better, worse))
    counts = better.entry.env_steps, worse.entry.env_steps
    steps = f"; {counts[0]:,} and {counts[1]:,} steps"
    gap = difference(better.entry.final.returns, worse.entry.final.returns)
    reason = f"return of {first} less that of {second}: {format_estimate(gap)}{steps}"
    if max(counts) - min(counts) > STEP_SLACK * max(counts):
        return UNDECIDED, f"their steps differ: {reason}"
    if not better.is_within and not worse.is_within:
        reason = f"both are outside their limits: {reason}"
    elif better.is_within != worse.is_within:
        kept, lost, name = (first, worse, second) if better.is_within else (second, better, first)
        reason = f"{kept} keeps its limits, {name} does in {lost.feasible_seeds} of {len(lost.entry.seeds)}{steps}"
    return outperforms(better.is_within, worse.is_within, gap), reason
