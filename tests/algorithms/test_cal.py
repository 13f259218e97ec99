"""CAL: the upper bound of the critics, the augmented price, the budget, the multiplier's direction."""

import jax
import jax.numpy as jnp
import numpy as np
from toys import CONTINUOUS

from awavo.algorithms.cal import CalConfig, augmented_prices, discounted_budget, upper_bound

# Limits of 5 in episodes of 10 steps: 0.5 a step.
BUDGET = 0.5 * sum(0.99**t for t in range(10))


def test_the_upper_bound_is_the_mean_and_k_standard_deviations():
    members = np.random.default_rng(0).normal(size=(4, 6, 2)).astype(np.float32)
    wanted = members.mean(0) + 0.5 * members.std(0, ddof=1)
    np.testing.assert_allclose(upper_bound(members, 0.5), wanted, rtol=1e-5)
    np.testing.assert_allclose(upper_bound(members, 0.0), members.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(upper_bound(members[:1], 0.5), members[0])


def test_critics_that_agree_have_a_gradient():
    slope = jax.grad(lambda x: upper_bound(x, 0.5).sum())(jnp.ones((4, 1, 1)))
    np.testing.assert_allclose(slope, 0.25)


def test_the_budget_is_an_even_share_discounted():
    np.testing.assert_allclose(discounted_budget(CONTINUOUS, 0.99), BUDGET, rtol=1e-4)


def test_without_a_penalty_the_price_is_the_multiplier():
    prices = augmented_prices(CONTINUOUS, CalConfig(penalty=0.0, multiplier_initial=0.7))
    for excess in (-100.0, 0.0, 100.0):
        _, price, divisor = prices.prices(prices.init(), jnp.full((3, 2), BUDGET + excess))
        np.testing.assert_allclose([*price, divisor], [0.7, 0.7, 1.0], rtol=1e-5)


def test_the_penalty_adds_the_excess_and_stops_at_zero():
    prices = augmented_prices(CONTINUOUS, CalConfig(penalty=10.0, multiplier_initial=0.7))
    # Over a batch the mean counts: 0.5 above the budget of the first cost, 0.04 below that of the second.
    values = BUDGET + np.float32([[0.4, -0.04], [0.6, -0.04]])
    dual, price, _ = prices.prices(prices.init(), jnp.asarray(values, jnp.float32))
    np.testing.assert_allclose(price, [0.7 + 5.0, 0.7 - 0.4], rtol=1e-3)
    assert float(prices.prices(dual, jnp.full((3, 2), BUDGET - 1.0, jnp.float32))[1].max()) == 0.0


def test_a_multiplier_rises_where_the_bound_is_above_its_budget():
    config = CalConfig(multiplier_initial=0.7)
    prices = augmented_prices(CONTINUOUS, config)
    dual, _, _ = prices.prices(prices.init(), BUDGET + jnp.float32([[3.0, -3.0]]))
    change = np.asarray(prices.multipliers(dual)) / 0.7 - 1.0
    np.testing.assert_allclose(change, [config.multiplier_lr, -config.multiplier_lr], rtol=1e-2)
