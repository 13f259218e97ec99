"""The engine: weights, temperature, moving measures, and posteriors that are known exactly."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.inference.wvi import (
    categorical_gswd,
    effective_sample_size,
    infer,
    move_particles,
    move_probabilities,
    tempered_weights,
)
from awavo.transport import Linear, LinearForms, Polynomial, orthogonal_slices, wasserstein_1d

KEY = jax.random.key(0)
tempered_weights = jax.jit(tempered_weights)  # one program, not one for each operation


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_temperature_gives_the_effective_size(share):
    likelihood = (50 * np.random.default_rng(0).normal(size=200)).astype(np.float32)
    weights, temperature = map(np.asarray, tempered_weights(likelihood, share * 200))
    assert float(jax.jit(effective_sample_size)(weights)) == pytest.approx(share * 200, rel=0.02)
    assert temperature > 0
    expected = np.exp((likelihood - likelihood.max()) / temperature)
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-4, atol=1e-30)


def test_equal_likelihoods_weigh_the_same_and_the_minimum_holds():
    weights, _ = tempered_weights(np.zeros(10, np.float32), 3.0)
    np.testing.assert_allclose(weights, 0.1, rtol=1e-6)
    _, temperature = tempered_weights(np.linspace(0.0, 1e-3, 10, dtype=np.float32), 3.0, minimum=1.0)
    assert float(temperature) == 1.0


def measures():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(64, 3)) * 0.3).astype(np.float32)
    y = rng.normal((1.0, -0.5, 0.0), size=(100, 3)).astype(np.float32)
    return x, y, np.exp(y[:, 2] * 2) / np.exp(y[:, 2] * 2).sum()


@pytest.mark.parametrize(("defining", "left"), [(Linear(), 0.03), (LinearForms(2, 3), 0.2)], ids=["linear", "forms"])
def test_particles_approach_the_weighted_measure(defining, left):
    x, y, w = measures()
    slices = orthogonal_slices(KEY, 12, defining.num_coefficients(3))
    move = jax.jit(
        lambda x, num: move_particles(x, y, w, slices, defining=defining, num_steps=num)[1], static_argnums=1
    )
    before, some, many = (float(move(x, num)) for num in (0, 4, 40))
    assert many <= some < before
    assert many < left * before


def test_linear_slices_move_the_mean_at_once():
    x, y, w = measures()
    slices = orthogonal_slices(KEY, 3, 3)
    moved, _ = jax.jit(lambda x: move_particles(x, y, w, slices, defining=Linear(), num_steps=4))(x)
    np.testing.assert_allclose(np.asarray(moved).mean(0), w @ y, atol=0.02)


def test_probabilities_reach_their_target_and_stay_on_the_simplex():
    rng = np.random.default_rng(1)
    for atoms, steps in ((2, 1), (3, 8)):
        start = np.full((5, atoms), 1 / atoms, np.float32)
        target = rng.dirichlet(np.ones(atoms), 5).astype(np.float32)
        defining = Polynomial(3)
        slices = rng.normal(size=(6, defining.num_coefficients(atoms))).astype(np.float32)
        move = jax.jit(partial(move_probabilities, defining=defining, num_steps=steps))
        moved, _ = move(start, target, slices)
        np.testing.assert_allclose(np.asarray(moved).sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(moved, target, atol=1e-3)


def test_distance_of_categoricals_sees_only_what_slices_separate():
    even, odd = jnp.array([[0.5, 0.5, 0.0]]), jnp.array([[0.5, 0.0, 0.5]])
    features = Polynomial(1)
    blind = jnp.array([[[1.0, 0.0, 0.0]]])
    seeing = jnp.array([[[0.0, 1.0, -1.0]]])
    distance = jax.jit(lambda slices: categorical_gswd(even, odd, slices, defining=features))
    assert distance(blind).item() == pytest.approx(0, abs=1e-7)
    assert distance(seeing).item() == pytest.approx(1, rel=1e-5)


def test_the_dense_coupling_agrees_with_the_transport_package():
    """Value, and gradient up to a constant, of laws on four atoms against `wasserstein_1d` with weights."""
    rng = np.random.default_rng(5)
    p, q = (rng.dirichlet(np.ones(4), 3).astype(np.float32) for _ in range(2))
    defining = Polynomial(3)
    slices = rng.normal(size=(3, 5, defining.num_coefficients(4))).astype(np.float32)

    def reference(p):
        features = defining.features(jnp.eye(4))
        points = jax.vmap(lambda rows: defining.project(features, rows))(slices)
        wide = [jnp.broadcast_to(w[:, None], points.shape) for w in (p, q)]
        return wasserstein_1d(points, points, x_weights=wide[0], y_weights=wide[1], order=1.5).mean(1)

    def dense(p):
        return categorical_gswd(p, q, slices, defining=defining, order=1.5)

    (mine, ours), (other, theirs) = (
        map(np.asarray, jax.jit(lambda p, f=f: (f(p), jax.grad(lambda p: f(p).sum())(p)))(p))
        for f in (dense, reference)
    )
    np.testing.assert_allclose(mine, other, rtol=1e-4)
    np.testing.assert_allclose(ours - ours.mean(1, keepdims=True), theirs, rtol=1e-3, atol=1e-4)


def test_linear_gaussian_posterior_is_exact():
    """Mean within 0.15 deviations and deviation within 8% of Kalman's, in three dimensions."""
    rng = np.random.default_rng(3)
    design = rng.normal(size=(4, 3))
    observed = rng.normal(size=4)
    noise = 0.7
    precision = np.eye(3) + design.T @ design / noise**2
    exact_cov = np.linalg.inv(precision)
    exact_mean = exact_cov @ design.T @ observed / noise**2

    def log_density(x):
        return -0.5 * jnp.sum(x**2, 1) - 0.5 * jnp.sum((observed - x @ design.T) ** 2, 1) / noise**2

    @jax.jit
    def run(key):
        prior_key, infer_key = jax.random.split(key)
        prior = jax.random.normal(prior_key, (128, 3))
        lines = lambda k: orthogonal_slices(k, 6, 3)  # noqa: E731
        return infer(infer_key, log_density, prior, slices=lines, defining=Linear(), num_rounds=12, memory=4)

    result = jax.device_get(run(KEY))
    assert float(result.temperature) == 1.0
    deviation = np.sqrt(np.diag(exact_cov))
    np.testing.assert_allclose((result.particles.mean(0) - exact_mean) / deviation, 0, atol=0.15)
    np.testing.assert_allclose(result.particles.std(0) / deviation, 1, atol=0.08)


def test_candidates_of_earlier_rounds_are_kept():
    @partial(jax.jit, static_argnums=0)
    def effective(memory):
        found = infer(
            KEY, lambda x: -0.5 * jnp.sum((x - 3.0) ** 2, -1) / 0.09, jax.random.normal(KEY, (32, 2)),
            slices=lambda key: orthogonal_slices(key, 4, 2), defining=Linear(), num_rounds=16, num_steps=0,
            memory=memory,
        )  # fmt: skip
        return found.effective_size

    # Eight rounds of candidates are worth several times one round, if it is the last eight that are remembered.
    assert float(effective(8)) > 4 * float(effective(1))
