"""The comparison in words and as a markdown table; every figure computed from the results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from awavo.paper.claims import CONFIRMED, REFUTED, UNDECIDED, Verdict
from awavo.paper.comparison import Pooled, Standing, TaskComparison, difference
from awavo.paper.names import ALGO_NAMES, TASK_NAMES
from awavo.results.outcome import format_estimate, format_number
from awavo.types import Estimate

__all__ = ["answer", "answer_sentences", "bounded_steps", "claims_text", "pooled_text", "steps_text", "table"]


def steps_text(estimate: Estimate) -> str:
    """`8,000 [6,000, 12,000]`, with `never` for infinity."""
    if math.isnan(estimate.low) or estimate.low == estimate.high:
        return _steps(estimate.value)
    return f"{_steps(estimate.value)} [{_steps(estimate.low)}, {_steps(estimate.high)}]"


def answer(comparison: TaskComparison) -> str:
    """The stated answer for one task, as a paragraph."""
    return " ".join([f"**{TASK_NAMES.get(comparison.task, comparison.task)}.**", *answer_sentences(comparison)])


def answer_sentences(comparison: TaskComparison) -> list[str]:
    """The highest return within limits, who is tied, who is outside; then after how many steps each is good."""
    leader = comparison.leader
    if leader is None:
        return ["No method is within its limits."]
    parts = [
        f"Highest return within limits: {_name(leader)}, {format_estimate(leader.mean)} after "
        f"{leader.entry.env_steps:,} steps a seed ({leader.feasible_seeds} of {len(leader.entry.seeds)} seeds within)."
    ]
    tied = comparison.tied()
    if tied:
        parts.append(f"Statistically tied with it: {', '.join(ALGO_NAMES.get(name, name) for name in tied)}.")
    outside = [s for s in comparison.standings if not s.is_within]
    if outside:
        listed = ", ".join(f"{_name(s)} ({s.feasible_seeds} of {len(s.entry.seeds)} seeds)" for s in outside)
        parts.append(f"Not within limits: {listed}.")
    own = comparison.of("awavo")
    if own is not None and own is not leader:
        parts.append(_behind(comparison, own, leader, tied))
    level = f"{comparison.threshold:g} ({comparison.why})"
    soon = sorted(comparison.standings, key=lambda s: s.good.value)
    listed = "; ".join(f"{_name(s)} {bounded_steps(s)}" for s in soon)
    parts.append(f"Steps until half of the seeds have been within limits with a return of {level}: {listed}.")
    if own is not None:
        parts.append(_sooner(comparison))
    return [part for part in parts if part]


def _behind(comparison: TaskComparison, own: Standing, leader: Standing, tied: list[str]) -> str:
    gap = difference(own.entry.final.returns, leader.entry.final.returns)
    if not own.is_within:
        return "AWaVO is not within limits."
    found = "is tied with the first" if "awavo" in tied else "is behind"
    steps = ""
    if own.entry.env_steps < leader.entry.env_steps:
        reached = [(n, p) for n, p in comparison.equal_steps() if n != "awavo"]
        best = max(reached, key=lambda pair: pair[1].returns.mean(), default=None)
        steps = f", with {own.entry.env_steps:,} steps against {leader.entry.env_steps:,}"
        if best is not None:
            at = f"{ALGO_NAMES.get(best[0], best[0])} {format_number(float(best[1].returns.mean()))}"
            steps += f" (by then the highest return of another method was {at}, limits not asked for)"
    return f"AWaVO {found}: {format_estimate(gap)}{steps}."


def bounded_steps(standing: Standing) -> str:
    """The steps; of a method that was looked at only at its end, a bound."""
    known = standing.is_followed or not math.isfinite(standing.good.value)
    return steps_text(standing.good) if known else f"≤{_steps(standing.good.value)} (only looked at there)"


def _sooner(comparison: TaskComparison) -> str:
    others = [s.entry.algo for s in comparison.standings if s.entry.algo != "awavo"]
    blind = [_name(s) for s in comparison.standings if not s.is_followed and math.isfinite(s.good.low)]
    if blind:
        return f"Whether AWaVO needs fewer steps is open: {', '.join(blind)} had no checkpoints."
    chances = [(name, comparison.sooner("awavo", name)) for name in others]
    sure = [name for name, chance in chances if chance is not None and chance.low > 0.5]
    if others and len(sure) == len(others):
        return "AWaVO needs fewer steps than every other method (P > 1/2 with its whole 95% interval)."
    unsure = [
        f"{ALGO_NAMES.get(n, n)} (P = {format_estimate(c)})" for n, c in chances if c is not None and n not in sure
    ]
    return f"AWaVO does not surely need fewer steps than {', '.join(unsure)}." if unsure else ""


def claims_text(verdicts: Sequence[Verdict]) -> str:
    """Every claim of the paper with what was found."""
    if not verdicts:
        return "No claim of the paper can be judged: the methods it compares were not run on the same task."
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in (CONFIRMED, REFUTED, UNDECIDED)}
    head = (
        f"Claims of the paper, task by task: {len(verdicts)} could be judged; confirmed {counts[CONFIRMED]}, "
        f"not confirmed {counts[REFUTED]}, undecided {counts[UNDECIDED]}."
    )
    lines = [f"* {v.claim.text} on {TASK_NAMES[v.task]}: **{v.verdict}** ({v.reason})." for v in verdicts]
    return "\n".join([head, "", *lines])


def pooled_text(pooled: Sequence[Pooled]) -> str:
    """IQM of the pooled scores."""
    if not pooled:
        return "No method was run on every task: nothing is pooled."
    tasks = ", ".join(TASK_NAMES[task] for task in pooled[0].tasks)
    listed = "; ".join(f"{ALGO_NAMES.get(p.algo, p.algo)} {format_estimate(p.iqm)}" for p in pooled)
    return (
        f"Score over {tasks} (0: random policy, or a seed outside its limits; 1: the task's threshold), IQM with 95% "
        f"stratified bootstrap: {listed}."
    )


def table(comparisons: Sequence[TaskComparison]) -> str:
    """Return, each cost against its limit, feasible seeds, steps and time, as a markdown table."""
    head = ["task (limits)", "method", "steps a seed", "seeds within", "return, mean", "return, IQM", "costs"]
    head += ["steps to within limits and good", "settled from", "s of training (all seeds)", "s until good"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for comparison in comparisons:
        for number, standing in enumerate(comparison.standings):
            entry = standing.entry
            limits = ", ".join(f"{name} {limit:g}" for name, limit in zip(entry.cost_names, entry.limits, strict=True))
            within = "" if standing.is_within else " (outside)"
            cells = [
                f"{TASK_NAMES.get(entry.task, entry.task)} ({limits})" if number == 0 else "",
                _name(standing),
                f"{entry.env_steps:,}",
                f"{standing.feasible_seeds} of {len(entry.seeds)}{within}",
                format_estimate(standing.mean),
                format_estimate(standing.iqm),
                ", ".join(map(format_estimate, standing.costs)),
                bounded_steps(standing),
                _steps(standing.settled) if standing.is_followed else "–",
                f"{entry.wall_s:,.0f}",
                "–" if math.isnan(standing.good_wall_s) else f"{standing.good_wall_s:,.0f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _steps(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never"


def _name(standing: Standing) -> str:
    return ALGO_NAMES.get(standing.entry.algo, standing.entry.algo)
