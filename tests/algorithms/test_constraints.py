"""The constraint estimate and the weights that answer it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awavo.algorithms import constraints
from awavo.algorithms.constraints import (
    control_weights,
    cost_error,
    cost_rates,
    count_costs,
    empty_profile,
    estimate_costs,
    standard_error,
    with_greedy_excess,
)
from awavo.types import Rollout

HORIZON, ENVS = 40, 8
count = jax.jit(lambda profile, rollout: count_costs(profile, rollout, HORIZON, ENVS))


def play(seed, steps, hazard, rate, ages=None, memory=None):
    """`steps` of environments whose costs and ends depend on the age of the episode, in rollouts of 5 steps."""
    rng = np.random.default_rng(seed)
    age, total = np.zeros(ENVS, int) if ages is None else ages.copy(), np.zeros(ENVS)
    profile, finished = empty_profile(1, HORIZON) if memory is None else memory, []
    for _ in range(steps // 5):
        rows = []
        for _ in range(5):
            cost = (rng.uniform(size=ENVS) < rate[age]).astype(np.float32)
            total, age = total + cost, age + 1
            ended = rng.uniform(size=ENVS) < hazard
            cut = ~ended & (age == HORIZON)
            rows.append((cost, ended, cut, total.copy(), age.copy()))
            finished += list(total[ended | cut])
            total, age = np.where(ended | cut, 0.0, total), np.where(ended | cut, 0, age)
        cost, ended, cut, totals, length = (np.stack(x) for x in zip(*rows, strict=True))
        zero = np.zeros((5, ENVS), np.float32)
        rollout = Rollout(zero[..., None], zero, zero, zero, cost[..., None], ended, cut, zero[..., None], zero,
                          totals[..., None].astype(np.float32), length.astype(np.int32))  # fmt: skip
        profile = count(profile, rollout)
    return profile, np.asarray(finished)


@pytest.mark.parametrize("hazard", [0.0, 0.05])
def test_the_estimate_is_the_mean_cost_of_an_episode(hazard):
    """Costs fall at one age only, as where environments run in step; episodes end early or not."""
    rate = np.where(np.arange(HORIZON) < 10, 0.8, 0.05)
    profile, finished = play(0, 4000, hazard, rate)
    expected = float(sum((1 - hazard) ** t * rate[t] for t in range(HORIZON)))
    assert float(estimate_costs(profile, HORIZON)[0]) == pytest.approx(expected, rel=0.35)
    assert float(np.mean(finished)) == pytest.approx(expected, rel=0.1)
    many = [float(estimate_costs(play(s, 400, hazard, rate)[0], HORIZON)[0]) for s in range(12)]
    assert float(np.mean(many)) == pytest.approx(expected, rel=0.1)


def test_the_mean_cost_of_a_step_is_that_of_a_whole_life():
    """Young steps cost most; lives that end early have more of them."""
    rate = np.where(np.arange(HORIZON) < 10, 0.8, 0.05)
    for hazard in (0.0, 0.05):
        alive = (1 - hazard) ** np.arange(HORIZON)
        many = [float(cost_rates(play(s, 400, hazard, rate)[0], HORIZON)[0]) for s in range(12)]
        assert float(np.mean(many)) == pytest.approx(alive @ rate / alive.sum(), rel=0.1)
    np.testing.assert_array_equal(cost_rates(empty_profile(2, HORIZON), HORIZON), [0.0, 0.0])


def test_episodes_cut_short_are_no_episodes():
    """A cut episode cost less than a whole one: it must not shrink the error of the mean."""
    rate = np.full(HORIZON, 0.5)
    profile, finished = play(0, 400, 0.0, rate)
    zero = np.zeros((5, ENVS), np.float32)
    ages = np.broadcast_to(np.arange(1, 6)[:, None], (5, ENVS)).astype(np.int32)
    last = np.zeros((5, ENVS), bool)
    last[-1] = True
    cut = Rollout(zero[..., None], zero, zero, zero, zero[..., None], last & False, last, zero[..., None], zero,
                  zero[..., None], ages)  # fmt: skip
    after = count(profile, cut)
    assert len(finished) > 0
    assert float(after.episodes) == float(profile.episodes) > 0
    assert float(standard_error(after)[0]) == float(standard_error(profile)[0])


def test_the_greedy_policy_raises_the_estimate_by_more_than_its_error_only():
    rate = np.full(HORIZON, 0.5)
    profile = play(1, 400, 0.0, rate)[0]
    own, error = float(estimate_costs(profile, HORIZON)[0]), float(standard_error(profile)[0])
    assert error > 0
    raised = lambda noisy: float(with_greedy_excess(jnp.asarray([noisy]), profile, HORIZON)[0])  # noqa: E731
    assert raised(own + 1) == pytest.approx(own + 1)
    assert raised(own - error / 2) == pytest.approx(own - error / 2)
    assert raised(own - 3 * error) == pytest.approx(own - error)


def test_the_estimate_does_not_wait_for_an_episode_to_end():
    """Costs begin: five steps later, far from any episode's end, the estimate has risen."""
    rate = np.zeros(HORIZON)
    profile, _ = play(0, 400, 0.0, rate)
    assert float(estimate_costs(profile, HORIZON)[0]) == 0.0
    after, finished = play(1, 5, 0.0, rate + 1.0, memory=profile)
    assert len(finished) == 0
    assert float(estimate_costs(after, HORIZON)[0]) > 0.5


