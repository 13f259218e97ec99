"""Bad input gives one clear line outside jit; shapes are checked inside it too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.transport import (
    Circular,
    LinearForms,
    Polynomial,
    adaptive_gswd,
    ascend_slices,
    max_sliced_wasserstein,
    sliced_displacement,
    sliced_wasserstein,
    wasserstein_1d,
)

pytestmark = pytest.mark.bad_input

KEY = jax.random.key(0)
X, Y = np.zeros((4, 2)), np.ones((3, 2))
HOLED = np.array([[0.0, np.nan], [1.0, 1.0]])
ROWS = np.eye(2)

CASES = {
    "nan points": (lambda: sliced_wasserstein(HOLED, Y, key=KEY), "x holds NaN"),
    "infinite points": (lambda: wasserstein_1d([1.0], [np.inf]), "y holds NaN or infinite"),
    "empty": (lambda: sliced_wasserstein(np.zeros((0, 2)), Y, key=KEY), "at least one point"),
    "empty line": (lambda: wasserstein_1d([], [1.0]), "at least one point"),
    "scalar": (lambda: wasserstein_1d(1.0, [1.0]), "at least 1 axes"),
    "complex": (lambda: wasserstein_1d([1j], [1.0]), "real numbers"),
    "negative weights": (lambda: sliced_wasserstein(X, Y, key=KEY, x_weights=[1.5, -0.5, 0, 0]), "negative"),
    "weights of words": (lambda: sliced_wasserstein(X, X, a=["a"] * 4, key=0), "expected real numbers"),
    "masked points": (lambda: sliced_wasserstein(np.ma.masked_array(X, X == 0), Y, key=0), "masked values"),
    "a seed beyond 32 bits": (lambda: sliced_wasserstein(X, Y, seed=2**32), "from 0 to 4294967295"),
    "a negative seed": (lambda: sliced_wasserstein(X, Y, seed=-1), "seed or key is -1"),
    "a fraction as seed": (lambda: sliced_wasserstein(X, Y, seed=0.5), "seed or key is 0.5"),
    "a generator as seed": (
        lambda: sliced_wasserstein(X, Y, seed=np.random.default_rng(0)),
        "seed or key is Generator",
    ),
    "two keys": (lambda: sliced_wasserstein(X, Y, key=jax.random.split(KEY)), r"keys of shape \(2,\)"),
    "long slices": (lambda: sliced_displacement(X, Y, 3 * ROWS), "length 3, expected 1"),
    "unnormalised weights": (lambda: wasserstein_1d([0.0, 1.0], [1.0], x_weights=[1.0, 1.0]), "sums to 2, expected 1"),
    "unnormalised weights in POT's spelling": (
        lambda: sliced_wasserstein([[0.0], [1.0]], [[1.0]], a=[1.0, 1.0], key=0),
        r"x_weights \(a\) sums to 2, expected 1",
    ),
    "weights of other length": (lambda: sliced_wasserstein(X, Y, key=KEY, y_weights=[0.5, 0.5]), r"expected \(3,\)"),
    "other dimension": (lambda: sliced_wasserstein(X, np.ones((3, 5)), key=KEY), "dimension 2 and y 5"),
    "other batch of clouds": (lambda: sliced_wasserstein(X[None], Y, key=KEY), "batch axes"),
    "batch of maxima": (lambda: max_sliced_wasserstein(X[None], Y[None], key=KEY), "vmap"),
    "other batch": (lambda: wasserstein_1d(np.zeros((2, 3)), np.zeros((4, 3))), "batch axes"),
    "order below one": (lambda: wasserstein_1d([0.0], [1.0], order=0.5), "order is 0.5"),
    "order of a wrong type": (lambda: wasserstein_1d([0.0], [1.0], order="2"), "plain number"),
    "even degree": (lambda: Polynomial(degree=2), "mirror image"),
    "degree zero": (lambda: Polynomial(degree=0), "whole number"),
    "even forms": (lambda: LinearForms(degree=4), "mirror image"),
    "no forms": (lambda: LinearForms(num_forms=0), "at least 1"),
    "radius": (lambda: Circular(0.0), "radius is 0.0"),
    "no key": (lambda: sliced_wasserstein(X, Y), "Neither key nor slices"),
    "key and slices": (lambda: sliced_wasserstein(X, Y, key=KEY, slices=ROWS), "slices alone"),
    "slices of other length": (lambda: sliced_wasserstein(X, Y, slices=np.eye(3)), r"expected \(slices, 2\)"),
    "nan slices": (lambda: sliced_wasserstein(X, Y, slices=HOLED), "slices hold NaN"),
    "slices of words": (lambda: sliced_wasserstein(X, Y, slices=[["a", "b"]]), "expected real numbers"),
    "complex slices": (lambda: sliced_wasserstein(X, Y, slices=1j * ROWS), "expected real numbers"),
    "uneven slices": (lambda: sliced_wasserstein(X, Y, slices=[[1.0, 0.0], [1.0]]), "different lengths"),
    "uneven points": (lambda: sliced_wasserstein([[1.0, 0.0], [1.0]], Y, key=KEY), "different lengths"),
    "no slices": (lambda: sliced_wasserstein(X, Y, key=KEY, num_slices=0), "num_slices is 0"),
    "chunk": (lambda: sliced_wasserstein(X, Y, slices=ROWS, chunk=0), "chunk is 0"),
    "confidence": (lambda: sliced_wasserstein(X, Y, key=KEY, confidence=1.5), "confidence is 1.5"),
    "variate of other order": (lambda: sliced_wasserstein(X, Y, key=KEY, order=1, control_variate=True), "order 2"),
    "variate of circles": (
        lambda: sliced_wasserstein(X, Y, key=KEY, defining=Circular(), control_variate=True),
        "linear in the slice",
    ),
    "epsilon alone": (lambda: adaptive_gswd(X, Y, np.ones((1, 4)), epsilon=0.5), "without full_support"),
    "epsilon": (lambda: adaptive_gswd(X, Y, np.ones((1, 4)), epsilon=2, full_support=np.ones((1, 4))), "epsilon is 2"),
    "step": (lambda: ascend_slices(X, Y, ROWS, step=2.0), "step is 2.0"),
    "steps": (lambda: max_sliced_wasserstein(X, Y, key=KEY, num_steps=0), "num_steps is 0"),
    "flow": (lambda: sliced_displacement(X, Y, np.eye(3)), r"expected \(slices, 2\)"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_line(name):
    call, message = CASES[name]
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value) or ":" in str(caught.value)


def test_shapes_are_checked_under_jit_and_values_are_not():
    with pytest.raises(InputError, match="dimension 2 and y 5"):
        jax.jit(lambda x, y: sliced_wasserstein(x, y, key=KEY))(X, np.ones((3, 5)))
    value = jax.jit(lambda x, y: sliced_wasserstein(x, y, slices=jnp.asarray(ROWS)))(HOLED, Y)
    assert np.isnan(value)


def test_known_values_are_checked_while_others_are_traced():
    with pytest.raises(InputError, match="y holds NaN"):
        jax.jit(lambda x: sliced_wasserstein(x, HOLED, key=KEY))(X)


def test_whole_numbers_that_float32_has_not_got_keep_their_digits_or_warn():
    assert float(sliced_wasserstein(np.array([[100_000_001]]), np.array([[100_000_000]]), seed=0, p=1)) == 1.0
    with pytest.warns(UserWarning, match=r"whole numbers above 2\^24"):
        wasserstein_1d(np.array([2**33]), np.array([0]))


def test_other_spellings_of_plain_numbers():
    plain = sliced_wasserstein(X, X + 1, seed=3, p=1, confidence=0.9)
    spelt = sliced_wasserstein(X, X + 1, seed=np.int64(3), p=np.int64(1), confidence=np.float64(0.9))
    assert plain == spelt
    given = sliced_wasserstein(X, X + 1, projections=ROWS.tolist())
    assert given == sliced_wasserstein(X, X + 1, slices=ROWS)
