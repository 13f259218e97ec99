"""Whether a posterior may be believed: finite, settled, and as far from the data as their noise says, with a remedy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from awavo.errors import AwavoError

__all__ = ["BEYOND", "Fit", "MisfitError", "check_fit", "excess"]

# Standard normal deviates beyond which a sum of squares is no chance, and steps (in standard deviations) still moving.
BEYOND, SETTLED = 5.0, 0.2
BLOCK = 16


class MisfitError(AwavoError):
    """A posterior that does not fit what was observed. `result` holds it, marked."""

    result = None


class Fit(NamedTuple):
    """The verdict on a posterior.

    `chi2` is squared residuals per observation, `worst` the largest over single components and stretches of time, as
    a standard normal deviate; `problems` say what is wrong and what to do, `notes` what is worth knowing.
    """

    good: bool
    chi2: float
    worst: float
    converged: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def excess(squares: Float[np.ndarray, "..."], count: np.ndarray) -> np.ndarray:
    """Sums of `count` squares as standard normal deviates (Wilson and Hilferty 1931)."""
    count = np.maximum(np.asarray(count, float), 1.0)
    return ((np.asarray(squares, float) / count) ** (1 / 3) - (1 - 2 / (9 * count))) / np.sqrt(2 / (9 * count))


def _short(value: float, places: int) -> str:
    return f"{value:.{places}f}" if value < 1e4 else f"{value:.3g}"


def check_fit(
    residual: Float[np.ndarray, "T m"],
    seen: Bool[np.ndarray, "T m"],
    other: float,
    finite: bool,
    moving: float,
) -> Fit:
    """Judge residuals in standard deviations of the noise.

    Args:
        residual: What was seen less what the posterior's mean would show, over its noise; 0 where nothing was.
        seen: What was seen.
        other: Squares of the priors and of the model's errors, which pay for the unknowns.
        finite: Whether every number of the posterior is finite.
        moving: The largest step that is left, in standard deviations of the posterior.
    """
    if not finite or not np.isfinite(residual).all():
        remedy = "narrow the priors (prior_std, theta_std), or observe more often than the flow doubles its errors"
        return Fit(False, np.inf, np.inf, False, (f"the states are not finite: {remedy}.",), ())
    with np.errstate(over="ignore"):
        squares, count = residual**2, int(seen.sum())
    total = float(squares.sum() + other)
    chi2 = total / max(count, 1)
    parts = [excess(np.array([total]), np.array([count]))]
    # Single components, and stretches of time: a wrong mode is wrong somewhere, not everywhere.
    if count > 2 * BLOCK:
        parts.append(excess(squares.sum(0), seen.sum(0))[seen.sum(0) > 1])
        edges = np.arange(0, len(seen), max(1, len(seen) // BLOCK))
        parts.append(excess(np.add.reduceat(squares.sum(1), edges), np.add.reduceat(seen.sum(1), edges)))
    worst = float(max(p.max() for p in parts if p.size))
    converged = bool(moving <= SETTLED)
    problems, notes, shown = [], [], _short(chi2, 2)
    if worst > BEYOND:
        problems.append(
            f"the residuals are too large for the noise (chi2 {shown} per observation, {_short(worst, 1)} standard "
            "deviations at their worst): a wrong mode, a model that is wrong (give model_noise or more free "
            "parameters), or noise understated; more starts may find a better mode."
        )
    if not converged:
        problems.append(
            f"the descent has not settled (its next step is {moving:.2g} standard deviations): narrow the priors, give "
            "model_noise, or use a shorter window."
        )
    if count > 8 and float(excess(np.array([total]), np.array([count]))[0]) < -BEYOND:
        notes.append(
            f"the residuals are too small for the noise (chi2 {shown} per observation): it is overstated, and the "
            "intervals are too wide."
        )
    return Fit(not problems, chi2, worst, converged, tuple(problems), tuple(notes))
