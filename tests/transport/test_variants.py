"""Variants against POT, linear programs and what must hold for each of them."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
import scipy.optimize
from helpers import simplex

from awavo.errors import InputError
from awavo.transport import Circular, Polynomial, sliced_distance, sliced_gradient, sliced_plan, sliced_wasserstein
from awavo.transport.partial import partial_line_costs
from awavo.transport.spherical import circle_costs
from awavo.transport.torch_bridge import torch_sliced_wasserstein
from awavo.transport.variants import VARIANTS

RNG = np.random.default_rng(6)
X, Y = RNG.standard_normal((15, 4)).astype(np.float32), RNG.standard_normal((15, 4)).astype(np.float32) + 0.6
A, B = simplex(RNG, 15).astype(np.float32), simplex(RNG, 15).astype(np.float32)


def unit(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_number_that_vanishes_on_equal_clouds(variant):
    x, y = (unit(X), unit(Y)) if variant == "spherical" else (X, Y)
    options = {"variant": variant, "seed": 0, "n_projections": 20}
    far, near, power = (
        sliced_distance(x, y, root=True, **options),
        sliced_distance(x, x, root=True, **options),
        sliced_distance(x, y, **options),
    )
    assert far > 0.05
    assert near < 1e-3
    assert far.low <= far.value <= far.high
    assert float(far) == pytest.approx(float(power) ** 0.5, rel=1e-5)
    assert far.method.startswith("root of power 2")


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("case", ["equal", "sizes", "weights"])
def test_circle_against_pot(order, case):
    x, y = RNG.random(13).astype(np.float32), RNG.random(13 if case == "equal" else 9).astype(np.float32)
    a, b = (simplex(RNG, 13), simplex(RNG, 9)) if case == "weights" else (None, None)
    expected = ot.wasserstein_circle(x.astype(np.float64), y.astype(np.float64), a, b, p=order)[0]
    weights = [None if w is None else w.astype(np.float32) for w in (a, b)]
    costs = jax.jit(lambda x, y, *weights: circle_costs(x, y, *weights, order=order))
    assert costs(x[None], y[None], *weights).item() == pytest.approx(expected, rel=1e-4)


def test_spherical_against_pot_on_the_same_circles():
    frames = np.stack([np.linalg.qr(RNG.standard_normal((4, 2)))[0] for _ in range(6)])
    theirs = ot.sliced_wasserstein_sphere(unit(X), unit(Y), n_projections=6, projections=frames, p=2)
    rows = frames.swapaxes(1, 2).reshape(12, 4)
    ours = sliced_distance(unit(X), unit(Y), variant="spherical", slices=rows, root=True)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-4)
    assert ours.count == 6


@pytest.mark.parametrize("penalty", [0.05, 0.5, 50.0])
def test_partial_is_the_linear_program(penalty):
    x, y = np.sort(RNG.standard_normal(7)), np.sort(RNG.standard_normal(5) + 0.5)
    gain = (x[:, None] - y) ** 2 - 2 * penalty  # a pair saves two points left alone
    rows = np.concatenate([np.kron(np.eye(7), np.ones(5)), np.kron(np.ones(7), np.eye(5))])
    best = scipy.optimize.linprog(gain.ravel(), A_ub=rows, b_ub=np.ones(12)).fun + penalty * 12
    found = np.asarray(partial_line_costs(x[None], y[None], penalty, order=2))
    assert float(found[0]) == pytest.approx(best / 7, rel=1e-4)


@pytest.mark.parametrize("num", [5, 30])
def test_partial_of_a_price_no_pair_reaches_is_transport_and_what_is_left_over(num):
    """In float32 a price a billion times the costs had left nothing of them."""
    x, y = RNG.standard_normal((1, 30)).astype(np.float32), RNG.standard_normal((1, num)).astype(np.float32) + 1
    dear, dearer = (float(partial_line_costs(x, y, np.float32(price), order=2)[0]) for price in (1e2, 1e6))
    over = (30 - num) / 30
    assert dearer - over * 1e6 == pytest.approx(dear - over * 1e2, abs=0.1 if num < 30 else 1e-6)
    if num == 30:
        assert dearer == pytest.approx(np.mean((np.sort(x) - np.sort(y)) ** 2), rel=1e-5)


def test_partial_gradient_moves_matched_points_only():
    x, y = jnp.array([[0.0, 1.0, 9.0]]), jnp.array([[0.5, 1.5, 2.0]])
    slope = np.asarray(jax.jit(jax.grad(lambda x: partial_line_costs(x, y, 1.0, order=2)[0]))(x))
    np.testing.assert_allclose(slope[0], np.array([2 * -0.5, 2 * -0.5, 0.0]) / 3, atol=1e-6)


def test_energy_lies_between_the_average_and_the_largest_slice():
    slices = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
    each = [float(sliced_wasserstein(X, Y, slices=s[None])) for s in slices]
    for energy, weights in (("exponential", np.exp(each)), ("identity", np.array(each))):
        found = sliced_distance(X, Y, variant="energy", slices=slices, energy=energy)
        assert float(found) == pytest.approx(np.average(each, weights=weights), rel=1e-4)
        assert np.mean(each) < found < max(each)


def test_energy_on_hardly_more_than_one_slice_has_no_interval():
    far = sliced_distance(100 * X, 300 * Y, variant="energy", seed=0)
    assert np.isnan(far.low)
    assert np.isnan(far.high)
    near = sliced_distance(X, Y, variant="energy", seed=0)
    assert near.low < near < near.high


@pytest.mark.parametrize("weighted", [False, True])
def test_plans_are_couplings_and_bound_the_distance(weighted):
    a, b = (A, B) if weighted else (np.full(15, 1 / 15), np.full(15, 1 / 15))
    exact = ot.emd2(a.astype(np.float64) / a.sum(), b.astype(np.float64) / b.sum(), ot.dist(X, Y).astype(np.float64))
    options = {"a": A, "b": B} if weighted else {}
    for kind in ("min", "expected"):
        plan = sliced_plan(X, Y, kind, seed=1, n_projections=20, **options)
        dense = np.asarray(plan.dense(15, 15))
        np.testing.assert_allclose(dense.sum(axis=1), a, atol=1e-6)
        np.testing.assert_allclose(dense.sum(axis=0), b, atol=1e-6)
        assert float(plan.estimate) == pytest.approx(float(np.sum(dense * ot.dist(X, Y))), rel=1e-4)
        assert plan.estimate >= exact * (1 - 1e-5)
    assert (
        sliced_plan(X, Y, "min", seed=1, **options).estimate < sliced_plan(X, Y, "expected", seed=1, **options).estimate
    )


def test_plan_of_equal_clouds_costs_nothing_at_order_one():
    assert float(sliced_plan(X, X, order=1, seed=0).estimate) == 0.0


def test_plan_on_a_line_is_optimal():
    line = sliced_plan(X[:, :1], Y[:, :1], slices=np.ones((1, 1)), a=A)
    exact = ot.emd2(A.astype(np.float64) / A.sum(), np.full(15, 1 / 15), ot.dist(X[:, :1], Y[:, :1]).astype(np.float64))
    assert float(line.estimate) == pytest.approx(exact, rel=1e-4)


GRADIENTS = {
    "equal": (Y, {}),
    "sizes": (Y[:9], {}),
    "weights": (Y, {"a": A, "b": B}),
    "order 1.5": (Y[:9], {"p": 1.5}),
    "order 1": (Y, {"p": 1}),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradient_by_numpy_is_that_of_jax(case):
    y, options = GRADIENTS[case]
    wrt = ("x", "y", "x_weights", "y_weights") if case == "weights" else ("x", "y")
    slices = np.linalg.qr(RNG.standard_normal((4, 4)))[0].astype(np.float32)
    by_numpy = sliced_gradient(X, y, slices=slices, wrt=wrt, chunk=3, **options)
    compiled = jax.jit(lambda x, y: sliced_gradient(x, y, slices=slices, wrt=wrt, **options))(X, y)
    assert isinstance(by_numpy.x, np.ndarray)
    for one, other in zip(by_numpy, compiled, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("defining", [Polynomial(1), Polynomial(), Polynomial(rooted=True), Circular(2.0)])
@pytest.mark.parametrize("batch", [False, True])
def test_gradient_through_defining_functions(defining, batch):
    """By NumPy where slices are polynomials; drawn slices follow the function's own distribution."""
    x, y = (np.stack([X, Y]), np.stack([Y, X])) if batch else (X, Y[:9])
    found = sliced_gradient(x, y, seed=0, wrt=("x", "y"), num_slices=8, defining=defining)
    traced = jax.jit(lambda x, y: sliced_gradient(x, y, seed=0, wrt=("x", "y"), num_slices=8, defining=defining))(x, y)
    assert isinstance(found.x, np.ndarray) == (defining in (Polynomial(1), Polynomial()))
    for one, other in zip(found[:3], traced[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5 * np.abs(other).max())
    value = sliced_wasserstein(x, y, seed=0, num_slices=8, defining=defining, confidence=None)
    np.testing.assert_allclose(found.value, value.value, rtol=1e-5)


def test_gradient_of_a_batch():
    x, y = np.stack([X, Y]), np.stack([Y, X])
    batch, single = sliced_gradient(x, y, seed=0), sliced_gradient(Y, X, seed=0)
    np.testing.assert_allclose(batch.x[1], single.x, rtol=1e-5, atol=1e-7)
    assert batch.value.shape == (2,)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sliced_distance(X, Y, variant="maxx", seed=0), "Did you mean 'max'"),
        (lambda: sliced_distance(X, Y, variant="energy", seed=0, penalty=1), "no option 'penalty'"),
        (lambda: sliced_distance(X, Y, variant="energy"), "Neither key nor slices"),
        (lambda: sliced_distance(X, Y, variant="energy", seed=0, slices=np.eye(4)), "given with a key"),
        (lambda: sliced_distance(X, Y, variant="spherical", slices=np.eye(4)[[0, 0]]), "not orthogonal"),
        (lambda: sliced_distance(X, Y, variant="partial", penalty=np.inf, seed=0), "penalty is inf"),
        (lambda: sliced_distance(X, Y, variant="partial", penalty="a", seed=0), "penalty is 'a'"),
        (lambda: sliced_distance(X, Y, variant="partial", penalty=jnp.float32(-1), seed=0), "expected a finite number"),
        (lambda: sliced_distance(X, Y, variant="max"), "No key was given"),
        (lambda: sliced_distance(X, Y, variant="spherical", seed=0), "expected 1: divide points"),
        (lambda: sliced_distance(X, Y, A, variant="partial", seed=0), "points of equal mass"),
        (lambda: sliced_distance(X, Y, variant="partial", penalty=-1, seed=0), "penalty is -1"),
        (lambda: sliced_distance(X, Y, variant="energy", energy="square", seed=0), "no energy 'square'"),
        (lambda: sliced_plan(X, Y, "best", seed=0), "no plan 'best'"),
        (lambda: sliced_gradient(X, Y, seed=0, wrt=("z",)), "no gradient in 'z'"),
        (lambda: sliced_gradient(X[None], Y[None], seed=0, wrt=("x_weights",)), "vmap"),
    ],
)
def test_bad_options(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_without_torch_the_bridge_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InputError, match="torch is not installed"):
        torch_sliced_wasserstein(X, Y, seed=0)


