"""AWaVO's flight controller: it goes round obstacles, uses its posterior, and meets deadlines by holding its plan."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.belief import start_belief
from awavo.control.flight_planner import PlannerConfig, flight_planner, start_detours
from awavo.control.realtime import RealTimeLoop
from awavo.tasks.quadrotor.body import hovering
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefState

P = QuadrotorParams()
CONFIG = PlannerConfig(num_detours=64, num_members=2)


def straight(time, params):
    """Fly along x at 1 m/s, at a height of 1.5 m."""
    zero, one = jnp.zeros_like(time), jnp.ones_like(time)
    return RefState(jnp.stack([time, zero, 1.5 * one]), jnp.stack([one, zero, zero]), jnp.stack([zero, zero, zero]))


@pytest.fixture(scope="module")
def decide():
    return jax.jit(flight_planner(P, straight, CONFIG))


def forest(y):
    return Forest(jnp.array([0.6]), jnp.array([y]), jnp.array([0.3]), jnp.array([3.0]))


def repeated(decide, y, belief=None):
    body = hovering(jnp.array([0.0, 0.0, 1.5]), P)._replace(velocity=jnp.array([1.0, 0.0, 0.0]))
    detours, belief = start_detours(CONFIG), belief or start_belief()._replace(covariance=1e-3 * jnp.eye(5))
    for key in jax.random.split(jax.random.key(0), 8):
        decision = decide(key, body, jnp.float32(0.0), belief, detours, forest(y))
        detours = decision.detours
    return decision


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_it_goes_round_on_the_free_side(decide, side):
    decision = repeated(decide, side * 0.55)
    offset = np.asarray(decision.detours.mean(0)).reshape(-1, 3)
    assert side * offset[1:3, 1].mean() < -0.05
    assert decision.clearance > 0.3


def test_it_stays_on_a_free_reference(decide):
    decision = repeated(decide, 50.0)
    assert np.abs(np.asarray(decision.detours.mean(0))).max() < 0.06
    np.testing.assert_allclose(decision.action[0], 9.81, atol=0.8)


def test_it_leans_against_a_believed_force(decide):
    calm, blown = repeated(decide, 50.0), repeated(
        decide, 50.0, start_belief()._replace(mean=jnp.array([0.0, 1.0, 0.0, 0.0, 0.0]), covariance=1e-3 * jnp.eye(5))
    )  # fmt: skip
    assert float(blown.action[1]) > float(calm.action[1]) + 0.3


def test_the_same_key_gives_the_same_decision(decide):
    one, two = repeated(decide, 0.5), repeated(decide, 0.5)
    np.testing.assert_array_equal(one.detours, two.detours)


def test_a_late_plan_is_held_and_shifted():
    plans = iter(range(100))

    def plan(delay):
        time.sleep(delay)
        return 10.0 * next(plans) + np.arange(3.0)[:, None] * np.ones(4)

    loop = RealTimeLoop(plan, period_s=0.05)
    try:
        first = loop.act(0.0)
        assert (first.action[0], first.late) == (0.0, False)
        late = [loop.act(0.3) for _ in range(4)]
        assert [a.late for a in late] == [True] * 4
        assert [a.action[0] for a in late] == [1.0, 2.0, 2.0, 2.0]
        assert [a.age for a in late] == [1, 2, 3, 4]
        time.sleep(0.25)
        assert loop.act(0.0).action[0] >= 10.0
    finally:
        loop.close()


def test_a_planner_that_fails_says_so():
    loop = RealTimeLoop(functools.partial(lambda *_: 1 / 0), period_s=0.05)
    try:
        with pytest.raises(ZeroDivisionError):
            loop.act(None)
    finally:
        loop.close()
