"""The measures against closed forms and their axioms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from awavo.errors import InputError
from awavo.explain.decision import explain_decision
from awavo.explain.factors import Factor, check_factors
from awavo.explain.intervals import nested_draws, quantile_band, resampled_necessity
from awavo.explain.magnitude import debiased_magnitude, resampled_magnitudes
from awavo.explain.measures import (
    coalition_weights,
    influences,
    mean_parts,
    measure_weights,
    necessity,
    shapley,
    total_variation,
)

# One step x' = x + b u + f with cost (x'^2 + r u^2) / 2: the posterior over u is Gaussian with a known mean and spread.
GAIN, PRICE, HEAT = 0.8, 0.5, 0.3


def lq_score(model, u):
    return -0.5 * ((model["x"] + GAIN * u + model["force"]) ** 2 + PRICE * u**2)


def lq_truth(force):
    stiffness = GAIN**2 + PRICE
    return abs(GAIN * force / stiffness), np.sqrt(HEAT / stiffness)


WIND = Factor("wind", lambda m: {**m, "force": 0.0 * m["force"]})


@pytest.mark.parametrize("force", [0.3, 1.0, 2.0])
def test_linear_quadratic_influence_within_two_percent(force):
    shift, spread = lq_truth(force)
    pool = jnp.linspace(-6.0, 6.0, 4001)
    found = explain_decision(lq_score, {"x": 0.4, "force": force}, [WIND], pool, temperature=HEAT)
    assert found.influence["wind"] == pytest.approx(2 * norm.cdf(shift / spread / 2) - 1, rel=0.002)
    drawn = 2.5 * jax.random.normal(jax.random.key(1), (4096,)) if force < 3 else pool
    weigh = norm.pdf(np.asarray(drawn) / 2.5)
    scores = jnp.stack([lq_score({"x": 0.4, "force": f}, drawn) / HEAT - np.log(weigh) for f in (0.0, force)])
    sampled = float(influences(jax.nn.softmax(scores, -1))[0])
    assert sampled == pytest.approx(2 * norm.cdf(shift / spread / 2) - 1, rel=0.02)


@pytest.mark.parametrize("force", [0.5, 1.0, 2.0])
def test_linear_quadratic_magnitude_within_three_percent_after_debiasing(force):
    shift, _ = lq_truth(force)
    debiased, plain = [], []
    for seed in range(24):
        drawn = 2.5 * jax.random.normal(jax.random.key(seed), (512, 1))
        prior = jnp.log(norm.pdf(np.asarray(drawn[:, 0]) / 2.5))
        p, q = (jax.nn.softmax(lq_score({"x": 0.4, "force": f}, drawn[:, 0]) / HEAT - prior) for f in (force, 0.0))
        a, b = debiased_magnitude(jax.random.key(0), drawn, p, q)
        debiased.append(float(a))
        plain.append(float(b))
    assert np.mean(debiased) == pytest.approx(shift, rel=0.03)
    assert np.mean(plain) > np.mean(debiased)


def test_intervals_of_a_magnitude_hold_the_shift():
    """The linear-quadratic case again: the band of a debiased magnitude, and of a dummy's, which is exactly 0."""
    shift, _ = lq_truth(1.0)

    @jax.jit
    def one(key):
        drawn = 2.5 * jax.random.normal(key, (256,))
        prior = -0.5 * (drawn / 2.5) ** 2
        there, gone = (jax.nn.softmax(lq_score({"x": 0.4, "force": f}, drawn) / HEAT - prior) for f in (1.0, 0.0))
        weights = jnp.stack([gone, there, gone, there])
        points = drawn[None, :, None]
        every = nested_draws(key, weights[None], 16, lambda n, w: resampled_magnitudes(key, points, n, w))
        return quantile_band(every[0], every[1:]), debiased_magnitude(key, points[0], there, gone)[0]

    bands, alone = jax.lax.map(one, jax.random.split(jax.random.key(0), 12))
    np.testing.assert_allclose(bands.value[:, 0, 0], alone, rtol=1e-4)
    held = (bands.low[:, 0, 0] <= shift) & (shift <= bands.high[:, 0, 0])
    assert held.mean() > 0.7
    assert float((bands.high - bands.low)[:, 0, 0].mean()) < 0.5 * shift
    assert float(jnp.abs(bands.high[:, 1]).max()) == 0.0


