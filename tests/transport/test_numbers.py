"""What comes back counts as a number; what goes in may be spelled as in POT; NumPy and jit agree."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from helpers import simplex

from awavo.errors import InputError
from awavo.transport import (
    Circular,
    Polynomial,
    generalized_sliced_wasserstein,
    root,
    sliced_wasserstein,
    wasserstein_1d,
)
from awavo.types import Estimate

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((14, 4)).astype(np.float32), RNG.standard_normal((14, 4)).astype(np.float32) + 0.5
ROWS = np.linalg.qr(RNG.standard_normal((4, 4)))[0].astype(np.float32)


def test_an_estimate_counts_as_its_value():
    found = Estimate(np.float32(2.0), 1.0, 3.0, 10, "m")
    assert found + 1 == 3 == 1 + found
    assert 2 * found - 1 == 3
    assert (found / found, found**2, 2**found, -found, abs(found)) == (1, 4, 4, -2, 2)
    assert 1 < found < 3
    assert found <= found
    assert found == 2
    assert found != 3
    assert found == Estimate(np.float32(2.0), 1.0, 3.0, 10, "m") != found._replace(high=4.0)
    assert f"{found:.2f}" == "2.00"
    assert float(jnp.sqrt(found)) == float(np.sqrt(found)) == pytest.approx(2**0.5)
    assert np.asarray(found, np.float64).dtype == np.float64
    value, low, high, *_ = found
    assert (value, low, high) == (2, 1, 3)


@pytest.mark.parametrize("options", [{"key": 3}, {"slices": ROWS}, {"key": 3, "confidence": None}], ids=str)
@pytest.mark.parametrize("traced", [False, True])
def test_one_type_whatever_the_arguments(options, traced):
    call = lambda x, y: sliced_wasserstein(x, y, **options)  # noqa: E731
    found = (jax.jit(call) if traced else call)(X, Y)
    assert isinstance(found, Estimate)
    assert found.value.shape == found.low.shape == found.high.shape == ()
    if "slices" in options:
        assert found.low == found.value == found.high
        assert "exact" in found.method


CASES = {
    "equal": {},
    "other size": {"y": Y[:9]},
    "weights": {"y": Y[:9], "x_weights": simplex(RNG, 14), "y_weights": simplex(RNG, 9)},
    "ties": {"x": np.round(X), "y": np.round(Y), "x_weights": np.full(14, 1 / 14)},
    "order 1.5": {"y": Y[:9], "order": 1.5},
    "drawn": {"key": 1, "num_slices": 20, "slices": None},
    "cubic": {"defining": Polynomial(), "slices": np.eye(20, dtype=np.float32)},
    "circles": {"defining": Circular(2.0), "y": Y[:9]},
    "chunks": {"chunk": 3},
}


@pytest.mark.parametrize("case", CASES)
def test_numpy_and_jit_agree(case):
    options = {"x": X, "y": Y, "slices": ROWS, **CASES[case]}
    x, y = options.pop("x"), options.pop("y")
    by_numpy = sliced_wasserstein(x, y, **options)
    compiled = jax.jit(lambda x, y: sliced_wasserstein(x, y, **options))(x, y)
    assert isinstance(by_numpy.value, np.floating)
    for one, other in zip(by_numpy[:3], compiled[:3], strict=True):
        assert float(one) == pytest.approx(float(other), rel=2e-5, abs=2e-6)


def test_batches_share_slices_eagerly_and_compiled():
    x, y = np.stack([X, Y, X + Y]), np.stack([Y, Y, X])
    weights = np.stack([simplex(RNG, 14) for _ in range(3)]).astype(np.float32)
    single = [sliced_wasserstein(p, q, key=2, num_slices=8) for p, q in zip(x, y, strict=True)]
    batched = sliced_wasserstein(x, y, key=2, num_slices=8)
    compiled = jax.jit(lambda x, y: sliced_wasserstein(x, y, key=2, num_slices=8))(x, y)
    for found in (batched, compiled):
        np.testing.assert_allclose(found.value, [float(s) for s in single], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.high, [float(s.high) for s in single], rtol=1e-4, atol=1e-6)
    one = sliced_wasserstein(X, Y, weights[0], key=2, num_slices=8)
    many = sliced_wasserstein(x, y, weights, key=2, num_slices=8)
    assert float(many.value[0]) == pytest.approx(float(one), rel=1e-5)


def test_spellings_of_pot():
    a, b = simplex(RNG, 14), simplex(RNG, 14)
    theirs = ot.sliced_wasserstein_distance(X, Y, a, b, projections=ROWS.T, p=3)
    ours = sliced_wasserstein(X, Y, a, b, projections=ROWS.T, p=3, root=True)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)
    assert "root of power 3" in ours.method
    assert float(root(sliced_wasserstein(X, Y, a, b, slices=ROWS, order=3), 3)) == pytest.approx(float(ours), rel=1e-6)
    named = sliced_wasserstein(X, Y, x_weights=a, y_weights=b, num_slices=30, key=4)
    assert sliced_wasserstein(X, Y, a, b, 30, seed=4).value == named.value
    assert named.value == sliced_wasserstein(X, Y, a, b, n_projections=30, seed=np.int64(4)).value
    rooted = sliced_wasserstein(X, Y, seed=0, root=True)
    assert rooted.low < rooted.value < rooted.high


def test_double_precision_is_kept_or_warned_of():
    wide = X.astype(np.float64), Y.astype(np.float64)
    exact = float(wasserstein_like(*wide))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = sliced_wasserstein(*wide, slices=ROWS.astype(np.float64))
        sliced_wasserstein(X, Y, slices=ROWS)  # nothing to warn of
    assert kept.value.dtype == np.float64
    assert float(kept) == pytest.approx(exact, rel=1e-12)
    with pytest.warns(UserWarning, match="computed in float32"):
        wasserstein_1d(wide[0][0], wide[1][0])


def wasserstein_like(x, y):
    rows = ROWS.astype(np.float64)
    return np.mean((np.sort(rows @ x.T) - np.sort(rows @ y.T)) ** 2)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slices": 2 * ROWS}, "length 2, expected 1"),
        ({"key": 0, "seed": 1}, "key and seed were both given"),
        ({"key": 0, "order": 2, "p": 2}, "order and p"),
        ({"key": 0, "a": np.ones(14) / 14, "x_weights": np.ones(14) / 14}, "x_weights and a"),
        ({"key": 0, "target": "populaton"}, "Did you mean 'population'"),
        ({"key": 0, "target": "population", "x": X[:3]}, "at least 4"),
    ],
)
def test_bad_spellings(options, message):
    with pytest.raises(InputError, match=message):
        sliced_wasserstein(options.pop("x", X), Y, **options)


def test_polynomial_coefficients_are_taken_as_they_are():
    rows = 2 * np.eye(20, dtype=np.float32)[:3]
    twice = generalized_sliced_wasserstein(X, Y, slices=rows)
    assert float(twice) == pytest.approx(4 * float(generalized_sliced_wasserstein(X, Y, slices=rows / 2)), rel=1e-5)
