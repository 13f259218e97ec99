import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from awavo.errors import InputError
from awavo.results.limits import LimitRule
from awavo.results.statistics import (
    _levels,
    evaluation_summary,
    iqm,
    mean_estimate,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)

SCORES = st.lists(st.floats(-1e4, 1e4, allow_subnormal=False), min_size=2, max_size=14)


@given(SCORES)
def test_iqm_is_the_trimmed_mean(scores):
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25), rel=1e-9, abs=1e-9)


def test_iqm_along_an_axis_and_with_nan():
    scores = np.random.default_rng(0).normal(size=(10, 3))
    np.testing.assert_allclose(iqm(scores, axis=0), stats.trim_mean(scores, 0.25, axis=0))
    assert np.isnan(iqm([1.0, np.nan, 2.0, 3.0]))
    with pytest.raises(InputError, match="no values"):
        iqm([])


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
@settings(max_examples=30, deadline=None)
@given(scores=SCORES, shift=st.floats(-100, 100), scale=st.floats(0.1, 10))
def test_bootstrap_contains_value_and_follows_shift_and_scale(statistic, scores, shift, scale):
    scores = np.array(scores)
    plain = stratified_bootstrap(scores, statistic, resamples=200)
    moved = stratified_bootstrap(scale * scores + shift, statistic, resamples=200)
    assert plain.low <= plain.value <= plain.high
    size = 1e-9 * (1 + np.abs(scores).max() * scale + abs(shift))
    for field in ("value", "low", "high"):
        assert getattr(moved, field) == pytest.approx(scale * getattr(plain, field) + shift, abs=size, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(SCORES, st.randoms(use_true_random=False))
def test_order_of_the_seeds_does_not_matter(scores, random):
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert iqm(shuffled) == pytest.approx(iqm(scores), abs=1e-9)
    first, second = mean_estimate(scores), mean_estimate(shuffled)
    assert second.value == pytest.approx(first.value, abs=1e-8)
    width = first.high - first.low
    assert second.high - second.low == pytest.approx(width, abs=0.35 * width + 1e-8)


@pytest.mark.parametrize(("statistic", "least"), [("mean", 0.925), ("iqm", 0.92)])
def test_coverage_with_ten_seeds(statistic, least):
    random, hits = np.random.default_rng(3), 0
    for _ in range(600):
        estimate = stratified_bootstrap(random.normal(5.0, 2.0, 10), statistic, resamples=500)
        hits += estimate.low <= 5.0 <= estimate.high
    assert least <= hits / 600 <= 0.985


def test_widened_levels_follow_student():
    for num in (5, 10, 30):
        exact = stats.norm.cdf(stats.t.ppf(0.025, num - 1) * np.sqrt(num / (num - 1)))
        assert _levels(0.025, num)[0] == pytest.approx(exact, rel=0.05)


def test_strata_are_resampled_within():
    two_tasks = np.stack([np.zeros(10), np.full(10, 100.0)], axis=1)
    estimate = mean_estimate(two_tasks)
    assert (estimate.low, estimate.value, estimate.high) == (50.0, 50.0, 50.0)
    assert estimate.count == 10
    scores = np.random.default_rng(0).normal(size=10)
    alone, twice = mean_estimate(scores), mean_estimate(np.stack([scores, scores], axis=1))
    assert twice.high - twice.low < 0.8 * (alone.high - alone.low)


def test_one_run_has_no_interval_and_repeats_are_equal():
    alone = mean_estimate([3.0])
    assert alone.value == 3.0
    assert np.isnan(alone.low)
    assert "one run" in alone.method
    scores = np.random.default_rng(1).normal(size=10)
    assert stratified_bootstrap(scores) == stratified_bootstrap(scores)
    with pytest.raises(InputError, match="expected 'iqm' or 'mean'"):
        stratified_bootstrap(scores, "median")
    with pytest.raises(InputError, match=r"expected \[S\]"):
        stratified_bootstrap(np.zeros((2, 2, 2)))


def test_probability_of_improvement():
    assert probability_of_improvement([3, 4, 5], [0, 1, 2]).value == 1.0
    same = probability_of_improvement([1, 2, 3], [1, 2, 3])
    assert same.value == 0.5
    assert same.low <= 0.5 <= same.high
    random = np.random.default_rng(0)
    first, second = random.normal(size=12), random.normal(0.3, 1, 9)
    mann_whitney = stats.mannwhitneyu(first, second).statistic / (12 * 9)
    assert probability_of_improvement(first, second).value == pytest.approx(mann_whitney)
    assert probability_of_improvement([1, 2], [-np.inf, -np.inf]).value == 1.0  # never, as steps until good are


def test_what_is_no_number_wins_against_nobody():
    for pair in (([1.0, 2.0], [np.nan, 3.0]), ([np.nan, 3.0], [1.0, 2.0])):
        found = probability_of_improvement(*pair)
        assert np.isnan([found.value, found.low, found.high]).all()
        assert "no number" in found.method


def test_performance_profile_is_a_falling_share():
    scores, levels = np.random.default_rng(0).normal(size=(10, 3)), np.linspace(-4, 4, 21)
    profile = performance_profile(scores, levels)
    np.testing.assert_allclose(profile.value, 1 - stats.ecdf(scores.reshape(-1)).cdf.evaluate(levels))
    assert (np.diff(profile.value) <= 0).all()
    assert (profile.low <= profile.value).all()
    assert (profile.value <= profile.high).all()


def _summary(seeds=4, episodes=50, **changes):
    random = np.random.default_rng(0)
    returns = random.normal(100, 5, (seeds, episodes)) + np.arange(seeds)[:, None]
    costs = np.stack([returns / 10, returns / 5], axis=-1)
    options = {"cost_names": ("a", "b"), "cost_limits": (10.2, 21.0), **changes}
    return returns, costs, evaluation_summary(returns, costs, returns, **options)


def test_summary_fields():
    rule = LimitRule(slack=0.5)
    returns, costs, entry = _summary(rule=rule, env_steps=7, command="awavo evaluate x")
    np.testing.assert_allclose(entry["return"]["per_seed"], returns.mean(axis=1))
    assert entry["return"]["value"] == pytest.approx(returns.mean())
    assert entry["return"]["low"] < entry["return"]["value"] < entry["return"]["high"]
    assert entry["costs"]["b"]["limit"] == 21.0
    assert entry["costs"]["b"]["value"] == pytest.approx(costs[..., 1].mean())
    assert entry["violation_rate"]["a"]["value"] == pytest.approx((costs[..., 0] > 10.2).mean())
    assert (entry["seeds"], entry["episodes_per_seed"], entry["env_steps"]) == (4, 50, 7)
    assert entry["feasible_seeds"] == rule.seeds_within(costs.mean(axis=1), (10.2, 21.0)).sum()
    assert set(entry) == {
        *("return", "costs", "length", "feasible_seeds", "seeds", "episodes_per_seed"),
        *("slack", "violation_rate", "env_steps", "command", "method"),
    }
    json.dumps(entry, allow_nan=False)


def test_summary_of_one_seed_resamples_its_episodes():
    _, _, entry = _summary(seeds=1)
    assert entry["return"]["low"] < entry["return"]["value"] < entry["return"]["high"]
    assert len(entry["return"]["per_seed"]) == 1
    assert "episodes of the one seed" in entry["method"]


def test_summary_without_costs_counts_every_seed_as_feasible():
    returns = np.ones((3, 5))
    entry = evaluation_summary(returns, np.zeros((3, 5, 0)), returns, cost_names=(), cost_limits=())
    assert (entry["costs"], entry["feasible_seeds"]) == ({}, 3)


def test_a_cost_at_its_limit_is_no_violation():
    at_limit, returns = np.full((3, 5, 1), 7.0), np.ones((3, 5))
    entry = evaluation_summary(returns, at_limit, returns, cost_names=("a",), cost_limits=(7.0,))
    assert (entry["violation_rate"]["a"]["value"], entry["feasible_seeds"]) == (0.0, 3)


def test_summary_refuses_arrays_that_do_not_match():
    with pytest.raises(InputError, match="one limit for each cost"):
        _summary(cost_limits=(1.0,))
    with pytest.raises(InputError, match="costs have shape"):
        _summary(cost_names=("a",), cost_limits=(1.0,))
    with pytest.raises(InputError, match="lengths have shape"):
        evaluation_summary(np.ones((2, 3)), np.ones((2, 3, 0)), np.ones((2, 4)), cost_names=(), cost_limits=())


def test_summary_is_fast_and_large_ones_stay_small():
    _summary(seeds=10, episodes=100)
    start = time.process_time()
    _summary(seeds=10, episodes=100)
    assert time.process_time() - start < 0.05
    mean_estimate(np.random.default_rng(0).normal(size=20_000), resamples=300)
