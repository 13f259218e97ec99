"""Calibration: honest critics pass, narrow ones do not, the correction covers unless its premise breaks."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest

from awavo.errors import InputError
from awavo.formal.calibration import central_interval, certify_calibration, conformal_margin, crps, pit

LEVELS = (np.arange(16) + 0.5) / 16


def data(num, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    centre = 10 * rng.standard_normal(num)
    return centre[:, None] + scale * ndtri(LEVELS), centre + rng.standard_normal(num)


def test_honest_quantiles_are_supported_and_narrow_ones_refuted():
    raw, corrected = certify_calibration(*data(1_000), signal="reward")
    assert raw.verdict == "supported"
    assert corrected.verdict == "proved"
    raw, corrected = certify_calibration(*data(1_000, scale=0.3), signal="reward")
    assert raw.verdict == "refuted"
    assert raw.counterexample["upper bound"] < 0.9
    assert corrected.verdict == "proved"
    assert certify_calibration(*data(30, scale=0.9), signal="reward")[0].verdict == "undecided"


def test_the_correction_covers_over_many_draws():
    """Marginal coverage of split conformal intervals, at least the stated rate."""
    inside = []
    for seed in range(400):
        quantiles, returns = data(41, scale=0.3, seed=seed)
        low, high = central_interval(quantiles, 0.9)
        margin = conformal_margin(low[:40], high[:40], returns[:40], 0.9)
        inside.append(low[40] - margin <= returns[40] <= high[40] + margin)
    assert np.mean(inside) >= 0.9 - 3 * np.sqrt(0.09 / 400)
    assert np.mean(inside) <= 0.97


def test_a_broken_premise_refutes_the_correction():
    quantiles, returns = data(600, scale=0.5)
    returns[300:] += 5.0  # later episodes come from another distribution
    assert certify_calibration(quantiles, returns, signal="reward")[1].verdict == "refuted"


def test_the_correction_of_a_wide_critic_is_judged_by_the_narrower_interval():
    quantiles, returns = data(600, scale=8.0)
    found = certify_calibration(quantiles, returns, signal="reward")[1]
    low, high = central_interval(quantiles[300:], 0.9)
    margin = conformal_margin(*central_interval(quantiles[:300], 0.9), returns[:300], 0.9)
    assert margin < 0
    assert found.claim.startswith(f"narrowed by {-margin:.4g}")
    held = ((low - margin <= returns[300:]) & (returns[300:] <= high + margin)).mean()
    assert found.evidence[1].value == pytest.approx(held)
    assert 0.85 < held < 0.96
    returns[300:] *= np.where(np.arange(300) % 2, 1.0, 3.0)  # spread that the margin never saw
    assert certify_calibration(quantiles, returns, signal="reward")[1].verdict == "refuted"


def test_scores():
    rng = np.random.default_rng(0)
    quantiles, returns = data(2_000)
    assert np.abs(np.histogram(pit(quantiles, returns, rng), 10, (0, 1))[0] / 2_000 - 0.1).max() < 0.03
    assert crps(quantiles, returns) < crps(quantiles + 1, returns)
    assert crps(quantiles, returns) == pytest.approx(1 / np.sqrt(np.pi), rel=0.1)
    flat = np.zeros((100, 16))
    assert 0.4 < pit(flat, np.zeros(100), rng).mean() < 0.6
    assert np.isinf(conformal_margin(np.zeros(3), np.ones(3), np.zeros(3), 0.9))


def test_bad_input():
    with pytest.raises(InputError, match="N >= 20"):
        certify_calibration(np.zeros((5, 4)), np.zeros(5), signal="reward")


def test_the_transform_of_an_honest_critic_is_uniform_however_few_its_quantiles_are():
    """Midpoints leave half a step below the first and above the last of them."""
    rng = np.random.default_rng(0)
    for num in (4, 16):
        quantiles = np.broadcast_to((np.arange(num) + 0.5) / num, (20_000, num))
        transform = pit(quantiles, rng.uniform(size=20_000), rng)
        assert kstest(transform, "uniform").statistic < 0.015


def test_a_correction_that_covers_is_refuted_no_more_often_than_stated():
    """A margin from 50 episodes covers 90% on average over such margins, a single one may cover 85%."""
    rng, refuted = np.random.default_rng(1), 0
    for _ in range(600):
        quantiles, returns = np.tile(ndtri(LEVELS), (100, 1)), rng.standard_normal(100)
        refuted += certify_calibration(quantiles, returns, signal="reward", delta=0.02)[1].verdict == "refuted"
    assert refuted <= 600 * 0.01 + 3 * np.sqrt(600 * 0.01)


@pytest.mark.parametrize(("num", "says"), [(1, "0%"), (4, "75%"), (8, "88%"), (16, "90%")])
def test_an_honest_critic_of_few_quantiles_is_not_refuted(num, says):
    """Four quantiles reach from 12.5% to 87.5%: of a 90% interval they say nothing."""
    rng = np.random.default_rng(0)
    quantiles = np.broadcast_to(ndtri((np.arange(num) + 0.5) / num), (2_000, num))
    raw, corrected = certify_calibration(quantiles, rng.standard_normal(2_000), signal="reward")
    assert raw.verdict == ("undecided" if num == 1 else "supported")
    assert f"central {says} interval" in raw.claim
    assert corrected.verdict == "proved"
    assert ">= 90%" in corrected.claim
