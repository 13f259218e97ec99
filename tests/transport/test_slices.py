import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers import many_slices

from awavo.errors import InputError
from awavo.transport import (
    Polynomial,
    draw_slices,
    iid_slices,
    kostlan_slices,
    monomial_weights,
    orthogonal_slices,
    sliced_wasserstein,
    spiral_slices,
    unit_slices,
)
from awavo.transport.intervals import block_variance, student_quantile


@pytest.mark.parametrize(("sampling", "dim"), [("iid", 5), ("orthogonal", 5), ("spiral", 3), ("spiral", 2)])
@pytest.mark.parametrize("split", [False, True])
def test_unit_length_and_number(key, sampling, dim, split):
    slices, block = jax.jit(draw_slices, static_argnums=(1, 2), static_argnames=("sampling", "split"))(
        key, 23, dim, sampling=sampling, split=split
    )
    assert slices.shape == (23, dim)
    np.testing.assert_allclose(jnp.linalg.norm(slices, axis=1), np.ones(23), rtol=1e-5)
    assert not split or int(block) * 2 <= 24


def test_orthogonal_blocks_integrate_quadratic_forms(rng, key):
    form = rng.standard_normal((6, 6))
    slices = np.asarray(orthogonal_slices(key, 18, 6), np.float64)
    assert np.einsum("li,ij,lj->", slices, form, slices) / 3 == pytest.approx(np.trace(form), abs=1e-4)


@pytest.mark.parametrize("draw", [iid_slices, orthogonal_slices, spiral_slices])
def test_samplings_are_uniform_on_the_sphere(key, draw):
    many = jax.jit(jax.vmap(lambda k: draw(k, 4, 3)))(jax.random.split(key, 2000)).reshape(-1, 3)
    for axis in range(3):
        assert scipy.stats.kstest(np.asarray(many[::4, axis]), scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3
    np.testing.assert_allclose(many.T @ many / len(many), np.eye(3) / 3, atol=0.03)


def test_spiral_beats_iid_in_three_dimensions(key):
    def mean(slices):
        return jnp.mean(jnp.abs(slices[:, 0]) ** 3)

    keys = jax.random.split(key, 30)
    spread = {
        draw: float(jnp.std(jax.jit(jax.vmap(lambda k, draw=draw: mean(draw(k, 100, 3))))(keys)))
        for draw in (iid_slices, spiral_slices)
    }
    assert spread[spiral_slices] < 0.05 * spread[iid_slices]


def test_monomials_and_their_weights(rng):
    x, y = rng.standard_normal((2, 4))
    features = jax.jit(Polynomial(3).features)(jnp.asarray(np.stack([x, y]), jnp.float32))
    assert features.shape == (2, 20) == (2, Polynomial(3).num_coefficients(4))
    weights = monomial_weights(4, 3)
    assert float(jnp.sum(features[0] * features[1] * weights**2)) == pytest.approx((x @ y) ** 3, rel=1e-4)
    assert kostlan_slices(jax.random.key(0), 7, 4, 3).shape == (7, 20)


def test_unit_slices_of_zero_rows_have_finite_derivatives():
    assert bool(jnp.all(jnp.isfinite(jax.jit(jax.jacobian(unit_slices))(jnp.zeros(3)))))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 30, 999, 5000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_student_quantile(freedom, confidence):
    expected = scipy.stats.t.ppf(0.5 + confidence / 2, freedom)
    assert student_quantile(confidence, freedom) == pytest.approx(expected, rel=1e-6)


def test_block_variance(rng):
    values = rng.standard_normal(12).astype(np.float32)
    variance, freedom = block_variance(jnp.asarray(values), 3)
    means = values.reshape(4, 3).mean(1)
    assert freedom == 3
    assert float(variance) == pytest.approx(np.var(means, ddof=1) / 4, rel=1e-5)
    ragged, freedom = block_variance(jnp.asarray(values[:11]), 3)
    assert freedom == 3
    assert float(ragged) > 0
    assert np.isnan(block_variance(jnp.asarray(values), 12)[0])


@functools.cache
def clouds_and_truth(dim):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, dim)) * np.linspace(0.3, 2, dim) + rng.integers(0, 2, (40, 1))
    y = rng.exponential(size=(40, dim))
    return x, y, float(sliced_wasserstein(x, y, slices=many_slices(dim)))


