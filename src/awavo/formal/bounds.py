r"""Confidence bounds on a mean of bounded values and on a probability: for a fixed sample, and valid at any time.

A bet against "the mean is m": with values in [0, 1] and a fraction f in (0, 1),

.. math::
    K_n(m) = \sum_k w_k \prod_{t \le n} \Big(1 + f_k \frac{m - x_t}{1 - m}\Big)

is a non-negative martingale when the mean is m, so by Ville's inequality it ever exceeds 1/delta with probability at
most delta. It grows with m, so the m it rejects are those above a bound; the other side follows from 1 - x.
For counts the mixture of the likelihood ratio over a beta prior does the same in closed form.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln, logsumexp, xlog1py, xlogy

from awavo.checks import all_finite
from awavo.errors import InputError

__all__ = [
    "beta_mixture", "betting_log_capital", "betting_mean", "clopper_pearson", "empirical_bernstein", "episodes_needed",
    "hoeffding",
]  # fmt: skip

Floats = NDArray[np.float64]
FRACTIONS = np.geomspace(1e-4, 0.995, 40)  # f_k: bold bets win on far means, cautious ones on near means
_HALVINGS = 36  # a bound to 1e-11 of the range


def _unit(values: ArrayLike, low: float, high: float) -> Floats:
    x = np.asarray(values, float)
    if not high > low:
        raise InputError(f"the bounds [{low}, {high}] are empty: expected low < high.")
    if x.size == 0 or not all_finite(x):
        raise InputError("the values are empty or not finite: expected at least one episode.")
    if x.min() < low - 1e-9 or x.max() > high + 1e-9:
        raise InputError(f"a value {x.min():g} or {x.max():g} lies outside [{low:g}, {high:g}]: widen the bounds.")
    return np.clip((x - low) / (high - low), 0.0, 1.0)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta={delta} is not between 0 and 1: 0.05 is 95% confidence.")


def hoeffding(values: ArrayLike, low: float, high: float, delta: float) -> tuple[float, float]:
    """Two-sided bounds from the range alone."""
    _check_delta(delta)
    x = _unit(values, low, high)
    half = np.sqrt(np.log(2 / delta) / (2 * x.size))
    return _scale(x.mean() - half, x.mean() + half, low, high)


def empirical_bernstein(values: ArrayLike, low: float, high: float, delta: float) -> tuple[float, float]:
    """Two-sided bounds from the sample variance (Maurer and Pontil 2009), delta / 2 on each side."""
    _check_delta(delta)
    x = _unit(values, low, high)
    if x.size < 2:
        return low, high
    confidence = np.log(4 / delta)
    half = np.sqrt(2 * x.var(ddof=1) * confidence / x.size) + 7 * confidence / (3 * (x.size - 1))
    return _scale(x.mean() - half, x.mean() + half, low, high)


def _scale(lower: float, upper: float, low: float, high: float) -> tuple[float, float]:
    width = high - low
    return float(low + width * max(lower, 0.0)), float(low + width * min(upper, 1.0))


def betting_log_capital(x: Floats, mean: Floats | float) -> Floats:
    """Log capital after every value of a bet that the mean is below `mean`; `x` is `[..., n]` in [0, 1]."""
    m = np.asarray(mean, float)[..., None, None]
    with np.errstate(divide="ignore"):
        steps = np.log1p(FRACTIONS[:, None] * (m - x[..., None, :]) / (1 - m))
    return logsumexp(np.cumsum(steps, -1), axis=-2) - np.log(len(FRACTIONS))


def _final_capital(counts: Floats, support: Floats, mean: float) -> float:
    # Values that repeat are counted: costs of an episode are often whole numbers.
    logs = np.log1p(FRACTIONS[:, None] * ((mean - support) / (1 - mean))) @ counts
    largest = logs.max()
    return float(largest + np.log(np.exp(logs - largest).mean()))


def _upper(x: Floats, delta: float) -> float:
    """Smallest mean that the bet rejects after the last value."""
    support, counts = np.unique(x, return_counts=True)
    lower, upper, target = float(x.mean()), 1.0, -np.log(delta)
    if lower >= 1:
        return 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (lower + upper)
        if middle >= 1 or _final_capital(counts.astype(float), support, middle) >= target:
            upper = middle
        else:
            lower = middle
    return upper


def betting_mean(
    values: ArrayLike, low: float, high: float, delta: float, looks: ArrayLike | None = None
) -> tuple[float, float]:
    """Two-sided bounds by betting, delta / 2 on each side.

    They hold at every time at once, so `looks` (sample sizes at which one looks and may stop) costs nothing: the
    bounds of all looks are intersected.
    """
    _check_delta(delta)
    x = _unit(values, low, high)
    sizes = np.atleast_1d(np.asarray([x.size] if looks is None else looks, int))
    uppers = [_upper(x[:n], delta / 2) for n in sizes]
    lowers = [1 - _upper(1 - x[:n], delta / 2) for n in sizes]
    return _scale(max(lowers), min(uppers), low, high)


def clopper_pearson(count: ArrayLike, num: int, delta: float) -> tuple[Floats, Floats]:
    """Exact binomial bounds for a fixed sample, delta / 2 on each side."""
    _check_delta(delta)
    k = np.asarray(count, float)
    lower = np.where(k > 0, betaincinv(np.maximum(k, 1), num - k + 1, delta / 2), 0.0)
    upper = np.where(k < num, betaincinv(k + 1, np.maximum(num - k, 1), 1 - delta / 2), 1.0)
    return lower, upper


def beta_mixture(count: ArrayLike, num: ArrayLike, delta: float, prior: float = 0.5) -> tuple[Floats, Floats]:
    """Binomial bounds that hold at every sample size at once (Robbins' mixture over a beta prior)."""
    _check_delta(delta)
    k, n = np.broadcast_arrays(np.asarray(count, float), np.asarray(num, float))
    evidence = betaln(prior + k, prior + n - k) - betaln(prior, prior) + np.log(delta)

    def rejected(p: Floats) -> NDArray[np.bool_]:
        return evidence > xlogy(k, p) + xlog1py(n - k, -p)

    centre = k / n
    sides = []
    for edge in (0.0, 1.0):
        # The accepted p form an interval around k / n: bisect to each of its ends.
        inside, outside = centre.copy(), np.full_like(centre, edge)
        for _ in range(_HALVINGS):
            middle = 0.5 * (inside + outside)
            out = rejected(middle)
            inside, outside = np.where(out, inside, middle), np.where(out, middle, outside)
        sides.append(np.where(centre == edge, edge, outside))
    return sides[0], sides[1]


def episodes_needed(values: ArrayLike, low: float, high: float, limit: float, delta: float) -> int | None:
    """About how many values in all `betting_mean` needs to part the mean from a limit; None at the limit itself.

    The best bet goes on winning as it has so far, until its share of the capital alone would do.
    """
    x, m = _unit(values, low, high), (limit - low) / (high - low)
    if abs(x.mean() - m) < 1e-9 or not 0 < m < 1:
        return None
    x, m = (x, m) if x.mean() < m else (1 - x, 1 - m)
    growth = np.log1p(FRACTIONS[:, None] * (m - x) / (1 - m)).mean(1).max()
    return None if growth <= 0 else int(np.ceil(np.log(2 * len(FRACTIONS) / delta) / growth))
