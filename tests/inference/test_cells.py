"""Few particles for a weighted cloud: cells of equal mass along the best slice, lifted."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awavo.inference.cells import best_cells, cell_means, compress
from awavo.inference.wvi import resample
from awavo.paper.arms import exact_w2
from awavo.paper.compression_run import left_between, scene, two_modes
from awavo.transport.defining import Linear, LinearForms

best_cells, cell_means = (jax.jit(f, static_argnums=3) for f in (best_cells, cell_means))
compressed = jax.jit(compress, static_argnums=3, static_argnames=("defining", "num_steps"))


def cloud(seed, num=40, dim=3):
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=num)
    return rng.normal(size=(num, dim)).astype(np.float32), (weights / weights.sum()).astype(np.float32)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_cells_of_a_line_are_means_of_its_quantile_function(seed):
    points, weights = cloud(seed, dim=1)
    found = np.asarray(cell_means(points, weights, points[:, 0], 5))[:, 0]
    order = np.argsort(points[:, 0])
    levels = (np.arange(200_000) + 0.5) / 200_000
    which = np.minimum(np.searchsorted(np.cumsum(weights[order]), levels), len(weights) - 1)
    np.testing.assert_allclose(found, points[order, 0][which].reshape(5, -1).mean(1), atol=2e-3)


def test_as_many_cells_as_equal_points_are_the_points():
    points, _ = cloud(0, num=16)
    found = np.asarray(cell_means(points, np.full(16, 1 / 16), points[:, 0], 16))
    np.testing.assert_allclose(found, points[np.argsort(points[:, 0])], atol=1e-5)


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
    places = points.T
    costs = [float(best_cells(points, weights, places[row : row + 1], 6)[1]) for row in range(3)]
    assert float(best_cells(points, weights, places, 6)[1]) == pytest.approx(min(costs), rel=1e-5)


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
    gaps, between = {0: [], 1: []}, []
    for seed in range(100, 108):
        points, weights = scene(seed, 120)
        slices = jax.random.normal(jax.random.key(seed), (8, 120))
        for steps, costs in gaps.items():
            costs.append(float(compressed(points, weights, slices, 32, defining=Linear(), num_steps=steps)[1]))
        points, weights, axis = two_modes(seed, 40)
        found, _ = compressed(points, weights, np.asarray(slices)[:, :40], 32, defining=Linear())
        between.append(left_between(np.asarray(found), axis))
    assert np.mean(gaps[1]) < 0.85 * np.mean(gaps[0])
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
    assert np.mean(cells) < 0.75 * np.mean(drawn)
