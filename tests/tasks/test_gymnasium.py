"""Our tasks through Gymnasium: registration, its own checker, the cost contract, one environment against many."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from awavo.errors import InputError, UnknownNameError
from awavo.registry import TASKS, make_task
from awavo.tasks.gymnasium import TaskEnv
from awavo.tasks.registration import GYMNASIUM_IDS, register_all
from awavo.types import Box, EnvSpec


def test_registration_is_light_and_done_by_import_alone():
    code = (
        "import sys, gymnasium as gym\n"
        "import awavo.tasks.registration as r; r.register_all(); gym.spec('awavo/Acrobot-v0')\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_ids_follow_the_task_table():
    register_all()
    for env_id, (task, horizon) in GYMNASIUM_IDS.items():
        assert task in TASKS
        spec = gym.spec(env_id)
        assert spec.kwargs == {"task": task, "horizon": horizon}
        if task != "garnet":
            assert make_task(task).spec.horizon == horizon


@pytest.mark.parametrize("env_id", GYMNASIUM_IDS)
def test_gymnasiums_own_checker_passes(env_id):
    env = gym.make("awavo.tasks.registration:" + env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As in classic_control, speeds have no bound.
        warnings.filterwarnings("ignore", message=".*Box observation space m.*infinity")
        # The quadrotor takes what its rate loop takes: thrust in N and rates in rad/s.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")
        check_env(env.unwrapped)
    assert env.spec.max_episode_steps == GYMNASIUM_IDS[env_id][1]
    assert env.unwrapped.cost_space.contains(np.zeros(env.unwrapped.num_costs, np.float32))


@pytest.fixture(scope="module")
def short():
    return gym.make("awavo/CartPole-v0", horizon=5, cost_limits=[3, 4], force=5.0)


def test_cost_contract_of_one_environment(short):
    env = short.unwrapped
    assert (env.num_costs, env.cost_names, env.cost_limits.tolist()) == (2, ("position", "angle"), [3, 4])
    obs, info = short.reset(seed=3)
    assert info.keys() == {"cost", "costs", "cost_position", "cost_angle"}
    assert (info["cost"], info["costs"].tolist()) == (0.0, [0, 0])
    for t in range(5):
        obs, reward, terminated, truncated, info = short.step(t % 2)
        expected = [float(abs(obs[0]) <= 0.1), float(abs(obs[2]) > np.radians(6))]
        assert info["costs"].dtype == np.float32
        assert info["costs"].tolist() == expected
        assert [info["cost_position"], info["cost_angle"]] == expected
        assert type(info["cost"]) is float
        assert info["cost"] == sum(expected)
        assert (type(reward), terminated, truncated) == (float, False, t == 4)
    assert abs(obs[0]) > 0.0
    with pytest.raises(InputError, match="call reset"):
        short.unwrapped.step(0)


def test_seeds_and_fresh_episodes(short):
    first, _ = short.reset(seed=11)
    second, _ = short.reset()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(short.reset(seed=11)[0], first)
    np.testing.assert_array_equal(short.reset()[0], second)


def test_time_limits_do_not_clash(short):
    assert short.spec.max_episode_steps == 5
    shorter = gym.make("awavo/CartPole-v0", horizon=5, cost_limits=[3, 4], force=5.0, max_episode_steps=2)
    shorter.reset(seed=0)
    assert [shorter.step(1)[3] for _ in range(2)] == [False, True]
    assert shorter.spec.max_episode_steps == 2
    vector = gym.make_vec("awavo/CartPole-v0", num_envs=2, max_episode_steps=2)
    assert (vector.task.spec.horizon, vector.spec.max_episode_steps) == (2, 2)


def test_bad_use_is_refused(short):
    short.reset(seed=0)
    with pytest.raises(InputError, match="not in Discrete"):
        short.unwrapped.step(2)
    with pytest.raises(UnknownNameError, match="Did you mean 'horizon'"):
        gym.make("awavo/CartPole-v0", horizn=3)
    with pytest.raises(InputError, match="autoreset_mode"):
        gym.make_vec("awavo/CartPole-v0", num_envs=2, autoreset_mode="Disabled")
    vector = gym.make_vec("awavo/CartPole-v0", num_envs=2)
    with pytest.raises(InputError, match="call reset"):
        vector.step(np.zeros(2, int))
    with pytest.raises(InputError, match="3 seeds"):
        vector.reset(seed=[1, 2, 3])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environment_acts_like_gymnasiums(mode):
    """Against SyncVectorEnv of single environments, through the end of the first episode and the reset after it."""
    ours = gym.make_vec("awavo/CartPole-v0", num_envs=3, autoreset_mode=mode, horizon=9)
    single = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    theirs = gym.make_vec("awavo/CartPole-v0", num_envs=3, horizon=9, **single)
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.observation_space == theirs.observation_space
    (obs, info), (other, other_info) = ours.reset(seed=3), theirs.reset(seed=3)
    np.testing.assert_array_equal(obs, other)
    same_infos(info, other_info)
    known = np.ones(3, bool)
    ended = np.zeros(2, int)
    for _ in range(10):
        action = np.ones(3, np.int64)
        (obs, *mine, info), (other, *others, other_info) = ours.step(action), theirs.step(action)
        done = mine[1] | mine[2]
        if mode is AutoresetMode.SAME_STEP:
            known &= ~done
        np.testing.assert_allclose(obs[known], other[known], atol=1e-6)
        for one, two in zip(mine, others, strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)
        same_infos(info, other_info)
        known &= ~done if mode is AutoresetMode.NEXT_STEP else True
        ended += mine[1].sum(), mine[2].sum()
    assert ended.tolist() == [2, 1]


def same_infos(one, two):
    assert one.keys() == two.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            same_infos(value, two[key])
        elif key == "final_obs":
            for a, b in zip(value, two[key], strict=True):
                assert (a is None) == (b is None)
                assert a is None or np.allclose(a, b, atol=1e-6)
        else:
            np.testing.assert_array_equal(value, two[key])


def test_functional_environments_with_continuous_actions_get_a_face():
    import jax.numpy as jnp

    from awavo.tasks.base import Transition, auto_reset

    def step(key, state, action, params):
        state = state + action
        return state, Transition(state, state[0], jnp.abs(action), jnp.zeros((), bool))

    spec = EnvSpec("mine", 2, Box((-1.0, -2.0), (1.0, 2.0)), 3, ("a", "b"), (1.0, 1.0))
    env = TaskEnv(auto_reset(spec, None, lambda key, params: (jnp.zeros(2), jnp.zeros(2)), step))
    env.reset(seed=0)
    obs, reward, _, _, info = env.step(np.array([0.5, -2.0], np.float32))
    assert (obs.tolist(), reward, info["cost_b"]) == ([0.5, -2.0], 0.5, 2.0)
    assert not env.action_space.contains(np.array([0.5, -2.1], np.float32))


WRONG = {
    "awavo/CartPole-v0": [[5, 0], [-1, 0], [0.0, 1.0], [[0], [1]], [0, 1, 1], 1, [[0], [1, 1]], None],
    "awavo/Navigation-v0": [[0.0, 0.0], [[0.0], [0.0]], np.zeros((2, 3)), np.full((2, 2), np.nan), "up", 1.0],
}


@pytest.mark.parametrize("env_id", WRONG)
def test_actions_of_many_that_would_be_misread_are_refused(env_id):
    envs = gym.make_vec(env_id, num_envs=2)
    envs.reset(seed=0)
    for actions in WRONG[env_id]:
        with pytest.raises(InputError, match=r"^step\(\): actions .*(expected|must lie)"):
            envs.step(actions)


def test_a_box_takes_the_types_of_numbers_that_gymnasiums_own_take():
    env, envs = gym.make("awavo/Navigation-v0"), gym.make_vec("awavo/Navigation-v0", num_envs=1)
    seen = []
    for action in (np.array([1, 0], np.float32), np.array([1.0, 0.0]), np.array([1, 0]), [1.0, 0.0]):
        env.reset(seed=0)
        envs.reset(seed=0)
        seen += [env.step(action)[0].tolist(), envs.step([action])[0][0].tolist()]
    assert all(one == seen[0] for one in seen)
    numbered = gym.make("awavo/CartPole-v0")
    numbered.reset(seed=0)
    assert all(numbered.step(action)[1] == 1.0 for action in (1, True, np.int8(1), np.array(1)))
