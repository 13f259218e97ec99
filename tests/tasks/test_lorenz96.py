"""Lorenz-96: the equation, the integrator, the twin experiment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from awavo.errors import InputError
from awavo.tasks.lorenz96 import lorenz96_flow, twin_experiment


def equation(x, forcing):
    num = len(x)
    return np.array([(x[(i + 1) % num] - x[i - 2]) * x[i - 1] - x[i] + forcing for i in range(num)])


def test_flow_is_rk4_of_the_equation():
    x = 2.3 + 3.6 * np.random.default_rng(1).normal(size=20)
    with jax.enable_x64(True):
        ours = lorenz96_flow(5)(jnp.asarray(x), jnp.array([7.0]))
        fine = lorenz96_flow(80, 0.125 / 80)(jnp.asarray(x), jnp.array([7.0]))
    exact = solve_ivp(lambda t, x: equation(x, 7.0), (0, 0.125), x, rtol=1e-11, atol=1e-11).y[:, -1]
    np.testing.assert_allclose(fine, exact, atol=1e-6)
    error = np.abs(np.asarray(ours) - exact).max()
    assert 1e-8 < error < 5e-2


def test_twin_hides_a_third_and_adds_unit_noise():
    twin = twin_experiment(50, seed=4)
    assert twin.seen.sum() == 50 - 16
    np.testing.assert_array_equal(np.isfinite(twin.observed), np.broadcast_to(twin.seen, (32, 50)))
    noise = (twin.observed - twin.truth[1:])[:, twin.seen]
    assert noise.std() == pytest.approx(1.0, abs=0.06)
    assert abs(noise.mean()) < 0.1
    assert twin.truth.std() == pytest.approx(3.64, abs=0.4)
    again, other = twin_experiment(50, seed=4), twin_experiment(50, seed=5)
    np.testing.assert_array_equal(twin.truth, again.truth)
    assert np.abs(twin.truth - other.truth).max() > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_states": 4}, "--states 4 is below 16"),
        ({"num_states": 50, "unobserved": 1.0}, r"--unobserved 1 is not in \[0, 1\)"),
        ({"num_states": 50, "regime": "X"}, "regime 'X' is not one of G, D"),
    ],
)
def test_what_cannot_be_made_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        twin_experiment(**options)
