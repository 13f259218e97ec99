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

# One program each, not one for each operation.
coalition_weights, influences, mean_parts, measure_weights, shapley, total_variation, resampled_necessity = map(
    jax.jit, (coalition_weights, influences, mean_parts, measure_weights, shapley, total_variation, resampled_necessity)
)
necessity = jax.jit(necessity, static_argnums=1)
softmax = jax.jit(jax.nn.softmax)

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
    pool = np.linspace(-6.0, 6.0, 4001, dtype=np.float32)
    found = explain_decision(lq_score, {"x": 0.4, "force": force}, [WIND], pool, temperature=HEAT)
    assert found.influence["wind"] == pytest.approx(2 * norm.cdf(shift / spread / 2) - 1, rel=0.002)
    drawn = 2.5 * np.random.default_rng(1).normal(size=4096)
    weigh = norm.pdf(drawn / 2.5)
    scores = np.stack([lq_score({"x": 0.4, "force": f}, drawn) / HEAT - np.log(weigh) for f in (0.0, force)])
    sampled = float(np.asarray(influences(softmax(scores)))[0])
    assert sampled == pytest.approx(2 * norm.cdf(shift / spread / 2) - 1, rel=0.02)


@pytest.mark.parametrize("force", [0.5, 1.0, 2.0])
def test_linear_quadratic_magnitude_within_three_percent_after_debiasing(force):
    shift, _ = lq_truth(force)
    debiased, plain = [], []
    for seed in range(24):
        drawn = (2.5 * np.random.default_rng(seed).normal(size=(512, 1))).astype(np.float32)
        prior = np.log(norm.pdf(drawn[:, 0] / 2.5))
        p, q = (softmax(lq_score({"x": 0.4, "force": f}, drawn[:, 0]) / HEAT - prior) for f in (force, 0.0))
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

    bands, alone = jax.device_get(jax.lax.map(one, jax.random.split(jax.random.key(0), 12)))
    np.testing.assert_allclose(bands.value[:, 0, 0], alone, rtol=1e-4)
    held = (bands.low[:, 0, 0] <= shift) & (shift <= bands.high[:, 0, 0])
    assert held.mean() > 0.7
    assert float((bands.high - bands.low)[:, 0, 0].mean()) < 0.5 * shift
    assert np.abs(bands.high[:, 1]).max() == 0.0


def test_necessity_of_a_candidate_does_not_need_its_own_count():
    weights = np.asarray(coalition_weights(np.random.default_rng(3).normal(size=(4, 30)), 0.5))
    best = int(np.argmax(weights[-1]))
    expected = [np.asarray(necessity(weights, i))[best] for i in range(2)]
    counts = np.ones((2, 30), np.float32)
    counts[1, best] = 0.0
    found = np.asarray(resampled_necessity(counts, weights, best))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    less = np.stack([weights[2, best] / (1 - weights[2, best]), weights[1, best] / (1 - weights[1, best])])
    whole = weights[3, best] / (1 - weights[3, best])
    np.testing.assert_allclose(found[1], np.maximum(0, 1 - less / whole), rtol=1e-4, atol=1e-6)


def test_a_pure_shift_in_space_counts_with_its_length():
    key = jax.random.key(0)
    cloud = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    points = np.concatenate([cloud, cloud + np.float32([0.3, -0.4, 1.2])])
    # Pairs next to each other, so that each half of the pool holds both clouds.
    order = np.arange(800).reshape(2, 400).T.reshape(-1, 2, 2).transpose(0, 2, 1).ravel()
    points = points[order]
    second = order >= 400
    p, q = second / 400.0, ~second / 400.0
    value, _ = debiased_magnitude(key, points, p, q, num_slices=60)
    assert float(value) == pytest.approx(1.3, rel=0.03)


def test_removing_nothing_gives_exactly_zero_and_shares_sum():
    pool = np.linspace(-3.0, 3.0, 301, dtype=np.float32)
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
    weights = np.asarray(coalition_weights(scores, temperature))
    found = np.asarray(influences(weights))
    assert np.all((found >= 0) & (found <= 1 + 1e-6))
    game = np.asarray(total_variation(weights, weights[0]))
    np.testing.assert_allclose(np.asarray(shapley(game)).sum(), game[-1], atol=1e-6)
    # Triangle inequality along the chain full, without 0, ..., nothing: never more together than one after the other.
    chain, mask = 0.0, 2**num - 1
    for i in range(num):
        chain += float(total_variation(weights[mask], weights[mask & ~(1 << i)]))
        mask &= ~(1 << i)
    assert float(measure_weights(weights).together) <= chain + 1e-6
    for i in range(num):
        expected = np.sum(weights[-1] * np.asarray(necessity(weights, i)))
        assert expected == pytest.approx(found[i], abs=1e-5)


def test_parts_of_the_mean_sum_to_it():
    rng = np.random.default_rng(0)
    weights = np.asarray(coalition_weights(rng.normal(size=(4, 50)), 0.5))
    signals = (100 * rng.normal(size=(50, 4))).astype(np.float32)
    parts = np.asarray(mean_parts(weights, signals))
    np.testing.assert_allclose(parts.sum(0), weights[-1] @ signals, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(parts[0], weights[0] @ signals, rtol=1e-5)
    # A second factor that changes nothing has no part, and the first has all of it, with its sign.
    parts = np.asarray(mean_parts(weights[[0, 1, 0, 1]], signals))
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
