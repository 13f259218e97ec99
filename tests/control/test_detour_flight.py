"""The flight tasks for learners over detours: the planner's decisions and tracking law, behind the same task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.detour_flight import detour_flight
from awavo.control.flight_planner import DEFAULT, flight_planner
from awavo.control.flight_policy import flight_policy
from awavo.registry import make_task
from awavo.tasks.quadrotor.references import lissajous

STEPS = 40


@pytest.fixture(scope="module")
def flown():
    """Rewards, costs and last place of a flight for an action that never changes, and of the tracking law."""
    env, plain = detour_flight(task="FT3"), make_task("quadrotor", task="FT3")
    law, _ = flight_policy(plain, "track")

    def fly(task, act):
        state, obs = task.reset(jax.random.key(3), task.params)

        def step(carry, t):
            state, obs = carry
            state, out = task.step(jax.random.key(t), state, act(state, obs), task.params)
            return (state, out.obs), (out.reward, out.costs)

        (state, _), signals = jax.lax.scan(step, (state, obs), jnp.arange(STEPS))
        return *signals, state.inner.body.position

    constant = jax.jit(lambda action: fly(env, lambda state, obs: action))
    tracked = jax.jit(lambda: fly(plain, lambda state, obs: law(jax.random.key(0), state, obs, ())[0]))
    return constant, tracked


def test_no_detour_is_the_tracking_law(flown):
    constant, tracked = flown
    for own, wanted in zip(constant(jnp.zeros(9)), tracked(), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-4)


def test_detours_lead_away_and_are_bounded(flown):
    constant, _ = flown
    aside = jnp.zeros(9).at[jnp.array([0, 3])].set(0.3)
    place, moved, far = (constant(x)[2] for x in (jnp.zeros(9), aside, 1e6 * aside))
    assert 0.1 < float(moved[0] - place[0]) < 0.4
    assert np.isfinite(far).all()
    assert float(far[0] - place[0]) < 1.0


def test_a_decision_commands_what_the_planner_would():
    env, plain = detour_flight(task="FT1"), make_task("quadrotor", task="FT1")
    state, _ = env.reset(jax.random.key(0), env.params)
    model = flight_planner(plain.params, lissajous, DEFAULT).model
    rng = np.random.default_rng(0)
    now, later, brace = (jnp.asarray(rng.normal(0, 0.1, 3), jnp.float32) for _ in range(3))
    decision = jnp.concatenate([now, later, jnp.zeros(6), state.inner.filter.force + brace])
    wanted = model.command(state.inner.body, state.inner.time, decision[None])[:, 0]
    key = jax.random.key(1)
    (_, own), (_, out) = (
        jax.jit(env.step)(key, state, jnp.concatenate([now, later, brace]), env.params),
        jax.jit(plain.step)(key, state, wanted, plain.params),
    )
    np.testing.assert_allclose(own.obs, out.obs, rtol=1e-4, atol=1e-4)
