"""The navigation tasks, against what Safety-Gymnasium 1.0.0 was recorded to do, and against slow rules of their own."""

import functools
import inspect
import math
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from awavo.errors import InputError
from awavo.registry import HOST_TASKS, make_host_task, resolve
from awavo.tasks.check_env import check_env
from awavo.tasks.registration import HOST_IDS, register_all

mujoco = pytest.importorskip("mujoco")

from awavo.tasks.arena.glide import Glide  # noqa: E402
from awavo.tasks.arena.gremlins import HEIGHT, Track, targets  # noqa: E402
from awavo.tasks.arena.layouts import Numbers  # noqa: E402
from awavo.tasks.arena.models import Scene, build_model  # noqa: E402
from awavo.tasks.arena.senses import BINS, OWN, lidars  # noqa: E402
from awavo.tasks.arena.settings import ARENAS  # noqa: E402

NAMES = [f"{agent}-{arena}" for agent in ("point", "car") for arena in ARENAS]
SIZES = {"goal": (60, 72), "button": (76, 88), "push": (76, 88), "circle": (28, 40)}


@functools.cache
def reference():
    return np.load(Path(__file__).with_name("arena_reference.npz"))


def recorded(name, part):
    agent, arena = name.split("-")
    front = f"{agent.capitalize()}{arena.capitalize()}/{part}/"
    kept = reference()
    return {key.removeprefix(front): kept[key] for key in kept.files if key.startswith(front)}


def statics(name):
    agent, arena = name.split("-")
    return reference()[f"{agent.capitalize()}{arena.capitalize()}/statics"]


def zeros(env):
    return np.zeros((env.num_envs, 2), np.float32)


def wakes(backend):
    centres = backend.world.places.get("gremlins", backend.bodies.pose[..., :2])
    return backend.physics._who_wakes(backend.bodies, backend._solids(backend.world), centres)


def placed(world, i, bodies):
    """Places of all things of environment i, in the order in which they are drawn."""
    free = {"vases", "box"} & set(world.places)
    return np.concatenate([bodies.pose[i, :, :2] if name in free else xy[i] for name, xy in world.places.items()])


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_start_as_safety_gymnasium_does(name):
    """Places, headings, goals and observations, also of the episode after the first."""
    told, kind = recorded(name, "starts"), ARENAS[name.split("-")[1]].kind
    with make_host_task(name, num_envs=2, horizon=7) as env:
        backend = env._backend
        for again in (0, 1):
            obs = env.start([0, 1]) if not again else [env.step(zeros(env)) for _ in range(7)][-1].obs
            for i, row in enumerate((again, 2 + again)):
                np.testing.assert_allclose(backend.bodies.qpos[i, :2], told["agent"][row], atol=1e-12)
                if kind != "circle":
                    np.testing.assert_allclose(
                        placed(backend.world, i, backend.bodies), told["places"][row], atol=1e-12
                    )  # fmt: skip
                # Whether a car's wheels touch the floor at the very start is a matter of rounding.
                felt = 3 if name.startswith("car") else 0
                np.testing.assert_allclose(obs[i, felt:], told["obs"][row, felt:], atol=2e-6)


def set_states(env, told, solids):
    """Put recorded states into as many environments."""
    backend, num = env._backend, len(told["reward"])
    for part in ("qpos", "qvel", "pose", "twist", "steps"):
        getattr(backend.bodies, part)[:] = told[part]
    world = backend.world
    for part in ("button", "timer", "last"):
        getattr(world, part)[:] = told[part]
    if "goal" in world.places:
        world.places["goal"][:, 0] = told["goal"]
    first = 0
    for name in ("buttons", "hazards", "pillars"):
        if name in world.places:
            count = world.places[name].shape[1]
            world.places[name][:] = solids[first : first + count]
            first += count
    assert first == len(solids)
    if "gremlins" in world.places:  # centres and turns as drawn from the recorded seed
        world.places["gremlins"][:], world.turned[:] = world.places["gremlins"][:1], world.turned[:1]
    return num


