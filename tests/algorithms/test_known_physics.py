"""Planning in a task's own physics: what tasks declare, what is identified, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.algorithms import replay as ring
from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.algorithms.known_physics import known_physics
from awavo.errors import ConfigError
from awavo.inference.physics import spread_members
from awavo.registry import make_task
from awavo.runs.problem import checked_physics
from awavo.tasks.base import sum_costs
from awavo.types import Discrete, Rollout

TASKS = {
    "cartpole": {"cart_mass": 2.0, "pole_mass": 0.2},
    "acrobot": {"mass_1": 1.3, "mass_2": 1.7, "on_reach": "continue"},
    "navigation": {"noise": 0.0, "radius": 0.7},
}


def random_steps(env, key, num_envs=4, length=64):
    """A rollout of random actions, and the last states."""
    space = env.spec.action_space

    def step(carry, key):
        state, obs = carry
        act_key, env_key = jax.random.split(key)
        if isinstance(space, Discrete):
            action = jax.random.randint(act_key, (num_envs,), 0, space.num)
        else:
            ends = (jnp.asarray(space.low), jnp.asarray(space.high))
            action = jax.random.uniform(act_key, (num_envs, space.dim), minval=ends[0], maxval=ends[1])
        state, out = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(env_key, num_envs), state, action, env.params)
        row = Rollout(
            obs, action, (), out.reward, out.costs, out.terminated, out.truncated, out.final_obs, out.reward,
            out.costs, jnp.zeros(num_envs, jnp.int32),
        )  # fmt: skip
        return (state, out.obs), row

    start = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), env.params)
    return jax.lax.scan(step, start, jax.random.split(key, length))[1]


@pytest.mark.parametrize("name", TASKS)
def test_declared_physics_are_the_tasks_own_steps(name):
    """From observations alone, with the true parameters: next observation, reward, costs and end."""
    env = sum_costs(make_task(name, **TASKS[name]), 5.0)
    theta = jnp.array([getattr(env.params, field) for field in env.physics.names])

    @jax.jit
    def both(key):
        rows = random_steps(env, key, 2, 16)
        follow = jax.vmap(jax.vmap(env.physics.step, (None, 0, 0)), (None, 0, 0))
        return rows, follow(theta, rows.obs, rows.action), follow(1.2 * theta, rows.obs, rows.action)

    rows, said, other = both(jax.random.key(0))
    for found, happened in zip(said, (rows.next_obs, rows.reward, rows.costs, rows.terminated), strict=True):
        np.testing.assert_allclose(found, happened, atol=2e-5)
    assert float(jnp.abs(other[0] - rows.next_obs).max()) > 1e-4


def test_a_flight_is_followed_from_its_observation():
    """Hidden are rotors and gusts: errors and attitude are told to a tenth of what a step changes, velocity to half."""
    env = make_task("quadrotor", task="FT0")
    theta = jnp.array([getattr(env.params, field) for field in env.physics.names])

    @jax.jit
    def flown(key):
        def step(carry, key):
            state, obs = carry
            action = jnp.array([9.81, 0.0, 0.0, 0.0]) + jnp.array([2.0, 0.5, 0.5, 0.2]) * jnp.sin(9 * state.time * 0.02)
            state, out = env.step(key, state, action, env.params)
            return (state, out.obs), (obs, out.final_obs, env.physics.step(theta, obs, action)[0])

        return jax.lax.scan(step, env.reset(key, env.params), jax.random.split(key, 30))[1]

    before, after, said = flown(jax.random.key(0))
    for part, share in ((slice(0, 3), 0.1), (slice(3, 6), 0.5), (slice(6, 15), 0.2), (slice(21, 30), 0.1)):
        error, change = said[:, part] - after[:, part], after[:, part] - before[:, part]
        assert float(jnp.sqrt(jnp.mean(error**2))) < share * float(jnp.sqrt(jnp.mean(change**2)))


def test_parameters_are_identified_and_both_modes_kept(monkeypatch):
    """CartPole with its half length as the square of a parameter, whose sign no data can tell."""
    for name, value in (("GROUPS", 4), ("PARTICLES", 8), ("ROWS", 64)):
        monkeypatch.setattr(f"awavo.algorithms.known_physics.{name}", value)
    env = make_task("cartpole", cart_mass=2.0, pole_mass=0.2)
    whole = env.physics

    def rooted(theta, obs, action):
        return whole.step(theta.at[2].set(theta[2] ** 2), obs, action)

    physics = whole._replace(low=(*whole.low[:2], -1.4), high=(*whole.high[:2], 1.4), step=rooted)
    model = known_physics(env.spec, physics, AwavoConfig())

    @jax.jit
    def run(key):
        rollout = random_steps(env, key)
        replay = ring.add(ring.empty_replay(env.spec, rollout.reward.size), rollout)
        first = model.init(key)

        def again(state, key):
            return model.identify(key, state, rollout, replay)

        return first, *jax.lax.scan(again, first, jax.random.split(key, 6))

    first, last, info = run(jax.random.key(0))
    low, high = np.array(physics.low), np.array(physics.high)
    truth = np.array([2.0, 0.2, np.sqrt(0.5)])
    shares = np.exp(last.log_shares)
    found, begun = (low + np.asarray(x.particles) * (high - low) for x in (last, first))
    # Cart and pole, and the root but for its sign, within a hundredth (the pole: three) of where the prior looked.
    error = shares @ np.abs(np.abs(found) - truth).mean(1)
    assert (error < np.array([0.01, 0.03, 0.01]) * (high - low)).all()
    assert (np.abs(begun - truth).mean((0, 1)) > 10 * error).all()
    assert 0.1 < shares @ (found[..., 2] > 0).mean(1) < 0.9
    # The members of a plan are particles of both modes, none between them.
    weights = np.repeat(shares / found.shape[1], found.shape[1])
    members = np.asarray(spread_members(jnp.asarray(found.reshape(-1, 3), jnp.float32), jnp.asarray(weights), 5))
    assert set(np.sign(members[:, 2])) == {-1.0, 1.0}
    assert np.abs(members[:, 2]).min() > 0.6
    # New transitions are predicted before they are learnt from.
    assert float(info.model_coverage[-1]) > 0.9


def test_it_plans_and_learns_in_physics():
    """Traced as a whole: the state holds particles in place of networks, and learning returns the same state."""
    env = make_task("cartpole")
    config = AwavoConfig(planning="physics", hidden=(16,), horizon=4, num_sequences=16, num_slices=3, rollout_length=2)
    algorithm = awavo(env.spec, config, physics=env.physics)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    assert state.model.particles.shape == (8, 16, 3)

    def step(key, state):
        action, extras, _ = algorithm.plan(key, state, jnp.zeros((4, 4)), algorithm.begin(4), False)
        zeros = jnp.zeros((2, 4))
        rows = jax.tree.map(lambda x: jnp.stack([x, x]), (action, extras))
        obs, flags = jnp.zeros((2, 4, 4)), jnp.zeros((2, 4), bool)
        costs = jnp.zeros((2, 4, 2))
        rollout = Rollout(obs, *rows, zeros, costs, flags, flags, obs, zeros, costs, zeros.astype(jnp.int32))
        return algorithm.learn(key, state, rollout)[0]

    after = jax.eval_shape(step, jax.random.key(0), state)
    assert jax.tree.map(lambda x: x.shape, after) == jax.tree.map(lambda x: x.shape, state)


def test_what_cannot_be_planned_in_is_refused():
    env = make_task("garnet")
    with pytest.raises(ConfigError, match="'garnet' declares no physics"):
        awavo(env.spec, AwavoConfig(planning="physics"), physics=env.physics)
    with pytest.raises(ConfigError, match=r"cart_mass of 'cartpole' between 0\.2 and 5, but it is 7"):
        checked_physics(make_task("cartpole", cart_mass=7.0))
