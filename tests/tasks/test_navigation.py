"""The navigation task: its physics by hand, and that the disc is what makes it hard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.tasks.navigation import navigation


def fly(env, steer, seed=0):
    """Return and cost of one episode steered towards waypoints by a damped spring."""
    key = jax.random.key(seed)
    state, obs = env.reset(key, env.params)

    def step(carry, key):
        state, obs, index = carry
        target = steer[index]
        action = jnp.clip(2.0 * (target - obs[:2]) - 2.0 * obs[2:], -1.0, 1.0)
        state, out = env.step(key, state, action, env.params)
        near = jnp.sum((out.final_obs[:2] - target) ** 2) < 0.1
        return (state, out.obs, jnp.minimum(index + near, len(steer) - 1)), (out.reward, out.costs[0])

    start = (state, obs, jnp.zeros((), jnp.int32))
    _, (rewards, costs) = jax.jit(lambda: jax.lax.scan(step, start, jax.random.split(key, env.spec.horizon)))()
    return float(rewards.sum()), float(costs.sum())


def test_the_straight_line_costs_and_the_detour_does_not():
    env = navigation(noise=0.0)
    straight = fly(env, jnp.array([[1.5, 0.0]]))
    round_it = fly(env, jnp.array([[0.0, 0.9], [1.5, 0.0]]))
    assert straight[1] > env.spec.cost_limits[0] + 2
    assert round_it[1] == 0
    assert -12 < round_it[0] < straight[0]


def test_one_step_is_semi_implicit_euler():
    env = navigation(noise=0.0)
    state, _ = env.reset(jax.random.key(0), env.params)
    before = np.asarray(state.inner)
    _, out = env.step(jax.random.key(1), state, jnp.array([0.5, -1.0]), env.params)
    velocity = before[2:] + 0.1 * np.array([0.5, -1.0])
    place = before[:2] + 0.1 * velocity
    np.testing.assert_allclose(out.final_obs, [*place, *velocity], rtol=1e-5)
    distance = np.hypot(place[0] - 1.5, place[1])
    assert float(out.reward) == pytest.approx(-0.1 * distance - 0.01 * 1.25, rel=1e-5)
