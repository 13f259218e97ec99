"""The flight tasks as environments: switches, costs, marks, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.tracking import Gains, track
from awavo.errors import InputError
from awavo.registry import make_task
from awavo.tasks.check_env import check_env
from awavo.tasks.quadrotor.body import hovering
from awavo.tasks.quadrotor.flight import COST_NAMES, fly, mark_time
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.rate_loop import start_loop
from awavo.tasks.quadrotor.references import lissajous
from awavo.tasks.quadrotor.wind import zone_share

STEPS = 150


@pytest.fixture(scope="module")
def env():
    return make_task("quadrotor", horizon=1000)


@pytest.fixture(scope="module")
def start(env):
    return jax.jit(env.reset)


@pytest.fixture(scope="module")
def flights(env):
    """FT0 to FT3 with the same keys under the tracking law: states and results [task, T, ...]."""

    def fly(params, key):
        reset_key, *keys = jax.random.split(key, STEPS + 1)

        def step(carry, key):
            state = carry
            inner = state.inner
            body = inner.body
            wanted = lissajous(inner.time, params)
            push = inner.filter.force / params.mass
            action = track(body.position, body.velocity, body.attitude, wanted, push, 9.81, Gains())
            state, out = env.step(key, state, action, params)
            return state, (state.inner, out)

        return jax.lax.scan(step, env.reset(reset_key, params)[0], jnp.stack(keys))[1]

    switches = jnp.array([[0, 0], [1, 0], [0, 1], [1, 1.0]])
    run = jax.jit(lambda s, k: fly(env.params._replace(wind_on=s[0], obstacles_on=s[1]), k))
    return jax.device_get([run(s, jax.random.key(4)) for s in switches])


def errors(flight, params):
    state, _ = flight
    return np.linalg.norm(lissajous(state.time, params).position - state.body.position.T, axis=0)


def test_tracking_in_calm_air_is_close(flights, env):
    late = errors(flights[0], env.params)[50:]
    assert np.sqrt((late**2).mean()) < 0.08
    assert (flights[0][1].costs == 0).all()


def test_factors_switch_on_and_off_with_the_same_seed(flights):
    calm, wind, trees, both = (f[0] for f in flights)
    for other in (wind, trees, both):
        np.testing.assert_array_equal(other.forest.x, calm.forest.x)
        np.testing.assert_array_equal(other.air, calm.air)
    assert np.abs(calm.true_force).max() < 1e-5
    assert np.abs(wind.true_force).max() > 0.5
    assert 0.02 < np.abs(trees.true_force).max() < 3


def test_the_filter_follows_the_force(flights):
    state = flights[1][0]
    miss = state.filter.force - state.true_force
    assert np.sqrt((miss[25:] ** 2).mean()) < 0.3
    assert np.sqrt((miss[25:] ** 2).mean()) < 0.5 * np.sqrt((state.true_force[25:] ** 2).mean())


def test_the_second_mark_lies_in_wind_and_near_an_obstacle(env, start):
    state, _ = start(jax.random.key(1), env.params)
    mark = lissajous(mark_time(2, env.params), env.params).position
    assert zone_share(mark, mark, env.params) > 0.95
    assert 0.25 <= clearance(state.inner.forest, mark, env.params) < 0.3


def test_costs_by_hand(env, start):
    step = jax.jit(env.step)
    state, _ = start(jax.random.key(2), env.params)
    forest = state.inner.forest

    def at(gap, tilt=0.0):
        place = jnp.array([forest.x[0] - forest.radius[0] - gap, forest.y[0], 1.5])
        attitude = jnp.array([np.cos(tilt / 2), np.sin(tilt / 2), 0.0, 0.0], jnp.float32)
        body = state.inner.body._replace(position=place, velocity=jnp.zeros(3), attitude=attitude)
        hover = jnp.array([9.81, 0.0, 0.0, 0.0])
        _, out = step(jax.random.key(0), state._replace(inner=state.inner._replace(body=body)), hover, env.params)
        return np.asarray(out.costs), bool(out.terminated)

    assert COST_NAMES == ("clearance", "envelope")
    np.testing.assert_allclose(at(0.25)[0], [0.5, 0], atol=0.03)
    np.testing.assert_allclose(at(0.35)[0], [0, 0], atol=1e-6)
    costs, ended = at(0.15)
    assert ended
    assert costs[0] == env.params.collision_cost
    assert at(0.4, np.radians(35))[0][1] == 1
    assert at(0.4, np.radians(25))[0][1] == 0


def test_the_checker_is_content():
    findings = check_env("quadrotor", steps=60, env_options={"horizon": 60})
    assert [f for f in findings if f.level == "error"] == []


def test_four_motors():
    env = make_task("quadrotor", actuation="motors", reference="snap", task="FT0")
    assert env.spec.action_space.high == (1.0,) * 4
    body, zero = hovering(jnp.array([0.0, 0.0, 1.0]), env.params), jnp.zeros(3)

    @jax.jit
    def fall(throttle):
        def step(_, carry):
            return fly(*carry, jnp.full(4, throttle), zero, zero, env.params, motors=True)[:2]

        return jax.lax.fori_loop(0, 10, step, (body, start_loop(zero)))[0].position[2] - 1.0

    assert abs(fall(0.3)) < 0.01
    assert fall(0.15) < -0.04


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(task="FT4"), "task='FT4' is not one of"),
        (dict(num_obstacles=0), "num_obstacles=0 must be >= 1"),
        (dict(mass=9.0), "mass=9.0"),
        (dict(reference="snap", waypoints=((0, 0, 1),)), "expected \\(W, 3\\)"),
        (dict(waypoints=((0, 0, 1), (1, 1, 1))), "belong to reference='snap'"),
        (dict(drag=1), "no option 'drag'"),
    ],
)
def test_bad_options(options, said):
    with pytest.raises(InputError, match=said):
        make_task("quadrotor", **options)


def test_gymnasium_refuses_nan():
    import gymnasium as gym

    env = gym.make("awavo/Drone-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(InputError, match="not in"):
        env.step(np.full(4, np.nan, np.float32))