def test_the_estimate_does_not_swing_with_environments_in_step():
    """All costs in the first quarter: whatever the age the environments are at, the estimate stays."""
    rate = np.where(np.arange(HORIZON) < 10, 1.0, 0.0)
    found = [float(estimate_costs(play(0, steps, 0.0, rate)[0], HORIZON)[0]) for steps in range(400, 440, 5)]
    np.testing.assert_allclose(found, 10.0, rtol=0.02)


def test_the_standard_error_is_that_of_the_episodes_remembered():
    rate = np.full(HORIZON, 0.3)
    profile, finished = play(3, 4000, 0.0, rate)
    episodes = float(profile.episodes)
    assert constraints.MEMORY * ENVS * 0.6 <= episodes <= constraints.MEMORY * ENVS * 1.01
    assert float(standard_error(profile)[0]) == pytest.approx(np.std(finished) / np.sqrt(episodes), rel=0.5)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(0.0, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 0.9))
def test_the_error_is_free_of_scale(scale, level, deviation, margin):
    limits = jnp.ones(1)
    one = cost_error(level * limits, deviation * limits, limits, margin, 4)
    many = cost_error(scale * level * limits, scale * deviation * limits, scale * limits, margin, 4)
    np.testing.assert_allclose(one, many, atol=1e-4)
    assert -1.0 <= float(one[0]) <= 1.0


def test_a_limit_of_zero_is_exceeded_by_any_cost():
    zero = jnp.zeros(1)
    assert float(cost_error(zero, zero, zero, 0.1, 4)[0]) == 0.0
    assert float(cost_error(zero + 0.01, zero, zero, 0.1, 4)[0]) == 1.0


def test_doubt_lowers_the_aim_but_never_by_more_than_half_of_the_limit():
    limit = jnp.full(1, 10.0)
    aims = [10.0 * (1 - 0.1) - float(9.0 - 10.0 * e[0]) for e in
            (cost_error(jnp.full(1, 9.0), jnp.full(1, d), limit, 0.1, 4) for d in (0.0, 2.0, 100.0))]  # fmt: skip
    np.testing.assert_allclose(aims, [0.0, constraints.CAUTION * 2.0, 5.0], atol=1e-5)


def test_weights_integrate_the_error_and_are_never_negative():
    integral = jnp.zeros(2)
    for _ in range(4):
        integral, w = control_weights(integral, jnp.array([1.0, -1.0]), 0.5)
    np.testing.assert_allclose(integral, [4 * 0.5 * constraints.INTEGRAL, 0.0], rtol=1e-6)
    np.testing.assert_allclose(w, [2 * constraints.INTEGRAL + constraints.PROPORTIONAL, 0.0], rtol=1e-6)
    for _ in range(20):
        integral, w = control_weights(integral, jnp.full(2, -0.5), 1.0)
    np.testing.assert_array_equal(w, [0.0, 0.0])


def test_a_weight_that_grew_large_falls_in_proportion_to_itself():
    """Otherwise it outlasts the violation by as long as it grew: on CartPole the pole falls for want of a reward."""
    below = jnp.array([-0.5, -0.5, 0.5])
    after, _ = control_weights(jnp.array([4.0, 0.5, 4.0]), below, 1.0)
    np.testing.assert_allclose(after, [4.0 - 0.25 * 0.5 * 4.0, 0.5 - 0.25 * 0.5, 4.0 + 0.25 * 0.5])


def test_many_episodes_need_less_in_reserve():
    estimate, doubt, limits = jnp.array([8.0]), jnp.array([1.0]), jnp.array([10.0])
    few, many = (float(cost_error(estimate, doubt, limits, 0.1, n)[0]) for n in (4, 16))
    np.testing.assert_allclose([few, many], [0.0, -0.05], atol=1e-6)


def test_with_patience_only_those_near_their_limit_are_answered_slowly():
    limits, doubt = jnp.full(2, 10.0), jnp.zeros(2)
    costs = jnp.array([60.0, 19.0])  # six times the limit, and not twice
    errors = [cost_error(costs, doubt, limits, 0.1, 16, patience) for patience in (1.0, 5.0)]
    np.testing.assert_allclose(errors, [[1.0, 1.0], [5.0, 1.0]], rtol=1e-6)
    (fast, w_fast), (slow, w_slow) = (
        control_weights(jnp.zeros(2), error, 0.5, patience) for error, patience in zip(errors, (1.0, 5.0), strict=True)
    )
    np.testing.assert_allclose(slow / fast, [1.0, 0.2], rtol=1e-6)
    np.testing.assert_allclose(w_slow / w_fast, [1.0, 0.2], rtol=1e-6)


def test_a_patient_weight_falls_as_fast_as_it_rose_where_nothing_is_spent():
    """Five times the limit and nothing at all are answered alike, and near the aim both ways slowly."""
    after, _ = control_weights(jnp.ones(4), jnp.array([5.0, -1.0, 0.02, -0.02]), 1.0, 5.0)
    steps = np.asarray(after) - 1.0
    np.testing.assert_allclose(steps[:2], [constraints.INTEGRAL, -constraints.INTEGRAL], rtol=1e-5)
    np.testing.assert_allclose(steps[2:], [0.02 * constraints.INTEGRAL / 5, -0.02 * constraints.INTEGRAL / 5], rtol=0.1)