@pytest.fixture
def torch():
    """Torch is no dependency: tests that need it are skipped with a reason where it is missing."""
    return pytest.importorskip("torch", reason="torch is not installed: the bridge is not tested")


def test_torch_value_and_gradients_are_ours(torch):
    x, a = torch.tensor(X, requires_grad=True), torch.tensor(A, requires_grad=True)
    value = torch_sliced_wasserstein(x, torch.tensor(Y), a, seed=3)
    (2 * value).backward()
    ours = sliced_gradient(X, Y, A, seed=3, wrt=("x", "x_weights"))
    assert float(value.detach()) == pytest.approx(float(ours.value), rel=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 2 * ours.x, rtol=1e-5)
    np.testing.assert_allclose(a.grad.numpy(), 2 * ours.x_weights, rtol=1e-4, atol=1e-7)


def test_torch_root_and_batch_and_no_gradient(torch):
    x = torch.tensor(X, requires_grad=True)
    torch_sliced_wasserstein(x, torch.tensor(X), seed=0, root=True).backward()
    assert not x.grad.any()
    with torch.no_grad():
        plain = torch_sliced_wasserstein(x, torch.tensor(Y), seed=0, root=True)
    assert float(plain) == pytest.approx(float(sliced_gradient(X, Y, seed=0).value) ** 0.5, rel=1e-5)
    batch = torch.tensor(np.stack([X, Y]), dtype=torch.float64, requires_grad=True)
    values = torch_sliced_wasserstein(batch, torch.tensor(np.stack([Y, X])).double(), seed=0)
    (values * torch.tensor([1.0, 3.0])).sum().backward()
    assert values.dtype == torch.float64
    np.testing.assert_allclose(batch.grad[1].numpy(), 3 * sliced_gradient(Y, X, seed=0).x, rtol=1e-3, atol=1e-5)


@pytest.mark.bad_input
def test_torch_other_arrays_are_refused(torch):
    with pytest.raises(InputError, match="expected a torch tensor"):
        torch_sliced_wasserstein(X, torch.tensor(Y), seed=0)
