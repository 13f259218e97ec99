"""A vehicle that is not the one that was told raises an alarm, and its force is known less well."""

import numpy as np
import pytest

from awavo.control.belief import Belief, Watch
from awavo.explain.mismatch import alarm_text, flight_alarms, review
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.params import QuadrotorParams

P = QuadrotorParams()
STEPS = 200
TIMES = 0.02 * np.arange(STEPS)


def flight(mass=0.0, drag=0.0, noise=1.0, surprise=1.0, force=0.0):
    """Beliefs of a flight whose second half is off by so much, time first."""
    late = (TIMES >= 2.0).astype(np.float32)
    mean = np.zeros((STEPS, 5), np.float32)
    mean[:, 0], mean[:, 3], mean[:, 4] = force, mass * late, drag * late
    watch = Watch(
        noise=(P.force_noise * (1 + (noise - 1) * late)) ** 2,
        weight=np.zeros(STEPS, np.float32),  # as in a record without measurements: what was believed counts
        recent=np.zeros((STEPS, 2, 3), np.float32),
        lean=np.zeros((STEPS, 3), np.float32),
        surprise=1 + (surprise - 1) * late,
    )
    return Belief(mean, np.broadcast_to(0.01 * np.eye(5, dtype=np.float32), (STEPS, 5, 5)), watch)


def bodies(speed=2.0):
    rows = np.ones((STEPS, 1), np.float32)
    rotors = np.full(4, np.sqrt(P.mass * P.gravity / 4 / P.thrust_coefficient), np.float32)
    level = np.array([1, 0, 0, 0], np.float32)
    return Body(*(rows * np.asarray(x, np.float32) for x in ([0, 0, 1.5], [speed, 0, 0], level, [0, 0, 0], rotors)))


def alarms(beliefs):
    return flight_alarms(beliefs, review(beliefs, bodies(), TIMES, P), P, TIMES)


def test_a_vehicle_as_told_raises_none():
    small = flight(mass=0.03, drag=0.4, noise=1.5, surprise=1.2, force=2.0)
    assert alarms(small) == []


def test_a_filter_told_of_no_noise_raises_an_alarm_with_a_number():
    beliefs, silent = flight(), P._replace(force_noise=0.0)
    (alarm,) = flight_alarms(beliefs, review(beliefs, bodies(), TIMES, silent), silent, TIMES)
    assert alarm.kind == "noise"
    assert np.isfinite(alarm.value)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("mass", {"mass": 0.1}),
        ("mass", {"mass": -0.1}),
        ("drag", {"drag": 1.0}),
        ("noise", {"noise": 6.0}),
        ("surprise", {"surprise": 3.0}),
    ],
)
def test_each_mismatch_raises_its_alarm_from_its_beginning(kind, change):
    (alarm,) = alarms(flight(**change))
    assert alarm.kind == kind
    np.testing.assert_allclose(alarm.value, change[kind], rtol=1e-5)
    assert alarm.start == 2.0
    assert "(since 2.0 s)" in alarm_text(alarm)


def test_what_does_not_fit_makes_the_force_less_certain():
    def std(**change):
        found = review(flight(**change), bodies(), TIMES, P)
        return np.sqrt(found.covariance[:, [0, 2], [0, 2]])

    calm = std()
    np.testing.assert_allclose(calm, 0.1, rtol=1e-5)
    # A tenth of mass is more than a newton upwards, and a fifth of that stays in doubt; drag is a force along the way.
    assert (std(mass=0.1)[:, 1] > 0.2).all()
    assert (std(drag=1.0)[:, 0] > 1.2 * calm[:, 0]).all()
    # What a mass or a thrust is cannot be told: a force counts with it or without.
    assert (std(mass=0.1, force=2.0)[:, 0] > 0.2).all()
    np.testing.assert_allclose(std(surprise=4.0)[100:], 0.2, rtol=1e-5)
