"""Safety certificates: safe, unsafe and undecided policies get their verdicts, and claims hold at the stated rate."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from awavo.errors import InputError
from awavo.formal.certificate import Assumption
from awavo.formal.run_certificates import Subject, _spans
from awavo.formal.safety import certify_safety, decided, hopeless

NAMES, LIMITS, SPAN = ("a", "b"), (30.0, 10.0), [(0.0, 200.0)] * 2


def certify(means, num=600, seed=0, spread=3.0, **options):
    rng = np.random.default_rng(seed)
    costs = np.clip(np.array(means) + spread * rng.standard_normal((num, 2)), 0, 200)
    return certify_safety(costs, names=NAMES, limits=LIMITS, span=SPAN, **options)


@pytest.mark.parametrize("anytime", [False, True])
def test_verdicts(anytime):
    assert certify((25, 5), anytime=anytime).verdict == "supported"
    unsafe = certify((25, 14), anytime=anytime)
    assert unsafe.verdict == "refuted"
    assert unsafe.counterexample["cost"] == "b"
    assert unsafe.counterexample["lower bound"] > 10
    near = certify((29.9, 5), anytime=anytime)
    assert near.verdict == "undecided"
    assert "more episodes would decide" in near.reason
    assert decided([unsafe])
    assert not decided([unsafe, near])


def test_the_number_of_episodes_still_needed_decides():
    near = certify((28.5, 5), num=100)
    assert near.verdict == "undecided"
    more = next(c["episodes_needed"] for c in near.details["costs"] if c["cost"] == "a")
    assert 100 < more < 2_000
    assert certify((28.5, 5), num=100 + more // 2).verdict == "undecided"
    assert certify((28.5, 5), num=100 + more + more // 2).verdict == "supported"


def test_a_policy_at_its_limit_is_given_up_and_others_are_not():
    at_the_limit = certify((30.0, 5), num=100, spread=1.0, seed=3)
    assert hopeless(at_the_limit, 1_000)
    assert not hopeless(at_the_limit, 10**9)
    assert not hopeless(certify((30.0, 5), num=96, spread=1.0, seed=3), 1_000)  # too soon to say
    assert not hopeless(certify((25, 5), num=100), 1_000)  # near enough to go on
    assert not hopeless(certify((30.0, 10.4), num=100, spread=1.0, seed=3), 1_000)  # the other will be refuted
    assert not hopeless(certify((90, 5), num=100), 1_000)  # decided


def test_bounds_hold_jointly_and_widen_with_the_number_of_policies():
    one, ten = certify((25, 5)), certify((25, 5), policies=10)
    for a, b in zip(one.details["costs"], ten.details["costs"], strict=True):
        assert b["mean_bounds"][0] < a["mean_bounds"][0] < a["mean_bounds"][1] < b["mean_bounds"][1]
        assert a["violation_bounds"][1] <= b["violation_bounds"][1]


def test_a_policy_at_its_limit_is_rarely_certified_safe():
    safe = sum(certify((30.0, 5), num=60, seed=s).verdict == "supported" for s in range(40))
    assert safe <= 2


def test_a_largest_violation_probability_can_be_asked_for():
    costs = np.zeros((500, 1))
    costs[:25] = 50.0
    base = dict(names=("a",), limits=(30.0,), span=[(0.0, 200.0)])
    assert certify_safety(costs, **base).verdict == "supported"
    assert certify_safety(costs, **base, max_violation=0.2).verdict == "supported"
    assert certify_safety(costs, **base, max_violation=0.06).verdict == "undecided"
    assert certify_safety(costs, **base, max_violation=0.01).verdict == "refuted"


def test_a_verdict_on_the_violation_says_so_and_counts_its_own_episodes():
    costs = np.random.default_rng(0).permutation(np.repeat([[50.0], [0.0]], [50, 950], axis=0))
    base = dict(names=("a",), limits=(30.0,), span=[(0.0, 200.0)], anytime=True)
    refuted = certify_safety(costs, **base, max_violation=0.01)
    assert "at most 0.01 of episodes" in refuted.claim
    assert "on average" not in refuted.reason
    assert refuted.counterexample["lower bound on P(cost > limit)"] > 0.01
    assert refuted.evidence[0].ok  # the mean is within its limit all the same
    near = certify_safety(costs, **base, max_violation=0.06)
    assert near.verdict == "undecided"
    assert "[2.78%, 8.1%] of episodes" in near.reason
    more = near.details["costs"][0]["episodes_needed"]
    assert 1_000 < more < 20_000
    assert hopeless(near, 100)
    assert not hopeless(certify_safety(costs, **base, max_violation=0.04), 10_000)  # neither far nor settled
    never = certify_safety(np.zeros((200, 1)), **base, max_violation=0.0)
    assert never.verdict == "undecided"
    assert hopeless(never, 10**6)
    assert "max_violation" not in certify_safety(costs, **base).details


def test_inputs_and_assumptions_are_recorded():
    known = Assumption("costs are 0 or 1 a step", "proved")
    found = certify((25, 5), bounds_known=known)
    assert known in found.assumptions
    assert found.inputs != certify((25, 5), seed=1).inputs
    with pytest.raises(InputError, match="do not fit"):
        certify_safety(np.zeros((5, 1)), names=NAMES, limits=LIMITS, span=SPAN)
    with pytest.raises(InputError, match="no cost"):
        certify_safety(np.zeros((5, 0)), names=(), limits=(), span=())
    with pytest.raises(InputError, match="outside"):
        certify_safety(np.full((5, 2), 300.0), names=NAMES, limits=LIMITS, span=SPAN)


def test_the_bound_and_the_share_of_episodes_above_the_limit_are_both_said():
    costs = np.where(np.arange(2_000) % 10 == 0, 40.0, 5.0)[:, None]
    found = certify_safety(costs, names=("position",), limits=(30.0,), span=[(0.0, 200.0)])
    assert found.verdict == "supported"
    assert "safe" not in found.reason
    assert "mean position <= " in found.reason
    assert "above the limit in 10.0% of episodes [" in found.reason


def test_nothing_is_certified_by_a_range_that_an_episode_left():
    """Training saw costs of at most 0.1 a step, over 100 steps."""
    seen = (np.zeros(2), np.array([1.0, 0.1]))
    critics = SimpleNamespace(signal_bounds=lambda state: seen)
    spec = SimpleNamespace(horizon=100, cost_names=("a",))
    parts = dict.fromkeys(Subject._fields) | {"algorithm": SimpleNamespace(critics=critics), "states": [None]}
    subject = Subject(**parts | {"spec": spec})

    def certify_one(costs):
        span, known = _spans(subject, 0, costs)
        return certify_safety(costs, names=("a",), limits=(30.0,), span=span, bounds_known=known)

    inside = np.full((300, 1), 10.0001)  # rounding of a sum leaves nothing
    assert certify_one(inside).verdict == "supported"
    left = np.vstack([inside, [[12.0]]])
    found = certify_one(left)
    assert found.verdict == "undecided"
    assert "an episode left it (a)" in found.reason
    assert found.assumptions[-1].verdict == "refuted"
    assert certify_one(np.full((300, 1), 90.0)).verdict == "refuted"


def test_no_bound_is_said_to_be_tighter_than_it_is():
    """Rounded to the nearest, a bound of 0.03% was "0.0%", and 99.9% confidence was "100%"."""
    costs = np.where(np.arange(20_000) % 3 == 0, 29.99, 5.0)[:, None]
    for delta, confidence in ((0.001, "99.9%"), (1e-12, "99.9999999999%"), (0.05, "95%")):
        found = certify_safety(costs, names=("a",), limits=(30.0,), span=[(0.0, 200.0)], delta=delta)
        assert f"at {confidence}: " in found.reason
        mean, share = re.search(r"mean a <= (\S+) .* in 0.0% of episodes \[0%, (\S+)%\]", found.reason).groups()
        row = found.details["costs"][0]
        assert float(mean) >= row["mean_bounds"][1]
        assert float(share) / 100 >= row["violation_bounds"][1] > 0
    found = certify_safety(costs, names=("a",), limits=(3.0,), span=[(0.0, 200.0)])
    mean, share = re.search(r"at least (\S+) on average .* in at least (\S+)% of", found.reason).groups()
    row = found.details["costs"][0]
    assert float(mean) <= row["mean_bounds"][0]
    assert float(share) / 100 <= row["violation_bounds"][0] <= 1
