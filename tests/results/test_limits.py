"""The one rule of "within limits": what counts, how much slack, how many seeds."""

import numpy as np
import pytest

from awavo.errors import InputError
from awavo.results.limits import STRICT, LimitRule

COSTS = np.array([[30.0, 10.0], [30.4, 10.0], [0.0, 10.6], [np.nan, 0.0]])


def test_a_seed_needs_every_cost_at_most_at_its_limit():
    assert STRICT.seeds_within(COSTS, [30, 10]).tolist() == [True, False, False, False]
    assert LimitRule(slack=0.5).seeds_within(COSTS, [30, 10]).tolist() == [True, True, False, False]
    with pytest.raises(InputError, match="do not match"):
        STRICT.seeds_within(COSTS, [30])


@pytest.mark.parametrize(
    ("require", "needed"),
    [("all", 10), ("80%", 8), ("75%", 8), ("100%", 10), ("0.1%", 1), ("0.00000001%", 1), ("3", 3), ("10", 10)],
)
def test_how_many_seeds_a_run_needs(require, needed):
    rule = LimitRule(require=require)
    assert rule.needed(10) == needed
    assert rule.holds(needed, 10)
    assert not rule.holds(needed - 1, 10)
    assert require in rule.text


@pytest.mark.parametrize("require", ["", "half", "0", "0%", "101%", "-1", "80 %", "1e3"])
def test_other_requirements_are_refused(require):
    with pytest.raises(InputError, match="expected all, a share"):
        LimitRule(require=require)


@pytest.mark.parametrize("slack", [-0.1, float("nan"), float("inf")])
def test_other_slacks_are_refused(slack):
    with pytest.raises(InputError, match="slack"):
        LimitRule(slack=slack)


def test_slack_is_said_where_it_is_used():
    assert STRICT.text == "within limits: mean cost <= limit, in all seeds"
    assert "limit + 0.5 (slack)" in LimitRule(0.5).text


def test_excess_is_relative_to_the_limit():
    found = STRICT.excess([[33.0, 5.0], [30.0, 10.0], [0.0, 20.0]], [30, 10])
    np.testing.assert_allclose(found, [0.1, 0.0, 1.0])
    np.testing.assert_allclose(STRICT.excess([[2.0]], [0.0]), [2.0])
    assert STRICT.excess(np.zeros((3, 0)), []).tolist() == [0.0] * 3


def test_an_entry_is_counted_by_the_rule_and_not_by_what_it_says():
    costs = {"a": {"per_seed": [30.0, 30.4], "limit": 30.0}, "b": {"per_seed": [1.0, 2.0], "limit": 10.0}}
    entry = {"costs": costs, "feasible_seeds": 2}
    assert (STRICT.count_within(entry), LimitRule(0.5).count_within(entry)) == (1, 2)
