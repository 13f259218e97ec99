"""What a vehicle reports, as the state that planners see: a report that is late is no force."""

import jax
import numpy as np
import pytest

from awavo.deploy.estimate import Estimator
from awavo.deploy.mavlink import GRAVITY, Measured, VehicleState
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

HOVER = Measured(np.array([0.0, 0.0, GRAVITY]), GRAVITY)
LEVEL = np.array([1.0, 0, 0, 0])


@pytest.fixture
def estimator():
    return Estimator(QuadrotorParams(), Forest(*np.zeros((4, 3), np.float32)), lissajous)


def report(speed=0.0, age=0.005):
    return VehicleState(np.array([0.0, 0, 1.5]), np.array([speed, 0.0, 0.0]), LEVEL, np.zeros(3), age)


def test_without_a_measurement_the_force_waits(estimator):
    before = estimator.update(report(), HOVER, 0.0).filter
    waiting = estimator.update(report(2.0, age=0.2), None, 0.2)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(waiting.filter), strict=True):
        np.testing.assert_array_equal(old, new)
    assert float(waiting.time) == np.float32(0.2)
    assert float(waiting.body.velocity[0]) == 2.0


def test_velocity_changes_between_reports_and_not_between_decisions(estimator):
    """0.3 m/s in the 0.3 s that reports were away are 1 m/s^2, though the last decision is 0.03 s ago."""
    no_accelerometer = Measured(None, GRAVITY)
    estimator.update(report(), no_accelerometer, 0.0)
    estimator.update(report(age=0.275), None, 0.27)
    after = estimator.update(report(0.3), no_accelerometer, 0.3)
    np.testing.assert_allclose(after.felt, [1.0, 0.0, GRAVITY], atol=1e-3)


def test_the_observation_is_that_of_the_task(estimator):
    assert np.isfinite(np.asarray(estimator.observation(estimator.update(report(), HOVER, 0.0)))).all()
