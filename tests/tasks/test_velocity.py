"""The velocity tasks: equal to Gymnasium's environments bit by bit, with Safety-Gymnasium's costs."""

import inspect
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.vector import AutoresetMode

from awavo.errors import InputError
from awavo.registry import HOST_TASKS, make_host_task, resolve
from awavo.tasks.check_env import check_env
from awavo.tasks.registration import HOST_IDS, register_all

mujoco = pytest.importorskip("mujoco")

from awavo.tasks.velocity.bodies import BODIES, RULES  # noqa: E402

NAMES = {
    "halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "ant": "Ant", "swimmer": "Swimmer",
    "humanoid": "Humanoid",
}  # fmt: skip
# Read in the source of Safety-Gymnasium 1.2.0, and which speed its cost looks at.
THRESHOLDS = {
    "halfcheetah": (3.2096, "x"), "hopper": (0.7402, "x"), "walker2d": (2.3415, "x"), "swimmer": (0.2282, "x"),
    "ant": (2.6222, "plane"), "humanoid": (1.4149, "plane"),
}  # fmt: skip
SIZES = {
    "halfcheetah": (17, 17, 6), "hopper": (11, 11, 3), "walker2d": (17, 17, 6), "ant": (27, 105, 8),
    "swimmer": (8, 8, 2), "humanoid": (376, 348, 17),
}  # fmt: skip


def task(body, **options):
    return make_host_task(f"{body}-velocity", **options)


def push(data, model, speed):
    """Throw a body forward: random actions alone seldom reach the speeds that cost."""
    data.qvel[0] = speed
    mujoco.mj_forward(model, data)


def speed_of(body, info):
    return info["x_velocity"] if THRESHOLDS[body][1] == "x" else np.hypot(info["x_velocity"], info["y_velocity"])


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("body", BODIES)
def test_every_step_is_gymnasiums(body, rules, gymnasium_mujoco):
    """States, observations, rewards, costs, ends and the starts after them, from equal seeds and equal states."""
    ours = task(body, num_envs=2, rules=rules, threads=2, horizon=60)
    theirs = [gym.make(f"{NAMES[body]}-{rules}", max_episode_steps=60) for _ in range(2)]
    backend, rng = ours._backend, np.random.default_rng(0)
    starts = np.array([env.reset(seed=5 + i)[0] for i, env in enumerate(theirs)])
    np.testing.assert_array_equal(ours.start([5, 6]), starts.astype(np.float32))
    high, ends, costs = np.array(ours.spec.action_space.high), [0, 0], []
    for t in range(130):
        if t % 20 == 10:  # as fast as the threshold, and a little more or less
            wanted = THRESHOLDS[body][0] * rng.uniform(0.5, 2.0, 2)
            for i, env in enumerate(theirs):
                push(env.unwrapped.data, env.unwrapped.model, wanted[i])
                push(backend.datas[i], backend.model, wanted[i])
            backend._place = backend._read().place
        action = (high * rng.uniform(-1, 1, (2, len(high)))).astype(np.float32)
        out = ours.step(action)
        for i, env in enumerate(theirs):
            obs, reward, terminated, truncated, info = env.step(action[i])
            np.testing.assert_array_equal(out.final_obs[i], obs.astype(np.float32))
            assert out.reward[i] == np.float32(reward)
            assert (out.terminated[i], out.truncated[i]) == (terminated, truncated and not terminated)
            assert out.costs[i, 0] == float(speed_of(body, info) > THRESHOLDS[body][0])
            costs.append(out.costs[i, 0])
            if terminated or truncated:
                ends[int(truncated)] += 1
                np.testing.assert_array_equal(out.obs[i], env.reset()[0].astype(np.float32))
            np.testing.assert_array_equal(backend.datas[i].qpos, env.unwrapped.data.qpos)
            np.testing.assert_array_equal(backend.datas[i].qvel, env.unwrapped.data.qvel)
    assert 0 < sum(costs) < len(costs)
    assert ends[0] > 0 if BODIES[body].healthy else ends == [0, 4]
    ours.close()


@pytest.mark.parametrize("body", BODIES)
def test_what_the_task_says_of_itself(body):
    for rules, size in zip(RULES, SIZES[body], strict=False):
        with task(body, num_envs=1, rules=rules) as env:
            spec = env.spec
            assert (spec.name, spec.obs_dim, spec.action_space.dim) == (f"{body}-velocity", size, SIZES[body][2])
            assert (spec.horizon, spec.cost_names, spec.cost_limits) == (1000, ("velocity",), (25.0,))
    assert BODIES[body].threshold == THRESHOLDS[body][0]
    assert str(THRESHOLDS[body][0]) in HOST_TASKS[f"{body}-velocity"].summary
    assert "name" not in inspect.signature(resolve(f"{body}-velocity", HOST_TASKS, "task")).parameters


