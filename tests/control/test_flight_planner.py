"""The flight planner: it goes round obstacles, leans against a force, acts as it explains, and reads old settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.belief import start_belief
from awavo.control.flight_planner import DecisionInputs, flight_planner, move_posterior, start_particles
from awavo.control.flight_policy import tick_plan
from awavo.control.planner_config import PlannerConfig, stored_planner
from awavo.errors import InputError
from awavo.tasks.quadrotor.body import hovering
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefState

P = QuadrotorParams()
CONFIG = PlannerConfig(num_candidates=128)
SURE = start_belief()._replace(covariance=1e-3 * jnp.eye(5))


def straight(time, params):
    """Fly along x at 1 m/s, at a height of 1.5 m."""
    zero, one = jnp.zeros_like(time), jnp.ones_like(time)
    return RefState(jnp.stack([time, zero, 1.5 * one]), jnp.stack([one, zero, zero]), jnp.stack([zero, zero, zero]))


@pytest.fixture(scope="module")
def plan():
    return jax.jit(flight_planner(P, straight, CONFIG).plan)


def inputs(y, belief=SURE, key=0):
    """A vehicle on the reference, with a cylinder 0.6 m ahead and `y` beside it."""
    body = hovering(jnp.array([0.0, 0.0, 1.5]), P)._replace(velocity=jnp.array([1.0, 0.0, 0.0]))
    forest = Forest(*(jnp.array([value]) for value in (0.6, y, 0.3, 3.0)))
    return DecisionInputs(jax.random.key(key), body, jnp.float32(0.0), belief, start_particles(CONFIG), forest)


def repeated(plan, y, belief=SURE):
    """The plan after eight decisions of the same state."""
    given = inputs(y, belief)
    for key in jax.random.split(jax.random.key(0), 8):
        made = plan(*given._replace(key=key))
        given = given._replace(particles=made.particles)
    return made


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_it_goes_round_on_the_free_side(plan, side):
    made = repeated(plan, side * 0.55)
    offset = np.asarray(made.particles.mean(0))[:12].reshape(-1, 3)
    assert side * offset[1:3, 1].mean() < -0.05
    # Rolling about x: to the side on which it passes.
    assert side * float(made.action[1]) > 0.1


def test_it_stays_on_a_free_reference(plan):
    made = repeated(plan, 50.0)
    assert np.abs(np.asarray(made.particles.mean(0))[:12]).max() < 0.06
    np.testing.assert_allclose(made.action[0], 9.81, atol=0.8)


def test_it_leans_against_a_believed_force(plan):
    blown = SURE._replace(mean=jnp.array([0.0, 1.0, 0.0, 0.0, 0.0]))
    assert float(repeated(plan, 50.0, blown).action[1]) > float(repeated(plan, 50.0).action[1]) + 0.3


def test_what_is_flown_is_what_is_explained(plan):
    """Acting alone draws the same pool and takes the same action as keeping the posteriors of all coalitions."""
    given = inputs(0.5)
    alone, explained = plan(*given), jax.jit(flight_planner(P, straight, CONFIG).decide)(*given)
    np.testing.assert_allclose(alone.action, explained.action, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(alone.effective_size, explained.effective_size, rtol=1e-3)
    np.testing.assert_array_equal(alone.particles, plan(*given).particles)


def test_the_commands_ahead_fill_the_ticks_until_the_next_plan(plan):
    made = plan(*inputs(50.0))
    # A horizon of 1 s at 50 Hz, each of the model's commands held for its 50 ms.
    ticks = tick_plan(made, CONFIG.dt, 0.02)
    assert ticks.shape == (50, 4)
    np.testing.assert_array_equal(ticks[0], made.action)
    np.testing.assert_array_equal(ticks[[3, 4, 49]], np.asarray(made.ahead)[[1, 1, 19]])
    # The first of them is the action, made again inside the model.
    np.testing.assert_allclose(made.ahead[0], made.action, atol=1e-4)


def test_particles_moved_by_the_sliced_distance_say_more_than_those_drawn():
    rng = np.random.default_rng(0)
    candidates = jnp.asarray(rng.normal(size=(200, 3)) + np.array([2.0, 0.0, -1.0]), jnp.float32)
    weights = jax.nn.softmax(-jnp.sum((candidates - jnp.array([2.5, 0.0, -1.0])) ** 2, 1))

    def miss(move):
        config = PlannerConfig(num_particles=16, move=move, num_slices=16, num_steps=20)
        moved = move_posterior(jax.random.key(0), candidates, weights, config)
        assert moved.shape == (16, 3)
        return float(jnp.abs(moved.mean(0) - weights @ candidates).max())

    drawn = miss("resampling")
    assert drawn < 0.4
    assert miss("agswd") < 0.2 * drawn
    assert miss("cells") < 0.01 * drawn  # cells of equal mass keep the mean


def test_a_move_that_is_none_is_refused():
    with pytest.raises(InputError, match="resampling, agswd"):
        flight_planner(P, straight, PlannerConfig(move="sinking"))


def test_settings_of_old_records_are_read_and_others_refused():
    names = PlannerConfig._fields
    model = ("horizon", "dt", "num_knots", "clearance_margin", "clearance_weight", "tilt_margin", "tilt_weight",
             "velocity_weight", "rate_lag", "lead", "num_near")  # fmt: skip
    new = ("move", "num_slices", "num_steps", "max_rate")
    now = PlannerConfig(temperature=0.2, horizon=7)._asdict()
    old = {name: now[name] for name in names if name not in (*model, *new)} | {"model": {n: now[n] for n in model}}
    found = stored_planner(old)
    assert found == PlannerConfig(temperature=0.2, horizon=7)._replace(max_rate=6.0, move="resampling")
    assert stored_planner(now) == PlannerConfig(**now)
    for wrong in ({"temperature": True}, {"move": 3}, {"wings": 2}, {"horizon": "x"}, {"model": 1}):
        with pytest.raises(ValueError, match=r"setting|move"):
            stored_planner({**now, **wrong})
    with pytest.raises(ValueError, match="missing"):
        stored_planner({name: now[name] for name in names if name != "dt"})