def share_and_spread(dim, options, num_runs=150):
    """How often the interval holds the truth, and the relative spread of the estimates."""
    x, y, truth = clouds_and_truth(dim)
    run = jax.jit(lambda keys: jax.lax.map(lambda k: sliced_wasserstein(x, y, key=k, num_slices=42, **options), keys))
    found = run(jax.random.split(jax.random.key(5), num_runs))
    assert float(jnp.mean(found.value)) == pytest.approx(truth, rel=0.02)
    return float(jnp.mean((found.low <= truth) & (truth <= found.high))), float(jnp.std(found.value)) / truth


def test_intervals_cover_and_better_samplings_are_tighter():
    """A small version of benchmarks/transport/accuracy.py, whose 2,000 runs state the coverage."""
    samplings = ({"sampling": "iid"}, {"sampling": "orthogonal"}, {"sampling": "orthogonal", "control_variate": True})
    shares, spreads = zip(*(share_and_spread(6, options) for options in samplings), strict=True)
    assert all(0.9 <= share <= 0.985 for share in shares)
    assert spreads[0] > 1.5 * spreads[1] > 2 * spreads[2]


def test_intervals_of_spirals_cover():
    share, spread = share_and_spread(3, {})
    assert 0.9 <= share <= 0.985
    assert spread < 0.05


@functools.cache
def circle():
    """Two clouds of the plane, and their value over all angles."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((40, 2)), rng.standard_normal((30, 2)) * (1.5, 0.7) + 0.5
    angles = np.pi * np.arange(20_000) / 20_000
    return x, y, float(sliced_wasserstein(x, y, slices=np.stack([np.cos(angles), np.sin(angles)], 1)))


def test_intervals_of_even_angles_cover():
    """Four lattices agree by chance more often than normal errors would: with their t the interval held 90%."""
    x, y, truth = circle()
    found = [sliced_wasserstein(x, y, seed=seed, n_projections=40) for seed in range(400)]
    assert 0.92 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.985


def test_the_last_lattice_is_a_whole_one():
    """Of 50 angles in blocks of 13 the last 11 are even too: they had been 11 of 13, fifty times as far off."""
    x, y, truth = circle()
    spread = {num: np.std([float(sliced_wasserstein(x, y, seed=s, n_projections=num)) for s in range(60)])
              for num in (48, 50)}  # fmt: skip
    assert spread[50] < 2 * spread[48] < 0.002 * truth


def test_no_interval_from_one_slice(key):
    found = sliced_wasserstein(np.eye(3), 2 * np.eye(3), key=key, num_slices=1)
    assert np.isnan(found.low)
    assert "no interval" in found.method


def test_no_interval_without_confidence(key):
    x = np.random.default_rng(0).standard_normal((5, 3))
    estimate = sliced_wasserstein(x, x + 1, key=key, num_slices=10, confidence=None)
    assert np.isnan(estimate.low)
    assert np.isnan(estimate.high)
    assert "interval" not in estimate.method


def test_same_key_same_value_and_unknown_sampling(key):
    x = np.random.default_rng(0).standard_normal((5, 4))
    assert sliced_wasserstein(x, x + 1, key=key).value == sliced_wasserstein(x, x + 1, key=key).value
    with pytest.raises(InputError, match="Did you mean 'orthogonal'"):
        sliced_wasserstein(x, x + 1, key=key, sampling="ortogonal")
    with pytest.raises(InputError, match="dimension 2 and 3, not 4"):
        sliced_wasserstein(x, x + 1, key=key, sampling="spiral")