def test_backwards_is_free_on_a_line_and_costs_in_the_plane():
    for body, sign, cost in (("halfcheetah", -1, 0), ("halfcheetah", 1, 1), ("ant", -1, 1)):
        with task(body, num_envs=1) as env:
            env.reset(0)
            env._backend.datas[0].qvel[0] = sign * 5.0
            assert env.step(np.zeros((1, env.spec.action_space.dim), np.float32)).costs.tolist() == [[cost]]


@pytest.mark.parametrize(("rules", "paid"), [("v4", 1.0), ("v5", 0.0)])
def test_the_alive_bonus_of_the_last_step_is_that_of_the_rules(rules, paid):
    with task("hopper", num_envs=1, rules=rules) as env:
        env.reset(0)
        env._backend.datas[0].qpos[1] = 0.5
        x = env._backend.datas[0].qpos[0]
        env._backend._place = np.array([[x, 0.0]])
        velocity = []
        start = env._backend._start
        env._backend._start = lambda which: (velocity.append(env._backend.datas[0].qpos[0] - x), start(which))[1]
        out = env.step(np.zeros((1, 3), np.float32))
        assert out.terminated.all()
        np.testing.assert_allclose(out.reward, velocity[0] / env._backend.seconds + paid, rtol=1e-5)


def test_threads_change_nothing():
    seen = []
    for threads in (1, 3):
        with task("hopper", num_envs=5, threads=threads) as env:
            env.reset(3)
            rng = np.random.default_rng(0)
            outs = [env.step(rng.uniform(-1, 1, (5, 3)).astype(np.float32)) for _ in range(60)]
            seen.append([np.array(part) for part in zip(*outs, strict=True)])
    assert seen[0][3].sum() > 5
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="rules='v3' is not one of 'v4', 'v5'"):
        task("hopper", rules="v3")
    with pytest.raises(InputError, match="2 cost limits given"):
        task("hopper", cost_limits=(1, 2))
    with pytest.raises(InputError, match="num_envs=0"):
        task("hopper", num_envs=0)


def test_ids_follow_the_table_and_pass_both_checkers():
    register_all()
    assert [name for name, _ in HOST_IDS.values() if "velocity" in name] == [f"{body}-velocity" for body in BODIES]
    env = gym.make("awavo/HopperVelocity-v0", rules="v5")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box observation space m.*infinity")
        gymnasium_check(env.unwrapped, skip_render_check=True)
    assert env.spec.max_episode_steps == 1000
    _, info = env.reset(seed=3)
    assert info == {"cost": 0.0, "costs": [0.0], "cost_velocity": 0.0}
    env.close()
    assert check_env("hopper-velocity", steps=100) == check_env("awavo/HopperVelocity-v0", steps=100)
    assert not any(finding.level == "error" for finding in check_env("swimmer-velocity", steps=100))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_many_at_once_act_like_gymnasiums_own_vector(mode, gymnasium_mujoco):
    """Against Gymnasium's environments in its SyncVectorEnv, through ends and the starts after them."""
    ours = gym.make_vec("awavo/HopperVelocity-v0", num_envs=3, autoreset_mode=mode)
    theirs = gym.make_vec("Hopper-v4", num_envs=3, vector_kwargs={"autoreset_mode": mode})
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0].astype(np.float32))
    ended, costs, same = 0, 0.0, mode is AutoresetMode.SAME_STEP
    rng = np.random.default_rng(0)
    for _ in range(80):
        action = rng.choice([-1.0, 1.0], (3, 3)).astype(np.float32)
        (obs, reward, *over, info), (other, paid, *also, told) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(obs, other.astype(np.float32))
        np.testing.assert_array_equal(reward, paid.astype(np.float32))
        np.testing.assert_array_equal(over, also)
        speed, cost, done = told.get("x_velocity", np.zeros(3)), info["cost"], np.any(over, 0)
        if same and done.any():  # the end of an episode stands elsewhere
            speed = np.where(done, told["final_info"]["x_velocity"], speed)
            cost = np.where(done, info["final_info"]["cost"], cost)
        np.testing.assert_array_equal(cost, speed > 0.7402)
        ended, costs = ended + done.sum(), costs + cost.sum()
    assert ended > 5
    assert costs > 0
    ours.close()
