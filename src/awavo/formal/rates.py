"""Rates read off measurements: log-log slopes with bootstrap intervals, and what a floor does to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from awavo.errors import InputError
from awavo.formal.certificate import REFUTED, SUPPORTED, UNDECIDED, Assumption, Certificate, Evidence, digest

__all__ = [
    "LEAST_STEPS", "RESOLUTION", "RateFit", "certify_learning_rate", "fit_rate", "learning_exponent", "rate_verdict",
]  # fmt: skip

Floats = NDArray[np.float64]
RESOLUTION = 0.05
"""How far above -1/2 a slope may lie and still count: over two decades log factors bend a slope by this much."""
LEAST_STEPS = 3
"""Steps at which the curves of all seeds must be known for a slope to say anything."""


class RateFit(NamedTuple):
    """Slope of log error against log T, and the floor f >= 0 of a fit a / sqrt(T) + f; 95% intervals."""

    slope: float
    slope_low: float
    slope_high: float
    floor: float
    floor_low: float
    floor_high: float
    means: Floats


def fit_rate(horizons: ArrayLike, errors: ArrayLike, *, draws: int = 2_000, seed: int = 0) -> RateFit:
    """Fit `errors[problem, seed, T]`: means over both, bootstrap over problems, then over seeds within them."""
    horizons, errors = np.asarray(horizons, float), np.asarray(errors, float)
    if errors.ndim != 3 or errors.shape[2] != len(horizons) or len(horizons) < 3:
        raise InputError(f"errors {errors.shape} do not fit {len(horizons)} horizons: expected [P, S, T], T >= 3.")
    rng = np.random.default_rng(seed)
    num_problems, num_seeds, _ = errors.shape
    problems = rng.integers(num_problems, size=(draws, num_problems, 1))
    seeds = rng.integers(num_seeds, size=(draws, num_problems, num_seeds))
    means = errors.mean((0, 1))
    resampled = np.stack([errors[p, s].mean((0, 1)) for p, s in zip(problems, seeds, strict=True)])
    # A bootstrap of both levels: which problems, and which seeds of each.
    slopes, floors = _slope(horizons, resampled), _floor(horizons, resampled)
    ends = (map(float, np.quantile(draws, (0.025, 0.975))) for draws in (slopes, floors))
    (low, high), (floor_low, floor_high) = ends
    slope, floor = (float(fit(horizons, means[None])[0]) for fit in (_slope, _floor))
    return RateFit(slope, low, high, floor, floor_low, floor_high, means)


def _slope(horizons: Floats, errors: Floats) -> Floats:
    x = np.log(horizons) - np.log(horizons).mean()
    y = np.log(np.maximum(errors, 1e-12))
    return (y * x).sum(-1) / (x**2).sum()


def _floor(horizons: Floats, errors: Floats) -> Floats:
    """Weighted least squares of a / sqrt(T) + f with f >= 0; weights 1 / error, so that every decade counts alike."""
    weight = np.where(errors > 1e-9, 1 / np.maximum(errors, 1e-9), 0.0)
    root = weight / np.sqrt(horizons)
    a11, a12, a22 = (root**2).sum(-1), (root * weight).sum(-1), (weight**2).sum(-1)
    b1, b2 = (root * weight * errors).sum(-1), (weight * weight * errors).sum(-1)
    determinant = a11 * a22 - a12**2
    floor = np.where(determinant > 0, (a11 * b2 - a12 * b1) / np.where(determinant > 0, determinant, 1), 0)
    return np.maximum(floor, 0.0)


def rate_verdict(low: float, high: float, exponent: float = -0.5) -> str:
    """Supported when the whole interval is at most the exponent plus the resolution, refuted when all is above."""
    if high <= exponent + RESOLUTION:
        return SUPPORTED
    return REFUTED if low > exponent + RESOLUTION else UNDECIDED


def learning_exponent(
    steps: Floats, curves: Floats, optimum: float, *, draws: int = 1_000, seed: int = 0
) -> tuple[float, float, float]:
    """Slope of log(optimum - running mean) against log steps over the later half of the steps, with a 95% interval.

    `curves[seed, step]` are returns; the running mean over iterates is what Theorem 2 bounds. Seeds are resampled.
    """
    steps, curves = np.asarray(steps, float), np.asarray(curves, float)
    # Of a running mean, as the theorem bounds the average over iterates.
    gaps = optimum - np.cumsum(curves, 1) / np.arange(1, curves.shape[1] + 1)
    late = steps >= 0.1 * steps[-1]  # the last decade
    rng = np.random.default_rng(seed)
    picks = rng.integers(len(curves), size=(draws, len(curves)))
    slopes = _slope(steps[late], gaps[picks].mean(1)[:, late])
    low, high = np.quantile(slopes, (0.025, 0.975))
    return float(_slope(steps[late], gaps.mean(0)[None, late])[0]), float(low), float(high)


def _trust(known: bool) -> tuple[str, str]:
    return (SUPPORTED, "given") if known else (UNDECIDED, "a proxy: the true optimum of a deep task is unknown")


def certify_learning_rate(
    steps: Floats, curves: Floats, optimum: float, proxy: str, *, known: bool = True
) -> Certificate:
    """Compare the exponent of a deep run's learning curves with the paper's range (1/sqrt(T), 1/T^1.2].

    Unless the optimum is known, nothing is supported: a policy stuck halfway converges fast to its own best.
    """
    finite = np.isfinite(curves).all(0)
    if finite.sum() < LEAST_STEPS:
        raise InputError(f"the curves are known at {finite.sum()} steps: expected {LEAST_STEPS} or more steps.")
    steps, curves = np.asarray(steps, float)[finite], np.asarray(curves, float)[:, finite]
    slope, low, high = learning_exponent(steps, curves, optimum)
    verdict = rate_verdict(low, high)
    single = len(curves) < 2
    if single or (verdict == SUPPORTED and not known):
        verdict = UNDECIDED
    why = ": one seed gives no interval" if single else "; a running mean cannot fall faster than 1/T"
    if not known:
        why += "; the gap is to the run's own best return, which may be far below the optimum"
    below = optimum - curves[:, -1].mean()
    return Certificate(
        name="rate.learning_curve",
        claim="the return's gap, averaged over training, falls at least as fast as 1/sqrt(T)",
        source="Theorem 2 and Section 6: the paper reports rates between 1/sqrt(T) and 1/T^1.2",
        method="least squares of log gap on log environment steps over the last decade; bootstrap over seeds",
        verdict=verdict,
        reason=f"fitted exponent {slope:.3f} [{low:.3f}, {high:.3f}]{why}",
        assumptions=(
            Assumption(f"the optimum is {proxy}", *_trust(known)),
            Assumption("networks satisfy Assumptions 2 and 3 of the paper", UNDECIDED, "not checkable from a run"),
        ),
        evidence=(
            Evidence("exponent", slope, low, high, required=f"<= {-0.5 + RESOLUTION:g}", ok=verdict == SUPPORTED),
            Evidence("proxy optimum", optimum),
            Evidence("last gap", float(below)),
            Evidence("seeds", len(curves)),
        ),
        inputs=digest(steps, curves, optimum),
    )
