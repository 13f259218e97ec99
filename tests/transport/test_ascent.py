import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.transport import (
    Circular,
    LinearForms,
    Polynomial,
    ascend_slices,
    iid_slices,
    max_sliced_wasserstein,
    root,
    slice_overlap,
    sliced_wasserstein,
    wasserstein_1d,
)


@pytest.mark.parametrize("kind", ["shift", "covariance"])
def test_reaches_the_best_slice(rng, key, kind):
    x = rng.standard_normal((400, 20)).astype(np.float32)
    y = rng.standard_normal((400, 20)).astype(np.float32)
    y[:, 3] = y[:, 3] + 3 if kind == "shift" else y[:, 3] * 3.1
    found = jax.jit(lambda x, y: max_sliced_wasserstein(x, y, key=key))(x, y)
    built = root(wasserstein_1d(x[:, 3], y[:, 3]), 2)
    assert float(root(found.value, 2)) >= 0.99 * float(built)
    assert abs(float(found.slice[3])) > 0.9
    random = sliced_wasserstein(x, y, key=key, num_slices=500).value
    assert float(found.value) > 3 * float(random)


def test_a_whole_power_step_that_overshoots_is_shortened(key):
    """A cross in the plane: W_2^2 is (|cos| - |sin|)^2, 1 at the axes, and not convex in the slice."""
    x = np.float32([[1, 0], [-1, 0]])
    run = jax.jit(jax.vmap(lambda key: max_sliced_wasserstein(x, x[:, ::-1], key=key).value))
    np.testing.assert_allclose(run(jax.random.split(key, 20)), 1.0, atol=1e-4)


def test_value_is_that_of_the_slice_and_its_gradient_the_envelope(rng, key):
    x = jnp.asarray(rng.standard_normal((30, 4)), jnp.float32)
    y = jnp.asarray(rng.standard_normal((20, 4)) + 1, jnp.float32)

    def most(x):
        found = max_sliced_wasserstein(x, y, key=key)
        return found.value, found

    (value, found), gradient = jax.jit(jax.value_and_grad(most, has_aux=True))(x)
    alone = np.asarray(found.slice)[None]
    there, fixed = jax.jit(jax.value_and_grad(lambda x: sliced_wasserstein(x, y, slices=alone).value))(x)
    assert float(value) == pytest.approx(float(there), rel=1e-5)
    np.testing.assert_allclose(gradient, fixed, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("defining", [Polynomial(), LinearForms(2), Circular(2.0)], ids=lambda d: type(d).__name__)
def test_ascent_never_loses(rng, key, defining):
    x, y = (v.astype(np.float32) for v in (rng.standard_normal((30, 3)), rng.standard_normal((25, 3)) * 1.5 + 0.5))
    start = iid_slices(key, 5, defining.num_coefficients(3))
    ascended = jax.jit(lambda s: ascend_slices(x, y, s, defining=defining, num_steps=15))(start)
    np.testing.assert_allclose(np.linalg.norm(ascended, axis=1), np.ones(5), rtol=1e-4)

    @jax.jit
    @jax.vmap
    def along(each):
        return sliced_wasserstein(x, y, slices=each[None], defining=defining).value

    low, high = np.asarray(along(start)), np.asarray(along(ascended))
    assert np.all(high >= low * (1 - 1e-5))
    assert high.max() > low.max()


def test_equal_clouds_have_maximum_zero(rng, key):
    x = rng.standard_normal((10, 3))
    even = np.full(10, 0.1)
    found = jax.jit(lambda x: max_sliced_wasserstein(x, x, key=key, x_weights=even, y_weights=even))(x)
    assert float(found.value) == pytest.approx(0, abs=1e-10)
    assert np.all(np.isfinite(found.slice))


def test_batch_of_problems(rng, key):
    x, y = rng.standard_normal((3, 10, 2)), rng.standard_normal((3, 8, 2)) + 1
    mapped = jax.vmap(lambda x, y: max_sliced_wasserstein(x, y, key=key, num_steps=5, order=1.5))
    assert jax.eval_shape(mapped, x, y).value.shape == (3,)


def test_overlap():
    overlap = jax.jit(slice_overlap)
    assert float(overlap(np.eye(3))) == 0
    assert float(overlap(np.ones((4, 3)))) == pytest.approx(1)
    assert float(overlap(np.ones((1, 3)))) == pytest.approx(0)
