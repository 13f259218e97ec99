"""Calibration of return distributions on fresh episodes, and a conformal correction whose coverage is guaranteed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from awavo.errors import InputError
from awavo.formal.bounds import clopper_pearson
from awavo.formal.certificate import PROVED, REFUTED, SUPPORTED, UNDECIDED, Assumption, Certificate, Evidence, digest

__all__ = ["certify_calibration", "central_interval", "conformal_margin", "crps", "pit"]

Floats = NDArray[np.floating]
RESOLUTION = 0.05


def _levels(num: int) -> Floats:
    return (np.arange(num) + 0.5) / num


def central_interval(quantiles: Floats, coverage: float) -> tuple[Floats, Floats]:
    """Ends of the central interval of sorted quantiles `[N, M]`, by interpolation between midpoints."""
    levels = _levels(quantiles.shape[-1])
    ends = [(1 - coverage) / 2, (1 + coverage) / 2]
    place = np.interp(ends, levels, np.arange(len(levels)))
    below = np.floor(place).astype(int)
    above = np.minimum(below + 1, len(levels) - 1)
    part = place - below
    low, high = ((1 - part) * quantiles[..., below] + part * quantiles[..., above]).T
    return low, high


def pit(quantiles: Floats, returns: Floats, rng: np.random.Generator) -> Floats:
    """Probability integral transform of the returns, randomised between quantiles and over ties.

    Quantile i stands at (i + 1/2) / M: beyond the first and the last there is half a step.
    """
    below, not_above = ((compare(quantiles, returns[:, None])).sum(1) for compare in (np.less, np.less_equal))
    low, high = np.maximum(below - 0.5, 0), np.minimum(not_above + 0.5, quantiles.shape[1])
    return (low + rng.uniform(size=len(returns)) * (high - low)) / quantiles.shape[1]


def crps(quantiles: Floats, returns: Floats) -> float:
    """Continuous ranked probability score: twice the mean pinball loss over the midpoints."""
    error = returns[:, None] - quantiles
    return float(
        2 * np.mean(np.maximum(_levels(quantiles.shape[1]) * error, (_levels(quantiles.shape[1]) - 1) * error))
    )


def conformal_margin(low: Floats, high: Floats, returns: Floats, coverage: float) -> float:
    """Widening of an interval so that a further exchangeable return lies inside with probability >= coverage."""
    scores = np.sort(np.maximum(low - returns, returns - high))
    rank = _rank(len(scores), coverage)
    return float(scores[rank - 1]) if rank <= len(scores) else float("inf")


def _rank(num: int, coverage: float) -> int:
    """Which of `num` sorted scores is the margin."""
    return int(np.ceil((num + 1) * coverage))


def _chance(inside: int, num: int, of: int, coverage: float) -> float:
    """How probably so few of `num` fresh returns lie inside by a margin from `of` others, if all are exchangeable.

    What one margin covers is itself random, Beta(rank, of + 1 - rank): it may fall short of what margins cover on
    average by far more than a binomial interval around it knows.
    """
    from scipy.stats import betabinom

    rank = _rank(of, coverage)
    return 1.0 if rank > of else float(betabinom.cdf(inside, num, rank, of + 1 - rank))


def certify_calibration(
    quantiles: Floats,
    returns: Floats,
    *,
    signal: str,
    coverage: float = 0.9,
    delta: float = 0.01,
    seed: int = 0,
    label: str = "",
    tail: Assumption | None = None,
) -> list[Certificate]:
    """Certify the critic's central interval as it is, and after a split-conformal correction.

    `quantiles[N, M]` and `returns[N]` are one state-action of each of N independent episodes.
    """
    from scipy.stats import kstest  # half a second to import, and training does not need it

    quantiles, returns = np.sort(np.asarray(quantiles, float), -1), np.asarray(returns, float)
    if quantiles.ndim != 2 or len(quantiles) != len(returns) or len(returns) < 20:
        raise InputError(f"{quantiles.shape} quantiles for {len(returns)} returns: expected [N, M] and [N], N >= 20.")
    rng = np.random.default_rng(seed)
    half = len(returns) // 2
    # The outermost of M midpoints are 1 - 1/M apart: of a wider interval the critic says nothing.
    said = min(coverage, 1 - 1 / quantiles.shape[1])
    low, high = central_interval(quantiles, said)
    inside = (low <= returns) & (returns <= high)
    raw = _coverage(inside, delta)
    margin = conformal_margin(low[:half], high[:half], returns[:half], coverage)
    # Of a critic that says too much the margin is negative: what is checked is the narrower interval.
    held = (np.maximum(low - returns, returns - high) <= margin)[half:]
    corrected, chance = _coverage(held, delta), _chance(int(held.sum()), len(held), half, coverage)
    transform = pit(quantiles, returns, rng)
    uniform = kstest(transform, "uniform")
    climate = crps(np.broadcast_to(np.quantile(returns, _levels(quantiles.shape[1])), quantiles.shape), returns)
    marks = digest(quantiles, returns, coverage, delta, seed)
    assumptions = (
        Assumption("one state-action from each of independent episodes of the exploring policy", PROVED, "fresh keys"),
        tail or Assumption("the return was observed to its end", PROVED),
    )
    verdict = REFUTED if raw[2] < said else SUPPORTED if said and raw[1] >= said - RESOLUTION else UNDECIDED
    first = Certificate(
        name=f"calibration.{signal}{label}",
        claim=f"the critic's central {said:.0%} interval of the {signal} return holds {said:.0%} of returns",
        source="Section 7 (limitation): trust in the critic's distribution; Lemma 2",
        method=f"coverage on {len(returns)} fresh returns with a {1 - delta:.0%} Clopper-Pearson interval, PIT, CRPS",
        verdict=verdict,
        reason=f"it holds {raw[0]:.1%} [{raw[1]:.1%}, {raw[2]:.1%}]",
        assumptions=assumptions,
        evidence=(
            Evidence("coverage", *raw, required=f">= {said:g} (to {RESOLUTION:g})", ok=verdict == SUPPORTED),
            Evidence("mean width", float((high - low).mean())),
            Evidence("PIT: distance from uniform", float(uniform.statistic)),
            Evidence("CRPS", crps(quantiles, returns)),
            Evidence("CRPS of the unconditional law", climate),
        ),
        counterexample={"coverage": raw[0], "upper bound": raw[2]} if verdict == REFUTED else None,
        inputs=marks,
        details={"pit": np.histogram(transform, 10, (0, 1))[0]},
    )
    broken = chance < delta / 2
    change = "widened" if margin >= 0 else "narrowed"
    second = Certificate(
        name=f"conformal.{signal}{label}",
        claim=f"{change} by {abs(margin):.4g} on each side, the interval holds a fresh {signal} return with "
        f"probability >= {coverage:.0%}",
        source="split conformal prediction; answers the limitation in Section 7",
        method=f"margin from {half} episodes by exchangeability, checked on the other {len(returns) - half}",
        verdict=REFUTED if broken else PROVED if np.isfinite(margin) else UNDECIDED,
        reason=f"on held-out episodes it holds {corrected[0]:.1%} [{corrected[1]:.1%}, {corrected[2]:.1%}]",
        assumptions=assumptions,
        evidence=(
            Evidence("margin", margin),
            Evidence("held-out coverage", *corrected),
            Evidence("chance of so little, if exchangeable", chance, required=f">= {delta / 2:g}", ok=not broken),
            Evidence("mean width", float(np.maximum(high - low + 2 * margin, 0.0).mean())),
        ),
        counterexample={"held-out coverage": corrected[0], "chance": chance} if broken else None,
        inputs=marks,
    )
    return [first, second]


def _coverage(inside: NDArray[np.bool_], delta: float) -> tuple[float, float, float]:
    low, high = clopper_pearson(inside.sum(), len(inside), delta)
    return float(inside.mean()), float(low), float(high)
