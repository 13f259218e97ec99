"""Axioms of a metric on shared slices, for random measures; and the pairs that tell metrics from pseudo-metrics."""

import jax
import numpy as np
import pytest
from helpers import simplex
from hypothesis import given, settings
from hypothesis import strategies as st

from awavo.transport import (
    Circular,
    Linear,
    LinearForms,
    Neural,
    Polynomial,
    generalized_sliced_wasserstein,
    iid_slices,
    kostlan_slices,
    root,
    sliced_wasserstein,
)

DEFINING = {
    "linear": Linear(),
    "cubic": Polynomial(),
    "rooted": Polynomial(rooted=True),
    "forms": LinearForms(num_forms=2),
    "circular": Circular(1.5),
    "neural": Neural(lambda x: x[:1] ** 2),
}
SIZES = (5, 4, 6)


def measure(rng, num, kind):
    points = rng.standard_normal((num, 2)) * rng.uniform(0.1, 3)
    points = np.round(points) if kind == "ties" else points
    return points, np.full(num, 1 / num) if kind == "uniform" else simplex(rng, num)


@pytest.fixture(scope="module")
def distances():
    """Compiled distance for each defining function, so that hypothesis does not wait for the compiler."""

    def build(defining, order):
        def distance(x, a, y, b, slices):
            value = sliced_wasserstein(x, y, x_weights=a, y_weights=b, slices=slices, defining=defining, order=order)
            return root(value, order)

        return jax.jit(distance)

    return {(n, p): build(d, p) for n, d in DEFINING.items() for p in ((1, 2) if n == "linear" else (2,))}


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["weighted", "uniform", "ties"]), data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_pseudo_metric_on_shared_slices(distances, seed, kind, data):
    name, order = data.draw(st.sampled_from(sorted(distances)))
    rng = np.random.default_rng(seed)
    slices = rng.standard_normal((7, DEFINING[name].num_coefficients(2)))
    slices /= np.linalg.norm(slices, axis=1, keepdims=True)
    one, two, three = (measure(rng, 5, kind) for _ in range(3))
    with jax.enable_x64(True):

        def between(p, q):
            return float(distances[name, order](*p, *q, slices))

        shuffle = rng.permutation(5)
        first = between(one, two)
        scale = 1 + first
        assert first >= 0
        assert between(one, one) == pytest.approx(0, abs=1e-7 * scale)
        assert between(two, one) == pytest.approx(first, rel=1e-9, abs=1e-9)
        assert between((one[0][shuffle], one[1][shuffle]), two) == pytest.approx(first, rel=1e-9, abs=1e-9)
        assert between(one, three) <= first + between(two, three) + 1e-7 * scale


def test_pair_dependent_slices_break_the_triangle():
    """The reason why slices never depend on the measures: weights exp(W) by pair violate the inequality."""
    angles = np.pi * np.arange(180) / 180
    slices = np.stack([np.cos(angles), np.sin(angles)], 1)
    rng = np.random.default_rng(1)
    per_slice = jax.jit(jax.vmap(lambda s, x, y: sliced_wasserstein(x, y, slices=s[None]), (0, None, None)))
    worst_fixed, worst_pair = 0.0, 0.0
    for _ in range(300):
        clouds = [rng.standard_normal((2, 2)) * rng.exponential(2) for _ in range(3)]
        costs = [np.asarray(per_slice(slices, clouds[i], clouds[j]), np.float64) for i, j in ((0, 2), (0, 1), (1, 2))]
        fixed = [np.sqrt(c.mean()) for c in costs]
        paired = [np.sqrt(np.average(c, weights=np.exp(np.minimum(c - c.max(), 0)))) for c in costs]
        worst_fixed = max(worst_fixed, fixed[0] / (fixed[1] + fixed[2]))
        worst_pair = max(worst_pair, paired[0] / (paired[1] + paired[2]))
    assert worst_fixed <= 1 + 1e-5
    assert worst_pair > 1.01


def test_mirror_image(rng, key):
    cloud = rng.standard_normal((20, 3)) + 0.5
    even = Polynomial(degree=2, allow_even=True)
    blind = generalized_sliced_wasserstein(cloud, -cloud, slices=iid_slices(key, 20, 6), defining=even)
    seeing = generalized_sliced_wasserstein(cloud, -cloud, slices=kostlan_slices(key, 20, 3, 3))
    assert float(blind) == 0
    assert float(seeing) > 1


def test_kostlan_distribution_is_rotation_invariant_and_the_flat_one_is_not(rng, key):
    direction = np.ones((1, 3)) / np.sqrt(3)
    x, y = np.concatenate([direction, -direction]) * 2, np.zeros((2, 3))
    axis = np.array([[2.0, 0, 0], [-2.0, 0, 0]])
    kostlan = kostlan_slices(key, 4000, 3, 3)
    flat = iid_slices(key, 4000, 10)
    turned, straight = (float(generalized_sliced_wasserstein(p, y, slices=kostlan)) for p in (x, axis))
    assert turned == pytest.approx(straight, rel=0.1)
    turned, straight = (float(generalized_sliced_wasserstein(p, y, slices=flat)) for p in (x, axis))
    assert abs(turned / straight - 1) > 0.3


def test_rows_are_slices_never_samples(rng, key):
    """Shuffling a sample leaves the distance to itself at zero (one slice for each sample would not)."""
    x = rng.standard_normal((30, 3))
    slices = kostlan_slices(key, 30, 3, 3)
    assert float(generalized_sliced_wasserstein(x, x[rng.permutation(30)], slices=slices)) < 1e-9


def test_circular_tends_to_linear(rng, x64, key):
    x, y = rng.standard_normal((15, 3)), rng.standard_normal((12, 3)) + 0.5
    slices = np.array(iid_slices(key, 10, 3), np.float64)
    slices /= np.linalg.norm(slices, axis=1, keepdims=True)
    linear = sliced_wasserstein(x, y, slices=slices)
    far = sliced_wasserstein(x, y, slices=slices, defining=Circular(1e5))
    assert float(far) == pytest.approx(float(linear), rel=1e-3)


def test_scaling_of_points(rng, key):
    x, y = rng.standard_normal((9, 2)), rng.standard_normal((9, 2)) + 1
    slices = kostlan_slices(key, 6, 2, 3)
    for defining, power in ((Polynomial(), 6), (Polynomial(rooted=True), 2)):
        once = generalized_sliced_wasserstein(x, y, slices=slices, defining=defining)
        twice = generalized_sliced_wasserstein(2 * x, 2 * y, slices=slices, defining=defining)
        assert float(twice / once) == pytest.approx(2**power, rel=1e-4)