@pytest.mark.parametrize("name", NAMES)
def test_single_steps_are_safety_gymnasiums(name):
    """From equal states beside and on things. Where something can be touched, versions of MuJoCo differ a little."""
    told = recorded(name, "steps")
    agent, arena = name.split("-")
    spec, num, own = ARENAS[arena], len(told["reward"]), OWN[agent]
    with make_host_task(name, num_envs=num, costs="each", cost_limits=(25.0,) * len(spec.costs)) as env:
        env._backend.restart(np.zeros(1, int), [50])
        env._obs = env._backend._seen
        set_states(env, told, statics(name))
        backend = env._backend
        awake, beside = wakes(backend)
        alone = ~(awake.any(1) | beside)
        out = env.step(told["action"])
        if "goal" in spec.lidars:  # after a goal is met, another is seen, which was drawn from other numbers
            first = own + BINS * spec.lidars.index("goal")
            out.final_obs[told["met"], first : first + BINS] = told["obs"][told["met"], first : first + BINS]
        np.testing.assert_allclose(backend.bodies.qpos[alone], told["after_qpos"][alone], atol=1e-6)
        np.testing.assert_allclose(backend.bodies.qvel[alone], told["after_qvel"][alone], atol=1e-4)
        np.testing.assert_allclose(out.reward[alone], told["reward"][alone], atol=1e-7)
        np.testing.assert_array_equal(out.costs[alone], told["costs"][alone])
        np.testing.assert_allclose(out.final_obs[alone, :own], told["obs"][alone, :own], rtol=1e-4, atol=2e-4)
        # Gremlins may be a millimetre off in their first steps.
        np.testing.assert_allclose(out.final_obs[alone, own:], told["obs"][alone, own:], atol=2e-3)
        np.testing.assert_array_equal(backend.world.timer, told["after_timer"])
        # Most steps beside things are equal too; violent contacts differ, of which teleported agents have many.
        assert np.median(np.abs(backend.bodies.qpos - told["after_qpos"]).max(1)) < 1e-6
        assert np.median(np.abs(out.reward - told["reward"])) < 1e-7
        np.testing.assert_allclose(out.reward, told["reward"], atol=0.05)
        assert ((out.costs != told["costs"]).sum(0) <= 1).all()


def test_the_record_holds_every_cost_and_goals_met():
    for arena, spec in ARENAS.items():
        seen = np.concatenate([recorded(f"{agent}-{arena}", "steps")["costs"] for agent in OWN])
        assert (seen.any(0) & ~seen.all(0)).all(), (arena, spec.costs)
    assert "safety-gymnasium 1.0.0" in str(reference()["provenance"])


@pytest.mark.parametrize("name", [name for name in NAMES if "circle" not in name])
def test_goals_come_as_safety_gymnasium_draws_them(name):
    """The agent, or the box, is put at the goal every eight steps: when it is met, and where the next one lies."""
    told = recorded(name, "goals")
    with make_host_task(name, num_envs=1) as env:
        env.start([7])
        backend = env._backend
        bodies, world = backend.bodies, backend.world
        for i in range(40):
            goal = world.places["goal"][0, 0].copy()
            if i % 8 == 7:
                if "push" in name:
                    bodies.pose[0, 0, :2] = goal
                else:
                    bodies.qpos[0, :2] = goal + ([0.19, 0.0] if "button" in name else [0.0, 0.0])
                    bodies.qvel[0] = 0
                    turn = [0.0] if name.startswith("point") else [0.0999, 1.0, 0, 0, 0]
                    bodies.qpos[0, 2 : 2 + len(turn)] = turn
            paid = env.step(zeros(env)).reward[0]
            np.testing.assert_allclose(world.places["goal"][0, 0], told["goal"][i], atol=1e-4)
            if told["met"][i]:
                assert paid > 0.9
        assert told["met"].sum() >= 5


@pytest.mark.parametrize("name", NAMES)
def test_what_a_task_says_of_itself(name):
    agent, arena = name.split("-")
    with make_host_task(name, num_envs=1) as env:
        spec, horizon = env.spec, 500 if "circle" in arena else 1000
        assert spec.obs_dim == SIZES[arena[:-1]][agent == "car"]
        assert (spec.name, spec.horizon, spec.cost_names, spec.cost_limits) == (name, horizon, ("sum",), (25.0,))
        assert spec.action_space.low == (-1.0, -1.0)
        assert env.step_seconds == pytest.approx(0.02 if agent == "point" else 0.04)
    assert not {"agent", "name"} & set(inspect.signature(resolve(name, HOST_TASKS, "task")).parameters)


def test_numbers_are_those_of_random_state():
    source, ours = np.random.RandomState(3), Numbers(3)
    for _ in range(3):
        ours.look(700)  # what was only looked at comes again
        np.testing.assert_array_equal(ours.take(5), source.random_sample(5))
        source.binomial(10, 1.0)
        ours.skip(1)
        assert [ours.choose(n) for n in (4, 5, 3)] == [source.choice(n) for n in (4, 5, 3)]


