"""The NumPy path: its sort, its parts of batches and slices, and its one look at usual input."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from awavo.errors import InputError
from awavo.transport import host, sliced_gradient, sliced_wasserstein
from awavo.transport.host_cells import sort_with_order


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 7), (5, 1000)])
def test_one_sort_gives_numbers_and_order(rng, kind, shape):
    x = rng.standard_normal(shape).astype(kind)
    x[..., : shape[-1] // 2] = np.round(x[..., : shape[-1] // 2])  # ties, and zeros of both signs
    rows = x.copy()
    order = sort_with_order(rows)
    np.testing.assert_array_equal(rows, np.sort(x))
    np.testing.assert_array_equal(np.take_along_axis(x, order, -1), rows)
    np.testing.assert_array_equal(np.sort(order), np.broadcast_to(np.arange(shape[-1]), shape))


def test_extremes_keep_all_their_bits():
    values = [1.0, 1.0 + 2**-23, 1e-40, -1e-40, 1e-45, -1e-45, 0.0, -3.4028235e38, 3.4028235e38, 1.0 - 2**-24]
    x = np.tile(np.array(values, np.float32), 1000)
    rows = x.copy()
    order = sort_with_order(rows)
    np.testing.assert_array_equal(rows, np.sort(x))
    np.testing.assert_array_equal(x[order], rows)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_light_atom_far_away_keeps_its_mass(rng, kind):
    x, y, weights = rng.standard_normal((50, 2)), rng.standard_normal((40, 2)), np.ones(50)
    x[0], weights[0] = (1e10, 0.0), 1e-9
    weights /= weights.sum()
    exact = np.mean([wasserstein_distance(x[:, i], y[:, i], weights) for i in range(2)])
    found = sliced_wasserstein(*(v.astype(kind) for v in (x, y, weights)), slices=np.eye(2, dtype=kind), order=1)
    assert float(found) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("num_y", [20, 13])
@pytest.mark.parametrize("batch", [(7,), (2, 3)])
def test_parts_of_a_batch_are_its_problems(rng, monkeypatch, batch, num_y):
    x, y = rng.standard_normal((*batch, 20, 3)), rng.standard_normal((*batch, num_y, 3))
    whole = sliced_wasserstein(x, y, seed=0, num_slices=10)
    monkeypatch.setattr(host, "_GROUP", 450)  # two problems of ten slices, the last part a shorter one
    parts = sliced_wasserstein(x, y, seed=0, num_slices=10)
    slices = np.eye(3)
    exact = sliced_wasserstein(x, y, slices=slices)
    monkeypatch.setattr(host, "_GROUP", 30)
    monkeypatch.setattr(host, "_CHUNK", 30)  # one slice of one problem
    finest = sliced_wasserstein(x, y, slices=slices)
    gradient = sliced_gradient(x, y, slices=slices)
    assert parts.value.shape == exact.value.shape == batch
    np.testing.assert_allclose(parts[:3], whole[:3], rtol=1e-12)
    for i in np.ndindex(batch):
        alone = sliced_wasserstein(x[i], y[i], slices=slices)
        for found in (exact.value, finest.value, gradient.value):
            np.testing.assert_allclose(found[i], alone.value, rtol=1e-12)


@pytest.mark.bad_input
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("other", [0.0, 1.0, -np.inf])
@pytest.mark.parametrize("name", ["x", "y"])
def test_one_pass_over_both_clouds_misses_nothing(bad, other, name):
    clouds = {"x": np.ones((4, 2), np.float32), "y": np.ones((4, 2), np.float32)}
    clouds["y" if name == "x" else "x"][1, 1] = other
    clouds[name][1, 1] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        sliced_wasserstein(**clouds, slices=np.eye(2))


def test_large_numbers_are_no_fault():
    big = np.full((4, 2), 1e15, np.float64)
    assert sliced_wasserstein(big * 1e180, big * 1e180, slices=np.eye(2)) == 0  # their product overflows
    single = (big * 1e15).astype(np.float32)
    assert sliced_wasserstein(single, single, slices=np.eye(2)) == 0


@pytest.mark.bad_input
def test_lengths_that_make_up_for_each_other_are_refused():
    slices = np.diag(np.sqrt([1.5, 0.5])).astype(np.float32)
    with pytest.raises(InputError, match="expected 1"):
        sliced_wasserstein(np.ones((4, 2), np.float32), np.ones((4, 2), np.float32), slices=slices)
