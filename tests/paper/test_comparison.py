"""Who is first within limits, who is tied, and after how many steps: on results whose answer is known."""

import math

import numpy as np
import pytest
from made_up import learning_result

from awavo.paper.claims import CLAIMS, CONFIRMED, REFUTED, UNDECIDED, check_claims
from awavo.paper.comparison import compare_task, difference, good_steps, pool_scores, settled_steps
from awavo.paper.job import Job
from awavo.paper.learning_text import answer, claims_text
from awavo.paper.method_results import load_method_results, read_results
from awavo.results.limits import LimitRule

FACTS = {"threshold": 90.0, "why": "a test", "random": 0.0}
AROUND = np.linspace(-1, 1, 10)


def compared(write, *results):
    entries, _ = load_method_results(read_results(write(*results), "learning"))
    return compare_task(entries, FACTS)


def test_a_violator_with_the_highest_return_is_not_first(write):
    found = compared(
        write,
        learning_result("cartpole", "awavo", 100 + AROUND),
        learning_result("cartpole", "paets", 200 + AROUND, cost=99.0),
    )
    assert found.leader.entry.algo == "awavo"
    assert not found.of("paets").is_within
    assert "Not within limits: PaETS (0 of 10 seeds)" in answer(found)


def test_a_method_is_within_limits_by_the_one_rule(write):
    result = learning_result("cartpole", "crpo", 100 + AROUND)
    costs = result["rows"][0]["evaluation"]["greedy"]["costs"]
    costs["angle"]["per_seed"] = [99.0] + [1.0] * 9
    entries, _ = load_method_results(read_results(write(result), "learning"))
    assert not compare_task(entries, FACTS).standings[0].is_within
    assert compare_task(entries, FACTS, LimitRule(require="90%")).standings[0].is_within


def test_there_is_no_slack_unless_it_is_asked_for(write):
    result = learning_result("cartpole", "crpo", 100 + AROUND, cost=10.01)
    entries, _ = load_method_results(read_results(write(result), "learning"))
    assert compare_task(entries, FACTS).standings[0].feasible_seeds == 0
    assert compare_task(entries, FACTS, LimitRule(slack=0.5)).standings[0].feasible_seeds == 10


def test_ties_and_differences(write):
    near, far = (learning_result("cartpole", "awavo", 100 - gap + AROUND) for gap in (0.1, 20.0))
    first = learning_result("cartpole", "pcpo", 100 + AROUND)
    assert compared(write, first, near).tied() == ["awavo"]
    assert compared(write, first, far).tied() == []
    assert "AWaVO is behind: -20.00" in answer(compared(write, first, far))


def test_the_interval_of_a_difference_covers():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        gap = difference(rng.normal(1.0, 1.0, 10), rng.normal(0.0, 3.0, 10))
        hits += gap.low <= 1.0 <= gap.high
    assert 0.91 <= hits / 300 <= 0.99


@pytest.mark.parametrize("num", [1, 2, 3, 4])
def test_few_seeds_rarely_tell_equal_methods_apart(num):
    rng = np.random.default_rng(0)
    gaps = [difference(*rng.normal(size=(2, num))) for _ in range(200)]
    assert np.mean([not gap.low <= 0 <= gap.high for gap in gaps]) <= 0.1


def test_steps_until_good(write):
    result = learning_result("cartpole", "awavo", [100.0] * 6 + [50.0] * 4, path=(0.5, 0.95, 0.8, 1.0), steps=400)
    entry = compared(write, result).standings[0].entry
    steps = good_steps(entry, 90.0)
    assert steps[:6].tolist() == [200.0] * 6
    assert np.isinf(steps[6:]).all()
    assert settled_steps(entry, 90.0) == 400.0
    assert compared(write, result).standings[0].good.value == 200.0
    assert math.isinf(compared(write, result).standings[0].good.high)


def test_never_is_said(write):
    found = compared(write, learning_result("cartpole", "awavo", [10.0] * 10))
    assert "AWaVO never" in answer(found)


def test_a_method_without_checkpoints_is_not_said_to_be_slow(write):
    blind = learning_result("cartpole", "crpo", 100 + AROUND, steps=10_000, path=(1.0,))
    blind["rows"][0]["checkpoints"] = []
    text = answer(compared(write, learning_result("cartpole", "awavo", 100 + AROUND), blind))
    assert "Whether AWaVO needs fewer steps is open: CRPO" in text