def test_layouts_keep_their_distances():
    for name in ("point-goal2", "car-button2", "car-push2"):
        with make_host_task(name, num_envs=12) as env:
            env.reset(4)
            backend = env._backend
            places, rows = backend._places, backend._rows
            for i in range(12):
                xy = np.concatenate([backend.bodies.qpos[i : i + 1, :2], placed(backend.world, i, backend.bodies)])
                if "button" in name:  # the goal stands on a button
                    xy, keepout = np.delete(xy, rows["goal"], 0), np.delete(places.keepout, rows["goal"])
                else:
                    keepout = places.keepout
                apart = np.linalg.norm(xy[:, None] - xy, axis=-1) + 10 * np.eye(len(xy))
                assert (apart >= keepout[:, None] + keepout - 1e-12).all()
                assert (np.abs(xy).max(1) <= backend.arena.extent - keepout + 1e-12).all()


def slow_lidar(places, sight):
    seen = np.zeros(BINS)
    for x, y in places:
        angle = math.atan2(y, x) % (2 * math.pi)
        b, f = divmod(angle / (2 * math.pi / BINS), 1.0)
        s = max(0.0, sight - math.hypot(x, y)) / sight
        for at, value in ((b, s), (b + 1, f * s), (b - 1, (1 - f) * s)):
            seen[int(at) % BINS] = max(seen[int(at) % BINS], value)
    return seen


def test_lidars_show_the_nearest_thing_in_each_direction():
    rng = np.random.default_rng(0)
    ego, kind = rng.normal(0, 1.5, (40, 7, 2)), np.array([0, 1, 1, 1, 1, 2, 2])
    ego[0, 0] = (1.0, -1e-17)  # an angle that rounds up to a full turn
    ours = lidars(ego, kind, 3, 3.0).reshape(40, 3, BINS)
    for i in range(40):
        for k in range(3):
            np.testing.assert_allclose(ours[i, k], slow_lidar(ego[i, kind == k], 3.0), atol=1e-12)


def test_a_point_alone_moves_as_in_mujoco():
    model = build_model("point", Scene())
    rng, num = np.random.default_rng(0), 30
    qpos, qvel = rng.normal(size=(num, 3)), rng.normal(size=(num, 3))
    control = rng.uniform(-1, 1, (num, 2)) * rng.choice([0.05, 1.0], (num, 1))
    ours = Glide(model).advance(qpos, qvel, control, 10)
    data = mujoco.MjData(model)
    for i in range(num):
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[i], qvel[i], control[i]
        mujoco.mj_step(model, data, 10)
        mujoco.mj_forward(model, data)
        for mine, theirs in zip(ours, (data.qpos, data.qvel, data.sensordata), strict=True):
            np.testing.assert_allclose(mine[i], theirs, atol=1e-9)


def test_gremlins_alone_keep_to_their_track():
    """Against MuJoCo, far beyond the part that was simulated once, and turned otherwise."""
    scene = Scene(free=1, pulled=True)
    model, turned = build_model("car", scene), (np.cos(0.4), 0, 0, np.sin(0.4))
    data = mujoco.MjData(model)
    data.qpos[0] = 50.0
    data.qpos[16:20], data.mocap_quat[0] = turned, turned
    for _ in range(1500):
        data.mocap_pos[0] = (*targets(np.asarray(data.time)), HEIGHT)
        mujoco.mj_step(model, data)
    place, speed = Track(0.04, scene).at(np.array([150]))
    np.testing.assert_allclose(place[0], data.qpos[13:16], atol=1e-6)
    np.testing.assert_allclose(speed[0], data.qvel[11:14], atol=1e-5)


def test_nothing_that_sleeps_would_have_moved():
    """An episode with everything simulated all the time, against one in which only what can be touched is."""
    outs = []
    for reach in (None, 100.0):
        with make_host_task("point-goal2", num_envs=2, threads=1) as env:
            env.reset(1)
            if reach:
                env._backend.physics._near_free = reach
                assert wakes(env._backend)[0].all()
            rng = np.random.default_rng(0)
            outs.append([env.step(rng.uniform(-1, 1, (2, 2)).astype(np.float32)) for _ in range(4)])
    for one, other in zip(*outs, strict=True):
        np.testing.assert_allclose(one.reward, other.reward, atol=1e-7)
        np.testing.assert_allclose(one.obs[:, 12:], other.obs[:, 12:], atol=1e-5)
        np.testing.assert_array_equal(one.costs, other.costs)


