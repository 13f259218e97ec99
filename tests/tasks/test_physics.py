"""CartPole and Acrobot against Gymnasium's classic_control, and their costs against cases computed by hand."""

import functools
import math

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from task_rollouts import first_episodes, simulate

from awavo.tasks.acrobot import AcrobotParams, acrobot, acrobot_costs, acrobot_dynamics, tip_height
from awavo.tasks.base import Clocked
from awavo.tasks.cartpole import BANDS, CartPoleParams, cartpole, cartpole_costs, cartpole_dynamics

STEPS = 10_000
MORE = 2_000


def reference_steps(name):
    """States, actions, next states and terminations of the Gymnasium environment, in its own double precision.

    STEPS uniformly random actions; then some that follow the last speed half of the time, which swings Acrobot up.
    """
    env = gym.make(name, max_episode_steps=500).unwrapped
    rng = np.random.default_rng(1)
    rows = []
    env.reset(seed=1)
    time = 0
    for step in range(STEPS + MORE):
        state, action = np.array(env.state), int(rng.integers(env.action_space.n))
        if step > STEPS and rng.random() < 0.5:
            action = (env.action_space.n - 1) * int(state[3] > 0)
        _, _, terminated, _, _ = env.step(action)
        rows.append((state, action, np.array(env.state), terminated))
        time += 1
        if terminated or time == 500:
            env.reset()
            time = 0
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def angle_error(ours, theirs, angles):
    error = np.asarray(ours, np.float64) - theirs
    error[:, angles] -= 2 * np.pi * np.round(error[:, angles] / (2 * np.pi))
    return np.abs(error).max()


@pytest.mark.parametrize(
    ("name", "env", "dynamics", "params", "angles"),
    [
        ("CartPole-v1", cartpole(), cartpole_dynamics, CartPoleParams(), []),
        ("Acrobot-v1", acrobot(on_reach="terminate"), acrobot_dynamics, AcrobotParams(), [0, 1]),
    ],
    ids=["cartpole", "acrobot"],
)
def test_parity_with_classic_control(name, env, dynamics, params, angles, record_property):
    state, action, next_state, terminated = reference_steps(name)
    step = jax.jit(jax.vmap(functools.partial(env.step, jax.random.key(0)), (0, 0, None)))
    _, out = step(Clocked(jnp.float32(state), jnp.zeros(STEPS + MORE, jnp.int32)), jnp.int32(action), params)
    np.testing.assert_array_equal(out.terminated, terminated)
    assert terminated.sum() >= 10
    assert not np.any(out.truncated)
    after = jax.jit(jax.vmap(dynamics, (0, 0, None)))(jnp.float32(state), jnp.int32(action), params)
    single = angle_error(after, next_state, angles)
    with jax.enable_x64(True):
        after = jax.jit(jax.vmap(dynamics, (0, 0, None)))(jnp.float64(state), jnp.int32(action), params)
        double = angle_error(after, next_state, angles)
    record_property("state_error_float32", float(single))
    record_property("state_error_float64", float(double))
    assert single <= 1e-5
    assert double <= 1e-12


def at(x=0.5, theta=0.0):
    return jnp.array([x, 0.0, theta, 0.0], jnp.float32)


@pytest.mark.parametrize(("low", "high"), BANDS)
def test_cartpole_bands_are_closed(low, high):
    costs = jax.vmap(cartpole_costs, (0, None))
    outside = np.nextafter(np.float32([low, high]), np.float32([-9, 9]))
    states = jnp.stack([at(x) for x in (low, (low + high) / 2, high, *outside)])
    assert costs(states, CartPoleParams())[:, 0].tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("degrees", "cost"), [(0, 0), (5.99, 0), (-5.99, 0), (6.01, 1), (-6.01, 1), (11.9, 1)])
def test_cartpole_leaning_costs_beyond_six_degrees(degrees, cost):
    assert cartpole_costs(at(theta=math.radians(degrees)), CartPoleParams()).tolist() == [0, cost]


def test_cartpole_costs_belong_to_the_state_after_the_step(random_cartpole):
    _, obs, out = random_cartpole
    costs = jax.jit(jax.vmap(jax.vmap(cartpole_costs, (0, None)), (0, None)))
    np.testing.assert_array_equal(out.costs, costs(out.final_obs, CartPoleParams()))
    assert (out.costs != costs(obs, CartPoleParams())).any((0, 1)).all()


@pytest.mark.parametrize(
    ("gate", "speeds", "torque", "costs"),
    [
        ("nonzero_torque", (1, 1), 0, [0, 0]),
        ("nonzero_torque", (1, 1), -1, [1, 1]),
        ("nonzero_torque", (1, -1), 1, [1, 0]),
        ("nonzero_torque", (-1, 1), 1, [0, 1]),
        ("nonzero_torque", (-1, -1), -1, [0, 0]),
        ("nonzero_torque", (0, 0), 1, [0, 0]),
        ("lineage", (-1, -1), -1, [0, 0]),
        ("lineage", (-1, -1), 0, [1, 1]),
        ("lineage", (-1, 1), 1, [1, 0]),
        ("none", (1, 1), 0, [0, 1]),
        ("none", (1, -1), 1, [1, 0]),
    ],
)
def test_acrobot_cost_gates(gate, speeds, torque, costs):
    state = jnp.array([0.3, 0.2, *speeds], jnp.float32)
    assert acrobot_costs(state, jnp.int32(torque + 1), gate).tolist() == costs


def test_tip_height():
    hanging, upright, folded = jnp.zeros(4), jnp.array([jnp.pi, 0, 0, 0]), jnp.array([0, jnp.pi, 0, 0])
    np.testing.assert_allclose([tip_height(s) for s in (hanging, upright, folded)], [-2, 2, 0], atol=1e-6)


@pytest.mark.parametrize(("on_reach", "reward"), [("reset", 135), ("continue", 194)])
def test_acrobot_policies_of_the_task_sheet(on_reach, reward):
    """One that never pays earns 135 (reset) or 194 (continue); no torque earns 0; a random one pays 168 and 167."""
    number = 100
    random = np.random.default_rng(0).integers(3, size=(500, number)).astype(np.int32)
    which = np.repeat([0, 1, 2], number)
    inputs = np.stack([np.broadcast_to(which, (500, 3 * number)), np.tile(random, 3)], -1)

    def policy(obs, given):
        pump = jnp.where((obs[4] < 0) & (obs[5] < 0), 0, 1)
        return jnp.select([given[0] == 0, given[0] == 1], [1, pump], given[1])

    _, out = simulate(acrobot(on_reach=on_reach), inputs, policy=policy)
    assert out.truncated[-1].all()
    assert not out.truncated[:-1].any()
    assert not out.terminated.any()
    totals, costs = first_episodes(out)
    zero, pump, any_ = (slice(i * number, (i + 1) * number) for i in range(3))
    assert totals[zero].max() == 0
    assert costs[zero].max() == 0
    assert costs[pump].max() == 0
    assert abs(totals[pump].mean() - reward) < 8
    np.testing.assert_allclose(costs[any_].mean(0), [168, 167], atol=5)


def test_random_cartpole_statistics(random_cartpole):
    totals, costs = first_episodes(random_cartpole[2])
    assert abs(totals.mean() - 22.5) < 1.5
    np.testing.assert_allclose(costs.mean(0), [18.4, 7.1], atol=1.2)
