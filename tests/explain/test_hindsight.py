"""Looking back on a flight whose force is known: bursts to the step, mass, thrust and drag told from wind."""

import numpy as np
import pytest

from awavo.control.belief import Belief, Watch
from awavo.explain.hindsight import look_back, still_forces
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.params import QuadrotorParams

P = QuadrotorParams(force_walk=0.3)
STEPS, DT = 400, 0.02
TIMES = DT * np.arange(STEPS)
BLOWS = (TIMES >= 3.0) & (TIMES < 4.0)


def flight(wind=0.0, mass=1.0, thrust_scale=1.0, drag_scale=1.0, noise=1.0, seed=0, silent=()):
    """A flight on a circle that leans as it must, and what its filter took in; `wind` (m/s, to the north) by step."""
    rng = np.random.default_rng(seed)
    velocity = 2 * np.stack([np.cos(1.5 * TIMES), np.sin(1.5 * TIMES), 0 * TIMES], 1)
    acceleration = np.gradient(velocity, DT, axis=0)
    blown = np.zeros((STEPS, 3))
    blown[:, 0] = wind
    attitude, rotors = np.tile([1.0, 0, 0, 0], (STEPS, 1)), np.ones((STEPS, 4))
    # Lean against the force that the drag makes: three rounds find the attitude that goes with it.
    for _ in range(3):
        hover = np.sqrt(P.mass * P.gravity / 4 / P.thrust_coefficient)
        body = Body(np.zeros((STEPS, 3)), velocity, attitude, np.zeros((STEPS, 3)), rotors * hover)
        air = still_forces(body, P)[2]
        force = drag_scale * air.pushed(velocity, blown)
        drag = drag_scale * air.drag(velocity)
        push = mass * P.mass * (acceleration + np.array([0, 0, P.gravity])) - drag - force
        size = np.linalg.norm(push, axis=1)
        axis = push / size[:, None]
        attitude = np.stack([1 + axis[:, 2], -axis[:, 1], axis[:, 0], 0 * size], 1)
        attitude /= np.linalg.norm(attitude, axis=1, keepdims=True)
        rotors = np.sqrt(size / thrust_scale / (P.mass * P.gravity))[:, None] * np.ones(4)
    hover_drag = still_forces(body._replace(attitude=attitude), P)[3]
    felt = (push + drag + force) / (mass * P.mass)
    balance = P.mass * felt - push / thrust_scale - hover_drag
    balance += noise * P.force_noise * rng.normal(size=balance.shape)
    body = body._replace(attitude=attitude, rotors=rotors * hover)
    heard = np.ones(STEPS)
    heard[list(silent)] = 0
    last = np.maximum.accumulate(np.where(heard > 0, np.arange(STEPS), 0))
    recent = np.stack([balance[np.maximum(last - 1, 0)], balance[last]], 1)
    zeros = np.zeros(STEPS)
    watch = Watch(zeros, np.cumsum(heard), recent, np.zeros((STEPS, 3)), zeros + 1)
    return Belief(np.zeros((STEPS, 5)), np.tile(np.eye(5), (STEPS, 1, 1)), watch), body, force


def seen(**change):
    beliefs, body, force = flight(**change)
    found = look_back(beliefs, body, TIMES, P)
    assert found is not None
    return found, force


@pytest.mark.parametrize("speed", [2.0, 8.0])
def test_a_burst_begins_and_ends_where_it_did(speed):
    found, force = seen(wind=speed * BLOWS)
    strong = np.flatnonzero(np.hypot(*found.force[:, :2].T) > np.abs(force[BLOWS]).max(1).mean() / 2)
    begin, end = np.flatnonzero(BLOWS)[[0, -1]]
    assert abs(strong[0] - begin) <= 2
    assert abs(strong[-1] - end) <= 2
    assert np.hypot(*found.force[TIMES > 4.3, :2].T).mean() < 0.08
    assert abs(found.lightness) < 0.01
    assert abs(found.drag_change) < 0.3


@pytest.mark.parametrize(
    "change", [{"mass": 1.1}, {"mass": 0.9}, {"thrust_scale": 0.8}, {"drag_scale": 2.0}, {"noise": 6.0}]
)
def test_what_is_not_wind_is_not_called_so(change):
    found, _ = seen(**change)
    assert np.hypot(*found.force[:, :2].T).mean() < (0.2 if "noise" in change else 0.08)
    light = change.get("thrust_scale", 1.0) / change.get("mass", 1.0) - 1
    assert found.lightness == pytest.approx(light, abs=0.015)
    assert found.noise == pytest.approx(P.force_noise * change.get("noise", 1.0), rel=0.25)


@pytest.mark.parametrize("scale", [0.8, 1.2])
def test_strong_wind_with_a_wrong_thrust_is_held(scale):
    found, force = seen(wind=12.0, thrust_scale=scale)
    miss = (found.force - force)[:, :2]
    square = np.einsum("ti,tij,tj->t", miss, np.linalg.inv(found.covariance[:, :2, :2]), miss)
    assert np.mean(square < 4.61) > 0.85
    assert found.lightness == pytest.approx(scale - 1, abs=0.02)


def test_steps_without_a_measurement_are_known_less():
    silent = range(100, 140)
    found, _ = seen(silent=silent)
    assert found.covariance[120, 0, 0] > 4 * found.covariance[60, 0, 0]


def test_a_record_without_measurements_cannot_be_looked_back_on():
    beliefs, body, _ = flight(silent=range(5, STEPS))
    assert look_back(beliefs, body, TIMES, P) is None


def test_numbers_that_no_vehicle_has_are_refused_quietly():
    beliefs, body, _ = flight()
    fast = body._replace(velocity=1e200 * body.velocity)
    assert look_back(beliefs, fast, TIMES, P) is None
    still = look_back(beliefs, body, TIMES, P._replace(force_noise=0.0, force_walk=0.0))
    assert still is not None
    assert np.isfinite(still.force).all()
