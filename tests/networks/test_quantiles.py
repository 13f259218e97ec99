import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.networks.quantiles import bellman_targets, midpoints, quantile_huber

quantile_huber = jax.jit(quantile_huber)  # one program, not one for each operation
bellman_targets = jax.jit(bellman_targets)


def fit(targets, num_quantiles, kappa, steps=4000):
    """Minimise the loss over free quantiles by gradient descent."""
    start = np.zeros((1, 1, num_quantiles), np.float32)
    gradient = jax.grad(lambda q: quantile_huber(q, targets[None, None], kappa))

    def step(q, i):
        return q - 2.0 / jnp.sqrt(1.0 + i / 50) * gradient(q), None

    return np.asarray(jax.lax.scan(step, start, np.arange(steps, dtype=np.float32))[0])[0, 0]


def test_minimiser_is_the_quantile_projection():
    targets = jnp.asarray(np.random.default_rng(0).gamma(2.0, 3.0, 2001), jnp.float32)
    found = fit(targets, 8, kappa=0.01)
    np.testing.assert_allclose(found, np.quantile(np.asarray(targets), midpoints(8)), atol=0.15)


def test_midpoints():
    np.testing.assert_allclose(midpoints(4), [0.125, 0.375, 0.625, 0.875])


def test_termination_cuts_the_bootstrap_and_nothing_else_does():
    signals = jnp.array([[1.0, 2.0], [1.0, 2.0]])
    after = np.full((2, 2, 3), 10.0, np.float32)
    targets = np.asarray(bellman_targets(signals, after, jnp.array([True, False]), 0.9))
    np.testing.assert_allclose(targets[0], [[1.0] * 3, [2.0] * 3])
    np.testing.assert_allclose(targets[1], [[10.0] * 3, [11.0] * 3])


def test_what_counts_after_a_termination_takes_the_place_of_the_bootstrap():
    signals, after = jnp.array([[1.0, 2.0], [1.0, 2.0]]), np.full((2, 2, 3), 10.0, np.float32)
    targets = np.asarray(bellman_targets(signals, after, jnp.array([True, False]), 0.9, jnp.array([0.0, 5.0])))
    np.testing.assert_allclose(targets[0], [[1.0] * 3, [6.5] * 3])
    np.testing.assert_allclose(targets[1], [[10.0] * 3, [11.0] * 3])


def test_no_gradient_into_targets():
    quantiles = np.ones((2, 1, 3), np.float32)
    grads = jax.jit(jax.grad(lambda t: quantile_huber(quantiles, t)))(np.zeros((2, 1, 3), np.float32))
    assert not np.any(grads)


def test_every_signal_gets_gradient():
    quantiles = np.zeros((4, 3, 5), np.float32)
    grads = jax.jit(jax.grad(lambda q: quantile_huber(q, jnp.ones((4, 3, 5)))))(quantiles)
    assert (np.abs(np.asarray(grads)).sum((0, 2)) > 0).all()


@pytest.mark.parametrize("error", [0.5, 3.0, -0.5, -3.0])
def test_loss_by_hand(error):
    loss = float(quantile_huber(np.zeros((1, 1, 1)), np.full((1, 1, 1), error), 1.0))
    huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
    assert loss == pytest.approx(0.5 * huber)