def test_distances_add_up_to_the_return():
    """Until a goal is met, rewards telescope to the way that was made towards it."""
    for name in ("point-goal1", "car-push1"):
        with make_host_task(name, num_envs=3) as env:
            env.reset(0)
            first, rng = env._backend.world.last.sum(1), np.random.default_rng(1)
            total = sum(env.step(rng.uniform(-1, 1, (3, 2)).astype(np.float32)).reward for _ in range(30))
            np.testing.assert_allclose(total, first - env._backend.world.last.sum(1), atol=1e-5)


def test_buttons_hide_for_ten_steps_and_wrong_ones_are_free_meanwhile():
    with make_host_task("point-button1", num_envs=1, costs="each", cost_limits=(1, 1, 1)) as env:
        obs = env.start([2])
        backend, seen = env._backend, []
        assert obs[0, 12:28].max() > 0
        world, wrong = backend.world, (backend.world.button[0] + 1) % 4
        for press in ("button", "wrong"):
            place = world.places["buttons"][0, world.button[0] if press == "button" else wrong]
            backend.bodies.qpos[0], backend.bodies.qvel[0] = (place[0] + 0.19, place[1], 0.0), 0.0
            world.last[0, 0] = np.linalg.norm(world.places["goal"][0, 0] - backend.bodies.qpos[0, :2])
            out = env.step(zeros(env))
            assert (out.reward[0] > 0.9) == (press == "button")
            if press == "button":
                backend.bodies.qpos[0, :2] = (30.0, 30.0)  # away
                while env.step(zeros(env)).obs[0, 12:28].max() == 0 and world.timer[0]:
                    seen.append(int(world.timer[0]))
                world.button[0] = (wrong + 1) % 4
        assert seen == list(range(9, 0, -1))
        assert out.costs[0].tolist()[0] == 1.0
        world.timer[0] = 5
        assert env.step(zeros(env)).costs[0, 0] == 0.0


def test_threads_change_nothing_and_the_episode_is_truncated():
    seen = []
    for threads in (1, 3):
        with make_host_task("car-goal2", num_envs=4, threads=threads, horizon=25) as env:
            env.reset(3)
            rng = np.random.default_rng(0)
            outs = [env.step(rng.uniform(-1, 1, (4, 2)).astype(np.float32)) for _ in range(30)]
            seen.append([np.array(part) for part in zip(*outs, strict=True)])
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)
    assert seen[0][4].sum(1).tolist() == [4.0 * (t == 24) for t in range(30)]
    assert not seen[0][3].any()


def test_environments_on_hold_stay():
    with make_host_task("point-push2", num_envs=3) as env:
        before = env.reset(0)
        out = env.step(np.ones((3, 2), np.float32), hold=np.array([False, True, False]))
        np.testing.assert_array_equal(out.obs[1], before[1])
        assert not (out.obs[[0, 2]] == before[[0, 2]]).all()
        assert out.reward[1] == 0
        assert env._backend.bodies.steps.tolist() == [1, 0, 1]


def test_a_failed_simulation_pays_ten_costs_one_and_ends_the_episode():
    with make_host_task("car-goal1", num_envs=2) as env:
        env.reset(0)
        env._backend.bodies.qvel[1] = 1e12
        out = env.step(zeros(env))
    assert out.reward[1] == -10
    assert out.costs[:, 0].tolist() == [0, 1]
    assert out.truncated.tolist() == [False, True]


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="costs='all' is not one of 'sum', 'each'"):
        make_host_task("point-goal1", costs="all")
    with pytest.raises(InputError, match="1 cost limit"):
        make_host_task("point-goal2", costs="each")
    with pytest.raises(InputError, match="num_envs=0"):
        make_host_task("point-goal1", num_envs=0)


def test_ids_follow_the_table_and_pass_both_checkers():
    register_all()
    assert {task for task, _ in HOST_IDS.values()} >= set(NAMES)
    env = gym.make("awavo/PointGoal1-v0")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box observation space m.*infinity")
        gymnasium_check(env.unwrapped, skip_render_check=True)
    assert env.spec.max_episode_steps == 1000
    _, info = env.reset(seed=3)
    assert info == {"cost": 0.0, "costs": [0.0], "cost_sum": 0.0}
    env.close()
    assert gym.make("awavo/CarCircle1-v0").spec.max_episode_steps == 500
    assert not any(finding.level == "error" for finding in check_env("car-button1", steps=60))


def test_a_picture_shows_the_things():
    for name in ("point-button1", "car-push1", "point-circle2"):
        with make_host_task(name, num_envs=1) as env:
            env.reset(0)
            picture = env.picture()
            assert picture.shape[2] == 3
            assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
