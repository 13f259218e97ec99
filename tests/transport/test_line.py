import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
import scipy.stats
from helpers import simplex

from awavo.transport import root, wasserstein_1d

PARITY = [
    ((1, 5), 1, "both"),
    ((40, 40), 2, "none"),
    ((40, 40), 2, "both"),
    ((13, 29), 1.5, "none"),
    ((13, 29), 2, "both"),
    ((29, 13), 3, "one"),
]


def sample(rng, num_x, num_y):
    return rng.standard_normal(num_x), rng.standard_normal(num_y) + 0.3, simplex(rng, num_x), simplex(rng, num_y)


@pytest.mark.parametrize(("sizes", "order", "weighted"), PARITY)
def test_parity_with_pot(rng, sizes, order, weighted):
    x, y, a, b = sample(rng, *sizes)
    a, b = (None if weighted == "none" else a), (b if weighted == "both" else None)
    expected = ot.wasserstein_1d(x, y, a, b, p=order)
    got = wasserstein_1d(x.astype(np.float32), y.astype(np.float32), x_weights=a, y_weights=b, order=order)
    assert float(got) == pytest.approx(float(expected), rel=1e-5)
    with jax.enable_x64(True):
        got = wasserstein_1d(x, y, x_weights=a, y_weights=b, order=order)
    assert got.dtype == np.float64
    assert float(got) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("sizes", [(50, 50), (50, 33)])
def test_parity_with_scipy(rng, sizes, x64):
    x, y, a, b = sample(rng, *sizes)
    expected = scipy.stats.wasserstein_distance(x, y, a, b)
    assert float(wasserstein_1d(x, y, x_weights=a, y_weights=b, order=1)) == pytest.approx(expected, rel=1e-10)
    assert float(wasserstein_1d(x, y, order=1)) == pytest.approx(scipy.stats.wasserstein_distance(x, y), rel=1e-10)


def test_float32_keeps_its_digits_at_many_points(rng):
    x, y = rng.standard_normal(20_000), rng.standard_normal(14_000) * 1.5
    a, b = simplex(rng, 20_000), simplex(rng, 14_000)
    expected = ot.wasserstein_1d(x, y, a, b, p=2)
    got = wasserstein_1d(x.astype(np.float32), y.astype(np.float32), x_weights=a, y_weights=b)
    assert float(got) == pytest.approx(float(expected), rel=2e-6)


