"""The W2 projection: exact posteriors of linear-Gaussian problems, and what slices outside the tangent space do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.assimilation.projection import project
from awavo.inference.wvi import move_particles
from awavo.transport import orthogonal_slices
from awavo.transport.defining import Linear

UNKNOWNS, RESIDUALS, PARTICLES = 20, 60, 512
KEY = jax.random.key(0)


def tangent_slices(forward, x):
    """An orthonormal basis of range(G') at x: slices of R^N in which a distance to the data is unbiased."""
    return jnp.linalg.qr(jax.jacfwd(forward)(x))[0].T


def dense_step(forward):
    """Return `step(x, z)` for a problem small enough for its Jacobian: QR of G', no normal equations."""

    def step(x, z):
        basis, triangle = jnp.linalg.qr(jax.jacfwd(forward)(x))
        return jax.scipy.linalg.solve_triangular(triangle, basis.T @ (z - forward(x)))

    return step


def project_ensemble(key, forward, datum, start, num_steps):
    """P particles of q*: each is projected on its own noisy copy of the datum."""
    noisy = datum + jax.random.normal(key, (start.shape[0], *datum.shape), datum.dtype)
    step = dense_step(forward)
    return jax.vmap(lambda x, z: project(lambda x, _: step(x, z), x, jnp.arange(num_steps)))(start, noisy)


@pytest.fixture(scope="module")
def linear():
    """A whitened linear problem (prior rows first) with its exact posterior."""
    rng = np.random.default_rng(0)
    design = np.concatenate([np.eye(UNKNOWNS), rng.normal(size=(RESIDUALS - UNKNOWNS, UNKNOWNS)) / 2])
    datum = design @ rng.normal(size=UNKNOWNS) + rng.normal(size=RESIDUALS)
    covariance = np.linalg.inv(design.T @ design)
    return jnp.asarray(design, jnp.float32), jnp.asarray(datum, jnp.float32), covariance @ design.T @ datum, covariance


def spread_ratio(particles, covariance):
    """Standard deviation over the exact one, averaged in quadrature over whitened directions."""
    white = np.linalg.cholesky(np.linalg.inv(covariance)).T @ np.asarray(particles - particles.mean(0), float).T
    return float(np.sqrt(np.mean(white**2) * PARTICLES / (PARTICLES - 1)))


def test_projected_particles_are_the_exact_posterior(linear):
    design, datum, mean, covariance = linear
    start = jnp.zeros((PARTICLES, UNKNOWNS))
    found = project_ensemble(KEY, lambda x: design @ x, datum, start, num_steps=1)
    assert spread_ratio(found, covariance) == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose((found.mean(0) - mean) / np.sqrt(np.diag(covariance)), 0, atol=0.2)


@jax.jit
def follow(x, target, weights, slices, design):
    """Particles moved down the sliced distance of what they predict."""
    return move_particles(x, target, weights, slices, defining=Linear(), num_steps=60, forward=lambda x: x @ design.T)[
        0
    ]


@pytest.mark.parametrize(("kind", "expected", "within"), [("tangent", 1.0, 0.02), ("isotropic", 3**0.5, 0.06)])
def test_tangent_slices_keep_the_spread_and_isotropic_ones_do_not(linear, kind, expected, within):
    """Isotropic slices overstate standard deviations by sqrt(N/n): they fail the 2% that tangent slices pass."""
    design, datum, _, covariance = linear
    keys = jax.random.split(KEY, 3)
    target = datum + jax.random.normal(keys[0], (PARTICLES, RESIDUALS))
    tangent = tangent_slices(lambda x: design @ x, jnp.zeros(UNKNOWNS))
    # As often as there are isotropic ones, which changes no mean over slices: one program for both.
    repeated = jnp.tile(tangent, (RESIDUALS // UNKNOWNS, 1))
    slices = repeated if kind == "tangent" else orthogonal_slices(keys[1], RESIDUALS, RESIDUALS)
    start = jax.random.normal(keys[2], (PARTICLES, UNKNOWNS))
    weights = jnp.full(PARTICLES, 1 / PARTICLES)
    moved = follow(start, target, weights, slices, design)
    ratio = spread_ratio(moved, covariance)
    assert ratio == pytest.approx(expected, abs=within)
    assert (abs(ratio - 1) <= 0.02) == (kind == "tangent")


def test_a_nonlinear_projection_reaches_the_nearest_point():
    """The nearest point of the unit circle, written with an angle."""
    circle = lambda a: jnp.concatenate([jnp.cos(a), jnp.sin(a)])  # noqa: E731
    step = dense_step(circle)
    datum = jnp.array([1.2, 0.6])
    found = project(lambda x, _: step(x, datum), jnp.array([0.1]), jnp.arange(12), radius=0.5)
    np.testing.assert_allclose(found, jnp.arctan2(1.0, 2.0), atol=1e-5)


def test_a_step_that_is_not_finite_is_not_taken_and_a_long_one_is_cut():
    moves = jnp.array([jnp.nan, jnp.inf, 9.0, -0.25])
    np.testing.assert_allclose(project(lambda x, _: moves, jnp.zeros(4), jnp.arange(1), radius=2.0), [0, 0, 2, -0.25])


def test_items_before_the_first_are_left_out():
    data = jnp.array([1.0, 10.0, 100.0])
    ends = [float(jax.jit(lambda n: project(lambda x, z: z, jnp.zeros(()), data, first=n))(n)) for n in (0, 1, 3)]
    assert ends == [111.0, 110.0, 0.0]
