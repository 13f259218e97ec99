"""The controller in use, asked about wind and obstacles: its own decisions, with the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.flight_planner import PlannerConfig, flight_planner, start_detours
from awavo.explain.asking import flight_factor
from awavo.explain.controller import ask_controller
from awavo.explain.flight import DecisionInputs, flight_params, flight_steps, start_force_belief
from awavo.explain.flight_model import motor_pwm
from awavo.tasks.quadrotor.references import lissajous

CONFIG = PlannerConfig(num_detours=64, num_members=2, num_particles=8)
FACTORS = [flight_factor(name) for name in ("wind", "obstacles")]


@pytest.fixture(scope="module")
def asked():
    """A decision beside an obstacle in a wind of 1.5 N, in free air and in no wind, and what was made of each."""
    params = flight_params("FT3")
    state = flight_steps()[0](jax.random.key(0), params)
    at = state.body.position
    forest = state.forest._replace(
        x=state.forest.x.at[0].set(at[0] + 0.4), y=state.forest.y.at[0].set(at[1]), height=state.forest.height + 5.0
    )
    covariance = jnp.diag(jnp.array([0.02, 0.02, 0.02, 1e-4, 1e-2]))
    windy = start_force_belief()._replace(mean=jnp.array([0.0, 1.5, 0.0, 0.0, 0.0]), covariance=covariance)
    inputs = DecisionInputs(jax.random.key(4), state.body, state.time, windy, start_detours(CONFIG), forest)
    free = inputs._replace(forest=forest._replace(x=forest.x + 1e4))
    still = inputs._replace(belief=windy._replace(mean=jnp.zeros(5)))
    ask = jax.jit(lambda inputs: ask_controller(inputs, FACTORS, params, CONFIG))
    return params, inputs, {"both": ask(inputs), "free": ask(free), "still": ask(still)}


def test_the_last_coalition_is_what_the_controller_does(asked):
    params, inputs, found = asked
    made = jax.jit(flight_planner(params, lissajous, CONFIG))(*inputs)
    np.testing.assert_allclose(found["both"].actions[-1], made.action, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["both"].weights[-1], made.weights, atol=1e-5)
    signal = motor_pwm(made.action[:, None], inputs.body.rates[:, None], params)[:, 0]
    np.testing.assert_allclose(found["both"].parts.sum(0), signal, rtol=1e-4)


def test_what_is_absent_has_no_influence_and_moves_no_motor(asked):
    _, _, found = asked
    assert float(found["free"].influence[1]) == 0.0
    assert float(found["still"].influence[0]) == 0.0
    assert np.abs(found["free"].parts[2]).max() < 1e-3
    assert np.abs(found["still"].parts[1]).max() < 1e-3


def test_what_is_there_shows(asked):
    _, _, found = asked
    assert float(found["both"].influence[1]) > 0.3
    assert np.abs(found["both"].parts[1]).max() > 20
    # The wind blows north: the controller leans against it, whatever the obstacle.
    assert np.abs(found["free"].parts[1]).max() > 20
