"""Bounds cover at the stated rate, fixed and at any time, and are tight; broken ones would be seen."""

import numpy as np
import pytest
from scipy.stats import binom

from awavo.errors import InputError
from awavo.formal.bounds import (
    beta_mixture,
    betting_log_capital,
    betting_mean,
    clopper_pearson,
    empirical_bernstein,
    episodes_needed,
    hoeffding,
)

REPETITIONS, NUM = 600, 100


def few(bad, delta):
    return bad.sum() <= binom.ppf(0.999, len(bad), delta)


@pytest.mark.parametrize("delta", [0.05, 0.01])
def test_betting_covers_at_every_time(delta):
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(REPETITIONS, NUM)) < 0.1) * rng.uniform(size=(REPETITIONS, NUM))
    bad = (betting_log_capital(x, 0.05) >= np.log(2 / delta)) | (betting_log_capital(1 - x, 0.95) >= np.log(2 / delta))
    assert few(bad.any(1), delta)


def test_a_bound_that_peeks_is_seen():
    """Clopper-Pearson read after every episode is not anytime-valid, and the same count shows it."""
    over = np.random.default_rng(0).uniform(size=(REPETITIONS, NUM)) < 0.3
    counts, sizes = np.cumsum(over, 1), np.arange(1, NUM + 1)
    peeked = np.zeros(REPETITIONS, bool)
    for n in sizes[9:]:
        low, high = clopper_pearson(counts[:, n - 1], int(n), 0.05)
        peeked |= (low > 0.3) | (high < 0.3)
    assert not few(peeked, 0.05)
    lows, highs = beta_mixture(counts, sizes, 0.05)
    assert few(((lows > 0.3) | (highs < 0.3)).any(1), 0.05)
    low, high = clopper_pearson(counts[:, -1], NUM, 0.05)
    assert few((low > 0.3) | (high < 0.3), 0.05)


@pytest.mark.parametrize("bound", [empirical_bernstein, hoeffding, betting_mean])
def test_fixed_sample_coverage(bound):
    rng = np.random.default_rng(1)
    x = 5 + 10 * np.round(rng.beta(1, 9, (150, 60)), 2)
    limits = np.array([bound(row, 5, 15, 0.05) for row in x])
    assert few((limits[:, 0] > 6.01) | (limits[:, 1] < 5.99), 0.05)
    assert (limits[:, 0] >= 5).all()
    assert (limits[:, 1] <= 15).all()


@pytest.mark.parametrize(("rate", "num"), [(0.002, 2_000), (0.01, 300), (0.01, 1_000)])
@pytest.mark.parametrize("delta", [0.05, 0.01])
def test_half_width_within_twice_the_exact_binomial(rate, num, delta):
    count = round(rate * num)
    x = np.arange(num) < count
    exact = np.diff(clopper_pearson(count, num, delta))[0]
    assert np.diff(betting_mean(x, 0, 1, delta))[0] <= 2 * exact
    assert np.diff(beta_mixture(count, num, delta))[0] <= 2 * exact
    assert np.diff(hoeffding(x, 0, 1, delta))[0] > 2 * exact


def test_the_capital_inverts_to_the_bound():
    x = np.random.default_rng(0).beta(2, 5, 80)
    low, high = betting_mean(x, 0, 1, 0.1)
    assert betting_log_capital(x, high - 1e-6)[-1] < np.log(2 / 0.1) <= betting_log_capital(x, high + 1e-6)[-1]
    assert low < x.mean() < high
    wider = betting_mean(x, 0, 1, 0.01)
    assert wider[0] < low < high < wider[1]
    looks = betting_mean(x, 0, 1, 0.1, looks=[20, 40, 80])
    assert looks[0] >= low
    assert looks[1] <= high


def test_known_binomial_bounds():
    low, high = clopper_pearson(0, 100, 0.05)
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))
    low, high = clopper_pearson(100, 100, 0.05)
    assert high == 1
    low, high = beta_mixture(0, 100, 0.05)
    assert low == 0
    assert 0.03 < high < 0.1


def test_episodes_needed_is_about_enough():
    rng = np.random.default_rng(0)
    for mean, limit in ((20.0, 22.0), (22.0, 20.0), (5.0, 22.0), (90.0, 22.0)):
        x = np.clip(mean + 5 * rng.standard_normal(5_000), 0, 200)
        need = episodes_needed(x[:200], 0, 200, limit, 0.01)
        bounds = [betting_mean(x[:n], 0, 200, 0.01) for n in (need // 2, need + need // 2 + 5)]
        assert [not low <= limit <= high for low, high in bounds] == [False, True], (mean, limit, need)
    assert episodes_needed([21.0, 23.0], 0, 200, 22.0, 0.01) is None


def test_bad_input():
    for bad in (dict(delta=0.0), dict(delta=1.0)):
        with pytest.raises(InputError, match="delta"):
            betting_mean([0.5], 0, 1, **bad)
    with pytest.raises(InputError, match="outside"):
        hoeffding([2.0], 0, 1, 0.05)
    with pytest.raises(InputError, match="empty"):
        hoeffding([], 0, 1, 0.05)
    with pytest.raises(InputError, match="low < high"):
        hoeffding([0.5], 1, 1, 0.05)
