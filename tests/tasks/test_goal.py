"""The goal task: layouts, lidars, rewards, and the statistics of a random policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from task_rollouts import first_episodes, simulate

from awavo.errors import InputError
from awavo.registry import make_task
from awavo.tasks.goal.lidar import compass, lidar_plane, lidar_space
from awavo.tasks.goal.rules import GoalParams, GoalState, Layout, draw_goal, sample_layout, score

PARAMS = GoalParams()
# One program each, not one for each operation.
score = jax.jit(score, static_argnums=4)
lidar_plane, lidar_space = jax.jit(lidar_plane), jax.jit(lidar_space)


@pytest.fixture(scope="module")
def layouts():
    keys = jax.random.split(jax.random.key(0), 300)
    return jax.device_get(jax.jit(jax.vmap(lambda k: sample_layout(k, PARAMS, 8, True)))(keys))


def test_objects_keep_apart_and_inside(layouts):
    places = np.concatenate([layouts.start[:, None], layouts.goal[:, None, :2], layouts.hazards[:, :, :2]], 1)
    gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) + 9 * np.eye(10)
    assert gaps.min() >= 0.8 - 1e-6
    assert np.abs(places).max() <= 1.6
    assert np.abs(places).max() > 1.5
    heights = np.concatenate([layouts.goal[:, 2:], layouts.hazards[:, :, 2]], 1)
    assert 0.5 <= heights.min() < 0.52
    assert 1.48 < heights.max() <= 1.5
    distance = np.linalg.norm(layouts.goal[:, :2] - layouts.start, axis=1)
    assert abs(distance.mean() - 1.86) < 0.15


def place(goal, hazards=((1.5, 1.5, 0.0),)):
    return Layout(np.zeros(2, np.float32), np.float32(0), np.float32(goal), np.float32(hazards))


def test_reward_and_cost_by_hand():
    state = GoalState(place((1.0, 0.0, 1.0), ((0.2, 0.0, 1.0), (0.0, -0.25, 1.0))), np.float32(1.2))
    new, out = score(jax.random.key(0), state, jnp.array([0.0, 0.0, 1.0]), PARAMS, True)
    assert not out.reached
    np.testing.assert_allclose([out.reward, out.cost, new.distance], [0.2, 0.1 + 0.05, 1.0], rtol=1e-5)
    flat, out = score(jax.random.key(0), state, jnp.array([0.0, 0.0, 9.0]), PARAMS, False)
    np.testing.assert_allclose([out.cost, flat.distance], [0.15, 1.0], rtol=1e-5)


def test_a_goal_reached_moves_without_a_jump_in_the_distance():
    state = GoalState(place((0.3, 0.0, 0.7)), np.float32(0.6))
    new, out = score(jax.random.key(1), state, jnp.array([0.0, 0.0, 0.7]), PARAMS, True)
    assert out.reached
    assert not out.stuck
    np.testing.assert_allclose(out.reward, 1.3, rtol=1e-5)
    goal = np.asarray(new.layout.goal)
    assert goal[2] == np.float32(0.7)
    assert np.linalg.norm(goal[:2]) >= 0.8
    np.testing.assert_allclose(new.distance, np.linalg.norm(goal - np.float32([0.0, 0.0, 0.7])), rtol=1e-5)


def test_a_goal_without_room_ends_the_episode():
    grid = np.stack(np.meshgrid(*[np.linspace(-1.6, 1.6, 6)] * 2), -1).reshape(-1, 2)
    hazards = np.c_[grid, np.zeros(36)].astype(np.float32)
    _, found = jax.jit(draw_goal)(jax.random.key(0), np.array(True), hazards, np.zeros(2), PARAMS)
    assert not found
    state = GoalState(place((0.1, 0.0, 0.0))._replace(hazards=hazards), np.float32(0.1))
    _, out = score(jax.random.key(0), state, np.zeros(3), PARAMS, False)
    assert out.stuck


def test_lidar_in_the_plane():
    seen = np.asarray(lidar_plane(np.float32([[2.0, 0.0, 5.0]])))
    value = np.exp(-2.0)
    np.testing.assert_allclose(seen[0], value, rtol=1e-5)
    np.testing.assert_allclose(seen[15], value, rtol=1e-5)
    assert np.delete(seen, [0, 15]).max() == 0.0
    quarter = np.asarray(lidar_plane(np.float32([[np.cos(0.5), np.sin(0.5), 0.0], [3.0, 0.1, 0.0]])))
    alpha = 0.5 * 16 / (2 * np.pi) - 1
    np.testing.assert_allclose(quarter[1:3], np.exp(-1.0) * np.array([1, alpha]), rtol=1e-4)
    np.testing.assert_allclose(quarter[0], max(np.exp(-1.0) * (1 - alpha), np.exp(-np.hypot(3, 0.1))), rtol=1e-4)


def test_lidar_in_space():
    above = np.asarray(lidar_space(np.float32([[0.0, 0.0, 1.0]]))).reshape(10, 6)
    np.testing.assert_allclose(above[0, 5], np.exp(-1.0), rtol=1e-4)
    ahead = np.asarray(lidar_space(np.float32([[np.cos(0.1), np.sin(0.1), 0.05]]))).reshape(10, 6)
    assert np.argmax(ahead) == 3
    assert float(ahead[1, 3]) > 0
    assert float(ahead[9, 3]) > float(ahead[1, 3])
    assert (np.asarray(ahead) > 0).sum() == 5


def test_compass():
    np.testing.assert_allclose(compass(jnp.array([3.0, 4.0, 9.0]), 2), [0.6, 0.8], atol=2e-4)
    assert compass(np.zeros(3, np.float32), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(num_hazards=40), "40 hazards with keepout=0.4 find no place"),
        (dict(keepout=2.5), "keepout=2.5 must be below arena=2.0"),
        (dict(arena=float("nan")), "arena=nan is not a finite number"),
        (dict(goal_radius=0.9), "must stay within two keepouts"),
        (dict(cost_limits=(1, 2)), "2 cost limits given"),
        (dict(num_hazard=3), "Did you mean 'num_hazards'"),
    ],
)
def test_bad_layouts_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        make_task("drone", **options)


def test_random_drone_statistics():
    """Of a Gaussian policy (standard deviation 0.6), 16 episodes: return -1.9 +- 1.8, cost 0.5 +- 1.0, no goals."""
    actions = (0.6 * np.random.default_rng(0).standard_normal((1000, 16, 4))).astype(np.float32)
    _, out = simulate(make_task("drone"), actions)
    returns, costs = first_episodes(out)
    assert abs(returns.mean() + 1.9) < 3 * 1.8 / np.sqrt(16)
    assert abs(costs.mean() - 0.5) < 3 * 1.0 / np.sqrt(16)
    assert (out.reward > 0.5).sum() / 16 < 0.25