def test_necessity_of_a_candidate_does_not_need_its_own_count():
    weights = coalition_weights(jax.random.normal(jax.random.key(3), (4, 30)), 0.5)
    best = int(jnp.argmax(weights[-1]))
    expected = [float(necessity(weights, i)[best]) for i in range(2)]
    counts = jnp.ones((2, 30)).at[1, best].set(0.0)
    found = resampled_necessity(counts, weights, best)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    less = jnp.stack([weights[2, best] / (1 - weights[2, best]), weights[1, best] / (1 - weights[1, best])])
    whole = weights[3, best] / (1 - weights[3, best])
    np.testing.assert_allclose(found[1], jnp.maximum(0, 1 - less / whole), rtol=1e-4, atol=1e-6)


def test_a_pure_shift_in_space_counts_with_its_length():
    key = jax.random.key(0)
    cloud = jax.random.normal(key, (400, 3))
    move = jnp.array([0.3, -0.4, 1.2])
    points = jnp.concatenate([cloud, cloud + move])
    # Pairs next to each other, so that each half of the pool holds both clouds.
    order = jnp.arange(800).reshape(2, 400).T.reshape(-1, 2, 2).transpose(0, 2, 1).ravel()
    points = points[order]
    second = order >= 400
    p, q = second / 400.0, ~second / 400.0
    value, _ = debiased_magnitude(key, points, p, q, num_slices=60)
    assert float(value) == pytest.approx(1.3, rel=0.03)


def test_removing_nothing_gives_exactly_zero_and_shares_sum():
    pool = jnp.linspace(-3.0, 3.0, 301)
    dummy = Factor("dummy", lambda m: m)
    found = explain_decision(lq_score, {"x": 1.0, "force": 1.0}, [WIND, dummy], pool, temperature=HEAT)
    assert found.influence["dummy"] == 0.0
    assert found.shares["dummy"] == pytest.approx(0.0, abs=1e-7)
    assert sum(found.shares.values()) == pytest.approx(found.together, abs=1e-6)
    assert found.influence["wind"] == pytest.approx(
        float(np.sum(found.weights[-1] * found.necessity["wind"])), abs=1e-5
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(1, 3), st.floats(0.01, 10.0))
def test_axioms_on_any_scores(seed, num, temperature):
    scores = np.random.default_rng(seed).normal(size=(2**num, 40)).astype(np.float32)
    weights = coalition_weights(jnp.asarray(scores), temperature)
    found = influences(weights)
    assert bool(jnp.all((found >= 0) & (found <= 1 + 1e-6)))
    game = total_variation(weights, weights[0])
    np.testing.assert_allclose(float(shapley(game).sum()), float(game[-1]), atol=1e-6)
    # Triangle inequality along the chain full, without 0, ..., nothing: never more together than one after the other.
    chain, mask = 0.0, 2**num - 1
    for i in range(num):
        chain += float(total_variation(weights[mask], weights[mask & ~(1 << i)]))
        mask &= ~(1 << i)
    assert float(measure_weights(weights).together) <= chain + 1e-6
    for i in range(num):
        expected = float(jnp.sum(weights[-1] * necessity(weights, i)))
        assert expected == pytest.approx(float(found[i]), abs=1e-5)


def test_parts_of_the_mean_sum_to_it():
    weights = coalition_weights(jax.random.normal(jax.random.key(0), (4, 50)), 0.5)
    signals = jax.random.normal(jax.random.key(1), (50, 4)) * 100
    parts = mean_parts(weights, signals)
    np.testing.assert_allclose(parts.sum(0), weights[-1] @ signals, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(parts[0], weights[0] @ signals, rtol=1e-5)
    # A second factor that changes nothing has no part, and the first has all of it, with its sign.
    first = weights[jnp.array([0, 1, 0, 1])]
    parts = mean_parts(first, signals)
    np.testing.assert_allclose(parts[1], (weights[1] - weights[0]) @ signals, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(parts[2], 0.0, atol=1e-4)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="no factor"):
        check_factors([])
    with pytest.raises(InputError, match="different names"):
        check_factors([WIND, WIND])
    with pytest.raises(InputError, match="temperature"):
        explain_decision(lq_score, {"x": 0.0, "force": 1.0}, [WIND], jnp.zeros(8), temperature=0.0)
    with pytest.raises(InputError, match="finite"):
        explain_decision(lq_score, {"x": jnp.nan, "force": 1.0}, [WIND], jnp.zeros(8), temperature=1.0)