def test_batches_agree_with_single_problems(rng):
    x, y = rng.standard_normal((2, 3, 9)), rng.standard_normal((2, 3, 6))
    a = np.stack([simplex(rng, 9) for _ in range(6)]).reshape(2, 3, 9)
    both = wasserstein_1d(x, y, x_weights=a)
    mapped = jax.jit(jax.vmap(jax.vmap(lambda x, y, a: wasserstein_1d(x, y, x_weights=a))))(x, y, a)
    single = [[wasserstein_1d(x[i, j], y[i, j], x_weights=a[i, j]) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(both, single, rtol=1e-6)
    np.testing.assert_allclose(mapped, single, rtol=1e-6)


def test_weight_gradient_under_vmap(rng):
    points = jnp.asarray(rng.standard_normal((3, 4, 5)), jnp.float32)
    a, b = (jnp.asarray(np.stack([simplex(rng, 5) for _ in range(3)]), jnp.float32) for _ in range(2))

    def distances(points, a, b):
        return wasserstein_1d(points, points, x_weights=a, y_weights=b).sum()

    mapped = jax.jit(jax.grad(lambda a: jax.vmap(distances)(points, a, b).sum()))(a)
    single = jax.jit(jax.grad(lambda a, i: distances(points[i], a, b[i])))
    np.testing.assert_allclose(mapped, [single(a[i], i) for i in range(3)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("sizes", "order", "weighted"), [((8, 8), 2, False), ((8, 5), 1.5, False), ((8, 5), 3, True)])
def test_gradients_match_finite_differences(rng, sizes, order, weighted, x64):
    given = sample(rng, *sizes)

    @jax.jit
    def distance(x, y, a, b):
        weights = {"x_weights": a, "y_weights": b} if weighted else {}
        return wasserstein_1d(x, y, order=order, **weights)

    directions = [rng.standard_normal(v.shape) for v in given]
    directions[2:] = [d - d.mean() for d in directions[2:]]
    gradient = jax.jit(jax.grad(distance, (0, 1, 2, 3)))(*given)
    _, forward = jax.jit(lambda given, along: jax.jvp(distance, given, along))(tuple(given), tuple(directions))
    step = 1e-6
    plus = distance(*(v + step * d for v, d in zip(given, directions, strict=True)))
    minus = distance(*(v - step * d for v, d in zip(given, directions, strict=True)))
    expected = (float(plus) - float(minus)) / (2 * step)
    assert sum(np.vdot(g, d) for g, d in zip(gradient, directions, strict=True)) == pytest.approx(expected, rel=1e-5)
    assert float(forward) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("sizes", "order"), [((40, 40), 2), ((40, 20), 2), ((20, 40), 3), ((6, 4), 1)])
def test_weight_subgradient_at_uniform_weights(rng, sizes, order, x64):
    """W(a', b') >= W(a, b) + <g, (a', b') - (a, b)> for all measures: the ties of uniform weights must not break it."""
    x, y, *_ = sample(rng, *sizes)
    a, b = np.full(sizes[0], 1 / sizes[0]), np.full(sizes[1], 1 / sizes[1])

    @jax.jit
    def distance(a, b):
        return wasserstein_1d(x, y, x_weights=a, y_weights=b, order=order)

    value, (x_grad, y_grad) = jax.device_get(jax.jit(jax.value_and_grad(distance, (0, 1)))(a, b))
    assert abs(float(x_grad.sum())) < 1e-12
    assert abs(float(y_grad.sum())) < 1e-12
    for trial in range(40):
        sharp = 0.1 if trial % 2 else 1.0
        other_a, other_b = rng.dirichlet(np.full(sizes[0], sharp)), rng.dirichlet(np.full(sizes[1], sharp))
        gap = float(distance(other_a, other_b)) - value - x_grad @ (other_a - a) - y_grad @ (other_b - b)
        assert float(gap) > -1e-9


@pytest.mark.parametrize(("order", "weighted"), [(1, False), (1.5, False), (2, True)])
def test_gradient_is_finite_at_distance_zero(rng, order, weighted):
    x = rng.standard_normal(12).astype(np.float32)
    even = np.full(12, 1 / 12, np.float32)
    weights = {"x_weights": even, "y_weights": even} if weighted else {}
    slope = jax.value_and_grad(lambda x, y: root(wasserstein_1d(x, y, order=order, **weights), order))
    value, gradient = jax.jit(slope)(x, x)
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, np.zeros(12))


def test_equal_points_share_no_partner():
    """Tied points get a valid coupling: gradients of both sum to that of the pair."""
    x, y = jnp.array([1.0, 1.0]), jnp.array([0.0, 4.0])
    gradient = jax.jit(jax.grad(wasserstein_1d))(x, y)
    np.testing.assert_allclose(np.sort(gradient), [-3.0, 1.0])


def test_zero_weights_and_dirac():
    first = np.array([1.0, 0.0])
    value = wasserstein_1d(np.array([0.0, 5]), np.array([1.0, 9]), x_weights=first, y_weights=first)
    assert float(value) == 1.0


def test_root_and_its_slope():
    assert float(root(jnp.float32(8.0), 3)) == pytest.approx(2.0)
    slope = jax.jit(jax.grad(lambda v: root(v, 2)))
    assert float(slope(np.float32(4))) == pytest.approx(0.25)
    assert float(slope(np.float32(0))) == 0.0
    assert float(jax.jit(jax.hessian(lambda v: root(v, 2)))(np.float32(4))) == pytest.approx(-1 / 32)


def test_points_of_any_number_type():
    assert float(wasserstein_1d(np.array([0, 1]), np.array([1, 2]))) == 1.0
    half = jnp.array([0.0, 1.0], jnp.bfloat16)
    assert wasserstein_1d(half, half + 1).dtype == jnp.float32
