"""Few particles for a weighted cloud: cells of equal mass, halved along slices of their own, lifted."""

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from awavo.inference.cells import BISECTIONS, compress, cut
from awavo.inference.wvi import resample
from awavo.paper.arms import exact_w2
from awavo.paper.compression_run import left_between, scene, two_modes
from awavo.transport.defining import Linear, LinearForms

parts = jax.jit(cut)
compressed = jax.jit(compress, static_argnums=3, static_argnames=("defining", "num_steps"))


def cloud(seed, num=40, dim=3):
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=num)
    return rng.normal(size=(num, dim)).astype(np.float32), (weights / weights.sum()).astype(np.float32)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 0.95))
def test_a_cut_is_that_of_the_sorted_points(seed, share):
    points, weights = cloud(seed, dim=1)
    order = np.argsort(points[:, 0])
    assume(np.diff(points[order, 0]).min() > 2 * np.ptp(points) / 2**BISECTIONS)
    mass = weights[order]
    expected = np.clip(share - (np.cumsum(mass) - mass), 0.0, mass)
    np.testing.assert_allclose(parts(weights, points[:, 0], np.float32(share))[order], expected, atol=2e-6)


def test_points_nearer_than_the_bisection_tells_apart_give_the_share_together():
    points, weights = cloud(414, dim=1)
    assert parts(weights, points[:, 0], np.float32(0.6875)).sum() == pytest.approx(0.6875, abs=1e-6)


def test_points_in_one_place_give_the_same_part_of_themselves():
    places, masses = np.array([2.0, 1.0, 1.0, 0.0], np.float32), np.array([0.1, 0.4, 0.2, 0.3], np.float32)
    np.testing.assert_allclose(parts(masses, places, np.float32(0.6)), [0.0, 0.2, 0.1, 0.3], atol=1e-6)
    together = parts(masses, np.ones(4, np.float32), np.float32(0.25))
    np.testing.assert_allclose(together, masses / 4, atol=1e-6)


@pytest.mark.parametrize("num", [1, 2, 5, 8])
def test_cells_of_a_line_are_means_of_its_quantile_function(num):
    """On a line there is one way to cut, in whatever order the cuts are made: an even number of equal masses."""
    points, weights = cloud(3, dim=1)
    found = np.sort(
        np.asarray(compressed(points, weights, np.ones((2, 1), np.float32), num, defining=Linear())[0])[:, 0]
    )
    order = np.argsort(points[:, 0])
    levels = (np.arange(200_000) + 0.5) / 200_000
    which = np.minimum(np.searchsorted(np.cumsum(weights[order]), levels), len(weights) - 1)
    np.testing.assert_allclose(found, points[order, 0][which].reshape(num, -1).mean(1), atol=2e-3)


def test_as_many_cells_as_equal_points_are_the_points():
    points, _ = cloud(0, num=16)
    slices = jax.random.normal(jax.random.key(0), (4, 3))
    found, cost = compressed(points, np.full(16, 1 / 16, np.float32), slices, 16, defining=Linear())
    found = np.asarray(found)
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], points[np.argsort(points[:, 0])], atol=1e-4)
    assert float(cost) == pytest.approx(0.0, abs=1e-4)


def test_cells_have_slices_of_their_own():
    """Four corners of a cross: no single slice tells all four apart in pairs, halves of halves do."""
    rng = np.random.default_rng(0)
    corners = np.array([[4, 1, 0], [4, -1, 0], [-4, 0, 1], [-4, 0, -1]], np.float32)
    points = (np.repeat(corners, 50, 0) + 0.05 * rng.normal(size=(200, 3))).astype(np.float32)
    slices = jax.random.normal(jax.random.key(1), (4, 3))
    found = np.asarray(compressed(points, np.full(200, 1 / 200, np.float32), slices, 4, defining=Linear())[0])
    nearest = np.linalg.norm(found[:, None] - corners, axis=2)
    assert nearest.min(0).max() < 0.05
    assert sorted(nearest.argmin(1)) == [0, 1, 2, 3]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_cost_is_a_bound_of_the_exact_distance_and_the_mean_is_kept(seed):
    points, weights = cloud(seed)
    slices = jax.random.normal(jax.random.key(seed), (8, 3))
    found, cost = compressed(points, weights, slices, 6, defining=Linear())
    assert exact_w2(np.asarray(found), points, weights) ** 2 <= float(cost) * (1 + 1e-4) + 1e-5
    np.testing.assert_allclose(np.asarray(found).mean(0), weights @ points, atol=1e-5)


def test_the_best_of_the_slices_is_taken():
    points, weights = cloud(1)
    axes = np.eye(3, dtype=np.float32)
    options = dict(defining=Linear(), num_steps=0)
    costs = [float(compressed(points, weights, axes[row : row + 1], 2, **options)[1]) for row in range(3)]
    assert float(compressed(points, weights, axes, 2, **options)[1]) == pytest.approx(min(costs), rel=1e-5)


@pytest.mark.parametrize("defining", [Linear(), LinearForms(num_forms=2, degree=3)], ids=["linear", "degree 3"])
def test_nothing_depends_on_where_the_cloud_is_or_how_large(defining):
    points, weights = cloud(2)
    slices = jax.random.normal(jax.random.key(0), (4, defining.num_coefficients(3)))
    plain, cost = compressed(points, weights, slices, 6, defining=defining)
    larger, larger_cost = compressed(10 * points, weights, slices, 6, defining=defining)
    plain = np.asarray(plain)
    np.testing.assert_allclose(larger, 10 * plain, atol=1e-3)
    assert float(larger_cost) == pytest.approx(100 * float(cost), rel=1e-3)
    if defining.linear:
        moved, _ = compressed(points + 3.0, weights, slices, 6, defining=defining)
        np.testing.assert_allclose(moved, plain + 3.0, atol=1e-3)


def test_ascended_slices_find_what_random_ones_do_not_see_in_many_dimensions():
    gaps, between = {0: [], 2: []}, []
    for seed in range(100, 108):
        points, weights = scene(seed, 120)
        slices = jax.random.normal(jax.random.key(seed), (8, 120))
        for steps, costs in gaps.items():
            costs.append(float(compressed(points, weights, slices, 32, defining=Linear(), num_steps=steps)[1]))
        points, weights, axis = two_modes(seed, 40)
        found, _ = compressed(points, weights, np.asarray(slices)[:, :40], 32, defining=Linear())
        between.append(left_between(np.asarray(found), axis))
    assert np.mean(gaps[2]) < 0.85 * np.mean(gaps[0])
    assert np.mean(between) <= 1 / 32  # at most the one cell that holds the edge


def test_few_particles_are_nearer_than_resampled_ones():
    cells, drawn = [], []
    for seed in range(100, 105):
        points, weights = scene(seed, 12)
        key = jax.random.key(seed)
        slices = jax.random.normal(key, (8, 12))
        found, _ = compressed(points, weights, slices, 8, defining=Linear())
        cells.append(exact_w2(np.asarray(found), points, weights))
        drawn.append(exact_w2(points[np.asarray(resample(key, weights, 8))], points, weights))
    assert np.mean(cells) < 0.65 * np.mean(drawn)
