"""Rates, tabular ORPO-DR, policy improvement, the schedule: each shown to fail where it should."""

import numpy as np
import pytest

from awavo.errors import InputError
from awavo.formal.cmdp import random_cmdp, solve
from awavo.formal.rates import certify_learning_rate, fit_rate, rate_verdict
from awavo.formal.schedule import Constants, iterations_for, schedule
from awavo.formal.tabular_orpo import certify_improvement, invalid_utility, tabular_orpo

HORIZONS = np.array([100.0, 300, 1_000, 3_000, 10_000])


def errors(curve, noise=0.03):
    rng = np.random.default_rng(0)
    return curve(HORIZONS) * np.exp(noise * rng.standard_normal((10, 5, len(HORIZONS))))


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        (lambda t: t**-0.5, "supported"),
        (lambda t: t**-1.0, "supported"),
        (lambda t: t**-0.3, "refuted"),
        (lambda t: t**-0.5 + 0.1, "refuted"),
        (lambda t: 0 * t + 1, "refuted"),
    ],
)
def test_slopes_of_known_curves(curve, verdict):
    fit = fit_rate(HORIZONS, errors(curve), draws=400)
    assert rate_verdict(fit.slope_low, fit.slope_high) == verdict
    assert fit.slope_low <= fit.slope <= fit.slope_high


def test_the_floor_is_found():
    fit = fit_rate(HORIZONS, errors(lambda t: t**-0.5 + 0.1), draws=400)
    assert fit.floor_low <= 0.1 <= fit.floor_high
    assert fit_rate(HORIZONS, errors(lambda t: t**-0.5, 0.0), draws=50).floor == pytest.approx(0, abs=1e-6)


def test_noisy_slopes_stay_undecided():
    fit = fit_rate(HORIZONS, errors(lambda t: t**-0.45, 3.0)[:2, :2], draws=400)
    assert rate_verdict(fit.slope_low, fit.slope_high) == "undecided"


def gaps(horizon, **options):
    cmdps = [random_cmdp(seed) for seed in range(6)]
    out = tabular_orpo(cmdps, horizon, seed=0, tolerance=1 / np.sqrt(horizon), **options)
    best = np.array([solve(c).value for c in cmdps])
    over = out.mean_totals[:, 1:] - np.array([c.limits for c in cmdps])
    return (best - out.mean_totals[:, 0]).mean(), np.maximum(over, 0).max(1).mean()


def test_gap_and_violation_fall_with_the_schedule_and_not_with_an_invalid_operator():
    short, long = (gaps(t, step_size=10 / np.sqrt(t), samples=500) for t in (50, 800))
    assert 0 < long[0] < 0.4 * short[0]
    assert long[1] < 0.5 * short[1]
    invalid = gaps(800, step_size=10 / np.sqrt(800), samples=500, utility=invalid_utility)
    assert invalid[0] > 10 * long[0]


def test_a_large_constant_step_does_not_converge():
    short, long = (gaps(t, step_size=20.0)[0] for t in (50, 400))
    assert long > 0.6 * short


def test_policy_improvement_holds_in_the_reward_branch_and_is_given_up_in_the_other():
    found = certify_improvement([random_cmdp(seed) for seed in range(3)], iterations=120)
    assert found.verdict == "supported"
    by_name = {e.name: e.value for e in found.evidence}
    assert by_name["rectified steps that gave reward up"] > 0
    assert by_name["reward steps"] > 50


def test_an_invalid_operator_breaks_policy_improvement():
    found = certify_improvement([random_cmdp(0)], iterations=60, utility=invalid_utility)
    assert found.verdict == "refuted"
    assert found.counterexample["change"] < 0


def test_only_if_is_false_a_jump_keeps_policy_improvement():
    """Proposition 3 says 'if and only if'; a discontinuous but increasing operator improves all the same."""
    jump = lambda q, highest: q + 3.0 * (q > 0.5 * highest)  # noqa: E731
    assert (
        certify_improvement([random_cmdp(seed) for seed in range(3)], iterations=80, utility=jump).verdict
        == "supported"
    )


def test_schedule_both_ways():
    forward = schedule(0.9, 128, 2, 10_000)
    assert (forward.td_steps_statement, forward.td_steps_proof) == (4048, 1280)
    assert forward.td_steps == 4048
    assert forward.step_size == pytest.approx(0.01)
    assert forward.bound == pytest.approx(forward.optimisation + forward.floor + forward.transient)
    back = iterations_for(forward.bound, 0.9, 128, 2)
    assert back.iterations == pytest.approx(10_000, rel=1e-3)
    assert back.bound <= forward.bound
    assert schedule(0.9, 128, 2, back.iterations - 10).bound > forward.bound
    assert schedule(0.9, 128, 2, 100, constants=Constants(c5=3.0)).optimisation == pytest.approx(3.0)


def test_a_gap_below_the_floor_is_refused():
    floor = schedule(0.9, 128, 2, 1).floor
    with pytest.raises(InputError, match="cannot be reached"):
        iterations_for(floor, 0.9, 128, 2)
    with pytest.raises(InputError, match="discount"):
        schedule(1.0, 128, 2, 10)


@pytest.mark.parametrize(("power", "verdict"), [(-1.0, "supported"), (-0.2, "refuted")])
def test_learning_curves(power, verdict):
    steps = np.arange(1, 201) * 500.0
    rng = np.random.default_rng(0)
    curves = 100 - 80 * (steps / steps[0]) ** power + 0.1 * rng.standard_normal((6, 200))
    found = certify_learning_rate(steps, curves, 100.0, "known")
    assert found.verdict == verdict
    assert certify_learning_rate(steps, curves[:1], 100.0, "known").verdict == "undecided"


def test_a_policy_stuck_halfway_is_not_called_convergent():
    """Its gap to its own best return closes fast; what the optimum is nobody knows."""
    steps = np.linspace(1e3, 1e5, 100)
    stuck = 50.0 - 40.0 * np.exp(-steps / 1e3) + 1e-3 * np.random.default_rng(0).normal(size=(5, 100))
    best = float(stuck.max())
    assert certify_learning_rate(steps, stuck, best, "known").verdict == "supported"
    found = certify_learning_rate(steps, stuck, best, "the best return of the run", known=False)
    assert found.verdict == "undecided"
    assert "own best return" in found.reason


def test_curves_of_which_too_little_is_known_have_no_exponent():
    curves = np.full((2, 100), np.nan)
    with pytest.raises(InputError, match="expected 3 or more steps"):
        certify_learning_rate(np.linspace(1, 100, 100), curves, 1.0, "known")