def test_sooner(write):
    slow = learning_result("cartpole", "crpo", 100 + AROUND, steps=10_000)
    found = compared(write, learning_result("cartpole", "awavo", 100 + AROUND), slow)
    assert found.sooner("awavo", "crpo").low > 0.9
    assert "AWaVO needs fewer steps than every other method" in answer(found)
    text = answer(compared(write, learning_result("cartpole", "awavo", 50 + AROUND), slow))
    assert "AWaVO does not surely need fewer steps than CRPO" in text


@pytest.mark.parametrize(
    ("crpo", "costs", "steps", "verdict"),
    [
        (30, (0.5, 0.5), 1_000, CONFIRMED),
        (10, (0.5, 0.5), 1_000, REFUTED),
        (20, (0.5, 0.5), 1_000, UNDECIDED),
        (30, (9.0, 0.5), 1_000, REFUTED),
        (30, (9.0, 9.0), 1_000, UNDECIDED),
        (30, (0.5, 0.5), 1_100, CONFIRMED),
        (30, (0.5, 0.5), 1_200, UNDECIDED),
    ],
)
def test_claims_can_fail(write, crpo, costs, steps, verdict):
    """By returns, by limits; not where both are outside them, nor where one had more steps."""
    ours = learning_result("drone", "awavo", 20 + AROUND, cost=costs[1])
    theirs = learning_result("drone", "crpo", crpo + AROUND, cost=costs[0], steps=steps)
    entries, _ = load_method_results(read_results(write(ours, theirs), "learning"))
    (found,) = check_claims([compare_task(entries, FACTS)])
    assert found.verdict == verdict
    assert verdict in claims_text([found])
    assert found.reason.endswith(f"; {steps:,} and 1,000 steps")


def test_the_papers_sentences_are_all_there():
    pairs = {(claim.better, claim.worse, task) for claim in CLAIMS for task in claim.tasks}
    assert len(pairs) == sum(len(claim.tasks) for claim in CLAIMS) == 29
    # Of two methods on a task it says one thing.
    assert not {(worse, better, task) for better, worse, task in pairs} & pairs


def test_blocks_of_seeds_are_put_together_once(write):
    first = learning_result("cartpole", "awavo", [1.0, 2.0], seeds=[0, 1])
    again = learning_result("cartpole", "awavo", [9.0, 3.0], seeds=[1, 2])
    entries, notes = load_method_results(read_results(write(first, again), "learning"))
    assert entries[0].seeds == [0, 1, 2]
    assert entries[0].final.returns.tolist() == [1.0, 2.0, 3.0]
    assert notes == []


def test_settings_of_the_budget_come_first(write):
    old = learning_result("cartpole", "awavo", [1.0] * 10, family="cartpole-awavo-old")
    new = learning_result("cartpole", "awavo", [2.0] * 5, family="cartpole-awavo-new")
    old["rows"][0]["settings"], new["rows"][0]["settings"] = {"margin": 0.3}, {"margin": 0.1, "gone": 1}
    folder = write(old, new)
    settings = {"task": "cartpole", "algo": "awavo", "steps": 1000, "cost_limits": [30, 10]}
    job = Job("learning", "x", {**settings, "options": {"margin": 0.1, "added": 2}}, (0,))
    entries, notes = load_method_results(read_results(folder, "learning"), [job])
    assert entries[0].final.returns[0] == 2.0
    assert notes == ["cartpole, awavo: 'cartpole-awavo-old' was left out for 'cartpole-awavo-new'."]
    other = Job("learning", "x", {**settings, "options": {"margin": 0.2}}, (0,))
    entries, notes = load_method_results(read_results(folder, "learning"), [other])
    assert entries[0].final.returns[0] == 1.0
    assert any("other settings than those of this budget: awavo on cartpole" in note for note in notes)


def test_scores_of_violating_seeds_are_zero(write):
    found = [compared(write, learning_result("cartpole", "awavo", [90.0] * 10, cost=c)) for c in (1.0, 99.0)]
    facts = {"cartpole": FACTS}
    assert pool_scores(found[:1], facts)[0].iqm.value == pytest.approx(1.0)
    assert pool_scores(found[1:], facts)[0].iqm.value == 0.0


def test_half_of_the_seeds_decide_the_steps(write):
    half = compared(write, learning_result("cartpole", "awavo", [100.0] * 5 + [10.0] * 5)).standings[0]
    assert half.good.value == half.settled == 1000.0
    fewer = compared(write, learning_result("cartpole", "awavo", [100.0] * 4 + [10.0] * 6)).standings[0]
    assert math.isinf(fewer.good.value)
    assert math.isinf(fewer.settled)
