"""ORPO-DR's critics for the flight controller: what they see, what they learn, what the planner makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.control.belief import start_belief
from awavo.control.flight_planner import PlannerConfig, flight_planner, start_detours
from awavo.control.flight_value import FEATURES, Passage, ValueConfig, features, learn_value, value_quantiles
from awavo.tasks.quadrotor.body import hovering
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

P = QuadrotorParams()
FOREST = Forest(*(jnp.array([v]) for v in (1.0, 2.0, 0.5, 3.0)))
SMALL = ValueConfig(hidden=(16,), num_quantiles=8, batch_size=128, num_steps=1000, learning_rate=5e-3, discount=0.8)


def test_features_by_hand():
    time, place = jnp.float32(0.3), jnp.array([0.2, 2.0, 1.0])
    level, zero = jnp.array([1.0, 0, 0, 0]), jnp.zeros(3)
    seen = np.asarray(features(place, zero, level, zero, time, jnp.array([0.0, 0.5, 0]), FOREST, lissajous, P))
    wanted = lissajous(time, P)
    assert seen.shape == (FEATURES,)
    np.testing.assert_allclose(seen[:3], wanted.position - place, atol=1e-6)
    np.testing.assert_allclose(seen[3:6], wanted.velocity, atol=1e-6)
    np.testing.assert_allclose(seen[6:15], [0, 0, 1, 0, 0, 0, 0, 0.5, 0], atol=1e-6)
    close = np.exp(-0.3 / 0.5)
    np.testing.assert_allclose(seen[18:21], [close, close, 0], atol=1e-5)
    two = [jnp.stack([x, x + 0.1], 1) for x in (place, zero, level, zero)]
    both = features(*two, time, jnp.array([0.0, 0.5, 0]), FOREST, lissajous, P)
    np.testing.assert_allclose(both[:, 0], seen, atol=1e-6)
    calm = features(place, zero, level, zero, time, zero, FOREST, lissajous, P._replace(obstacles_on=0.0))
    np.testing.assert_array_equal(calm[18:], 0)


@pytest.fixture(scope="module")
def learned():
    """R earns -0.2 or -0.6 by the toss of a coin and ends; G_1 is 0.1 for ever after the first number is positive."""
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((4000, FEATURES)).astype(np.float32)
    coin = rng.choice([-0.2, -0.6], 4000)
    zero = np.zeros((4000, 4), np.float32)
    once = Passage(seen, zero, np.c_[coin, 0 * coin, 0 * coin], seen, zero, np.ones(4000, bool))
    steady = Passage(seen, zero, np.c_[0 * coin, 0.1 * (seen[:, 0] > 0), 0 * coin], seen, zero, np.zeros(4000, bool))
    learn = jax.jit(learn_value, static_argnums=2)
    return learn(jax.random.key(0), once, SMALL)[0], learn(jax.random.key(0), steady, SMALL)[0], seen


def test_the_critics_learn_the_law_of_the_sum(learned):
    once, steady, seen = learned
    quantiles = np.asarray(value_quantiles(once, seen[:200], np.zeros((200, 4), np.float32))).mean(0)[0]
    np.testing.assert_allclose(np.sort(quantiles)[[0, 1, 2, 5, 6, 7]], [-0.6] * 3 + [-0.2] * 3, atol=0.08)
    np.testing.assert_allclose(quantiles.mean(), -0.4, atol=0.05)
    means = np.asarray(value_quantiles(steady, seen[:400], np.zeros((400, 4), np.float32))).mean(-1)[:, 1]
    clear = np.abs(seen[:400, 0]) > 0.5
    np.testing.assert_allclose(means[clear], 0.5 * (seen[:400, 0] > 0)[clear], atol=0.15)


def test_the_planner_looks_behind_its_horizon(learned):
    config = PlannerConfig(num_detours=32, num_members=2, horizon=4)
    body = hovering(lissajous(jnp.float32(0.0), P).position, P)
    given = (jax.random.key(0), body, jnp.float32(0.0), start_belief(), start_detours(config), FOREST)
    bare = jax.jit(flight_planner(P, lissajous, config))(*given)
    warned = jax.jit(flight_planner(P, lissajous, config, value=learned[1]))(*given)
    assert bare.outlook.shape == (3, 0)
    assert warned.outlook.shape == (3, SMALL.num_quantiles)
    assert np.ptp(np.asarray(warned.log_likelihood - bare.log_likelihood)) > 1.0
