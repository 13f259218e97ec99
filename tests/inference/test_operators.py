import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awavo.errors import InputError, UnknownNameError
from awavo.inference.operators import check_operator, make_operator, operator_from_maps

NAMES = ("log", "affine", "power")
bounds = st.tuples(st.floats(-100, 100), st.floats(0.1, 500)).map(lambda t: (t[0], t[0] + t[1]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0.01, 0.15, 1.0])
@pytest.mark.parametrize("kappa", [0.1, 1.0, 3.0])
def test_shipped_operators_pass_their_check(name, temperature, kappa):
    check_operator(make_operator(name, temperature=temperature, kappa=kappa))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(range_=bounds, share=st.floats(0.01, 1.0))
def test_maps_are_inverse_and_ordered(name, range_, share):
    low, high = range_
    operator = make_operator(name, temperature=0.3, kappa=0.5)
    value = low + share * (high - low)
    log_p = operator.reward_log_likelihood(value, low, high)
    assert log_p <= 1e-5
    np.testing.assert_allclose(operator.reward(log_p, low, high), value, rtol=1e-4, atol=1e-3 * (high - low))
    np.testing.assert_allclose(
        operator.cost(operator.cost_log_likelihood(value, low, high), low, high),
        value,
        rtol=1e-4,
        atol=1e-3 * (high - low),
    )
    better = min(value + 0.05 * (high - low), high)
    assert operator.reward_log_likelihood(better, low, high) >= log_p
    assert operator.cost_log_likelihood(better, low, high) <= operator.cost_log_likelihood(value, low, high)


@pytest.mark.parametrize("name", NAMES)
def test_best_outcome_has_likelihood_one(name):
    operator = make_operator(name)
    assert float(operator.reward_log_likelihood(3.0, -1.0, 3.0)) == pytest.approx(0, abs=1e-6)
    assert float(operator.cost_log_likelihood(-1.0, -1.0, 3.0)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_point_the_right_way(name):
    operator = make_operator(name)
    assert jax.grad(operator.reward_log_likelihood)(1.0, 0.0, 2.0) > 0
    assert jax.grad(operator.cost_log_likelihood)(1.0, 0.0, 2.0) < 0


GOOD = (lambda p: p, lambda r: r, lambda p: 1 - p, lambda g: 1 - g)
BAD = {
    "not monotone": ((lambda p: 4 * p * (1 - p), *GOOD[1:]), "increase"),
    "increasing cost": ((*GOOD[:2], lambda p: p, lambda g: g), "decrease"),
    "range too small": ((lambda p: p / 2, lambda r: 2 * r, *GOOD[2:]), "covers too little"),
    "jump": ((lambda p: jnp.where(p < 0.5, p / 4, p), *GOOD[1:]), "jumps"),
    "not inverse": ((GOOD[0], lambda r: r**2, *GOOD[2:]), "not inverse"),
    "not finite": ((lambda p: jnp.where(p > 0.9, jnp.nan, p), *GOOD[1:]), "not finite"),
}


def test_a_good_user_operator_is_taken():
    assert operator_from_maps(*GOOD).name == "user"


@pytest.mark.parametrize("case", BAD)
def test_bad_user_operators_are_refused(case):
    maps, reason = BAD[case]
    with pytest.raises(InputError, match=reason):
        operator_from_maps(*maps)


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean 'affine'"):
        make_operator("afine")


def test_the_logistic_likelihood_is_flat_below_the_budget_and_falls_above():
    """Slopes of log p(O_g) far below, at and far above the budget B: 0, -1/(2S), -1/S; p = 1 one range below it."""
    operator = make_operator("logistic")
    slope = jax.grad(lambda g: operator.cost_log_likelihood(g, 3.0, 5.0))
    np.testing.assert_allclose([slope(g) for g in (-97.0, 3.0, 103.0)], [0.0, -0.25, -0.5], atol=1e-6)
    np.testing.assert_allclose(operator.cost_log_likelihood(1.0, 3.0, 5.0), 0.0, atol=1e-6)
    assert not operator.bounded


@pytest.mark.parametrize("span", [30.0, 3000.0])
def test_the_logistic_likelihood_bends_within_its_budget_however_wide_the_range(span):
    """No cost at all is pushed down by a quarter of the full slope, not by half of it: p = 1 there."""
    operator = make_operator("logistic")
    slope = jax.grad(lambda g: operator.cost_log_likelihood(g, 3.0, 3.0 + span))
    full = -1.0 / span
    np.testing.assert_allclose([slope(g) for g in (-97.0, 3.0, 103.0)], [0.0, full / 2, full], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(slope(0.0), full * jax.nn.sigmoid(-1.0), rtol=1e-5)
    np.testing.assert_allclose(operator.cost_log_likelihood(0.0, 3.0, 3.0 + span), 0.0, atol=1e-6)


def test_a_budget_of_zero_bends_over_the_whole_range():
    operator = make_operator("logistic")
    slope = jax.grad(lambda g: operator.cost_log_likelihood(g, 0.0, 2.0))
    np.testing.assert_allclose([slope(0.0), slope(100.0)], [-0.25, -0.5], rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(range_=bounds, share=st.floats(-0.9, 20.0))
def test_the_logistic_maps_are_inverse_beyond_their_range(range_, share):
    low, high = range_
    # Further below its budget than the bend is wide, a cost cannot be told from others by its likelihood in float32.
    width = high - low
    bend = min(max(low, 1e-3 * width), width) if low > 0 else width
    value = low + share * (width if share > 0 else bend)
    operator = make_operator("logistic")
    log_p = operator.cost_log_likelihood(value, low, high)
    np.testing.assert_allclose(operator.cost(log_p, low, high), value, rtol=1e-3, atol=1e-3 * (high - low))
