"""The interval for the population: a small version of benchmarks/transport/coverage.py; and blocks for every (d, L)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.transport import sliced_wasserstein
from awavo.transport.slices import block_length, draw_slices


def test_population_intervals_cover_where_those_of_the_sample_do_not():
    """N(0, I) against a shift by 0.4: the population's value is 0.16, that of 40 points much larger."""

    def one(key):
        points, slices = jax.random.split(key)
        x, y = jax.random.normal(points, (2, 40, 6))
        call = lambda target: sliced_wasserstein(x, y + 0.4, key=slices, num_slices=24, target=target)  # noqa: E731
        return call("population"), call("sample")

    population, sample = jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(0), 300))

    def share(found):
        return float(jnp.mean((found.low <= 0.16) & (found.high >= 0.16)))

    assert 0.91 <= share(population) <= 0.985
    assert share(sample) < 0.5
    bias, raw = (float(jnp.mean(found.value)) - 0.16 for found in (population, sample))
    assert abs(bias) < 0.1 * raw
    assert "population" in population.method
    assert "points and 4 blocks" in population.method


def test_population_intervals_of_equal_laws_are_intervals_and_hold_zero():
    """A debiased value below zero had an upper end below zero, and a lower one of zero."""

    def one(key):
        points, slices = jax.random.split(key)
        x, y = jax.random.normal(points, (2, 20, 2))
        return sliced_wasserstein(x, y, key=slices, num_slices=20, target="population")

    found = jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(0), 200))
    assert float(found.value.min()) < 0
    assert np.all(found.high >= found.low)
    assert np.mean(found.low <= 0) > 0.94


def test_population_on_given_slices_has_an_interval_over_points():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 30, 3)).astype(np.float32)
    found = sliced_wasserstein(x, y + 1, slices=np.eye(3), target="population")
    assert found.low < found < found.high
    assert "over points" in found.method


@pytest.mark.parametrize(("dim", "num"), [(4, 100), (30, 100), (50, 100), (300, 100), (300, 1200), (30, 7), (5, 16)])
def test_no_interval_rests_on_two_blocks(dim, num):
    block = block_length("orthogonal", num, dim, split=True)
    assert 1 <= block <= dim
    assert -(-num // block) >= min(4, num)
    assert num > 3 * dim or -(-num // block) >= min(20, num)
    sizes = np.diff([*range(0, num, block), num])
    assert sizes.min() > 0.75 * sizes.max() - 1  # nearly the same length


def test_small_blocks_are_orthonormal():
    slices, block = draw_slices(jax.random.key(0), 60, 40, sampling="orthogonal", split=True)
    assert block == 3
    first = np.asarray(slices[:3])
    np.testing.assert_allclose(first @ first.T, np.eye(3), atol=1e-5)
