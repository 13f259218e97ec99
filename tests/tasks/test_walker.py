"""The walker: its model's numbers, the host task on C MuJoCo, and MJX beside it."""

import re

import numpy as np
import pytest

from awavo.errors import InputError, MissingExtraError
from awavo.registry import make_host_task, make_task

mujoco = pytest.importorskip("mujoco")

from awavo.tasks.goal.walker_model import JOINTS, load_walker, walker_xml  # noqa: E402
from awavo.tasks.mujoco_host import load_mujoco  # noqa: E402

WALKERS = {"num_envs": 4, "horizon": 160}  # of all tests but those of gaits: one compiled program


@pytest.fixture(scope="module")
def model():
    return load_walker()


def test_numbers_of_the_model(model):
    assert (model.nq, model.nv, model.nu, model.nsensordata) == (13, 13, 10, 31)
    np.testing.assert_allclose(model.body_subtreemass[0], 1.5572, atol=1e-4)
    masses = {model.body(i).name: float(model.body_mass[i]) for i in range(1, model.nbody)}
    assert len(masses) == 7
    for part, mass in {"torso": 0.3393, "thigh": 0.3393, "leg": 0.1424, "foot": 0.1272}.items():
        found = [m for name, m in masses.items() if name.endswith(part)]
        np.testing.assert_allclose(found, mass, atol=1e-4)
    np.testing.assert_allclose(model.actuator_gear[:, 0], [JOINTS[n][5] for n in JOINTS] * 2)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for side in ("left", "right"):
        foot = model.geom(f"{side}_foot").id
        np.testing.assert_allclose(data.geom_xpos[foot, 2] - model.geom_size[foot, 0], 0.0, atol=1e-9)


@pytest.fixture(scope="module")
def walked():
    """Observations and results of 170 steps of four walkers with episodes of 160 steps, and MuJoCo's own data."""
    env = make_host_task("walker", **WALKERS, threads=2)
    rng = np.random.default_rng(0)
    rows = [env.reset(0)]
    outs = []
    for _ in range(170):
        outs.append(env.step(rng.uniform(-1, 1, (4, 10)).astype(np.float32)))
        rows.append(outs[-1].obs)
    yield env, np.array(rows), outs
    env.close()


def test_host_task(walked):
    _, rows, outs = walked
    assert rows.shape == (171, 4, 62)
    ends = np.array([o.truncated for o in outs])
    assert ends[159].all()
    assert ends.sum() == 4
    compasses = np.linalg.norm(rows[:, :, 3:5], axis=-1)
    np.testing.assert_allclose(compasses, 1, atol=3e-3)
    sines, cosines = rows[:, :, 24:44:2], rows[:, :, 25:44:2]
    np.testing.assert_allclose(sines**2 + cosines**2, 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[:, :, 54:57], axis=-1), 0.5, atol=1e-5)
    assert (np.abs(rows[1:, :, 44:54]) > 0).any()
    assert np.abs(rows[0, 0, 24:44:2]).max() == 0
    np.testing.assert_array_equal(outs[159].obs[:, 24:44:2], 0)
    assert np.abs(outs[159].final_obs[:, 24:44:2]).max() > 0.01


def test_the_torso_moves_as_the_base_joints_say(model):
    from awavo.tasks.goal.rules import GoalState, Layout
    from awavo.tasks.goal.walker import walker_pose

    data = mujoco.MjData(model)
    data.qpos[:3] = 0.7, 0.9, -0.4
    mujoco.mj_forward(model, data)
    layout = Layout(np.zeros(2, np.float32), np.float32(0), np.zeros(3, np.float32), np.zeros((1, 3), np.float32))
    position, rotation = walker_pose(np.float32(data.qpos[:3]), GoalState(layout, np.float32(0)))
    np.testing.assert_allclose(position, data.body("torso").xpos, atol=1e-6)
    np.testing.assert_allclose(rotation, data.body("torso").xmat.reshape(3, 3), atol=1e-6)


def test_steps_are_those_of_plain_mujoco_with_every_collision_searched_for():
    """Listed pairs, unread sensors left out and the reused first half of a step change no bit of the result."""
    xml = walker_xml()
    xml = re.sub(r"<contact>.*</contact>", "", xml).replace(
        'contype="0" conaffinity="0"', 'friction="0.9 .1 .1" condim="6"'
    )
    xml = re.sub(r'(name="floor"[^/]*)/>', r'\1 friction="0.7 .1 .1"/>', xml)
    xml = re.sub(r'(geom name="\w+_foot"[^/]*)/>', r'\1 friction="2 .1 .1"/>', xml)
    searched = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(searched)
    env = make_host_task("walker", **WALKERS, threads=1)
    env.reset(0)
    touched = set()
    for action in np.random.default_rng(0).uniform(-1, 1, (150, 4, 10)).astype(np.float32):
        env.step(action)
        data.ctrl = action[0]
        mujoco.mj_step(searched, data, 10)
        mujoco.mj_forward(searched, data)
        touched |= {tuple(pair) for pair in data.contact.geom.tolist()}
        np.testing.assert_array_equal(env._backend._datas[0].qpos, data.qpos)
        np.testing.assert_array_equal(env._backend._datas[0].sensordata, data.sensordata)
    assert len(touched) >= 2
    env.close()


def test_physics_that_diverges_ends_the_episode():
    env = make_host_task("walker", **WALKERS, threads=1)
    env.reset(0)
    env._backend._datas[1].qvel[4] = np.nan
    out = env.step(np.zeros((4, 10), np.float32))
    assert out.terminated.tolist() == [False, True, False, False]
    np.testing.assert_allclose([out.reward[1], out.costs[1, 0]], [-10, 1])
    assert np.isfinite(out.obs).all()
    assert not env.step(np.zeros((4, 10), np.float32)).terminated.any()
    env.close()


def test_sensors_that_are_no_numbers_end_the_episode():
    """The last solve of a step is read before MuJoCo checks it: a run of ten seeds died of one such number."""
    env = make_host_task("walker", **WALKERS, threads=1)
    env.reset(0)
    walk = env._backend._walk

    def spoil(data):
        walk(data)
        if data is env._backend._datas[1]:
            data.sensordata[0] = np.inf

    env._backend._threads._step = spoil
    out = env.step(np.zeros((4, 10), np.float32))
    assert out.terminated.tolist() == [False, True, False, False]
    np.testing.assert_allclose([out.reward[1], out.costs[1, 0]], [-10, 1])
    assert np.isfinite(out.final_obs).all()
    env.close()


def test_threads_change_nothing():
    seen = []
    for threads in (1, 3):
        env = make_host_task("walker", **WALKERS, threads=threads)
        env.reset(5)
        rng = np.random.default_rng(1)
        seen.append(np.array([env.step(rng.uniform(-1, 1, (4, 10)).astype(np.float32)).obs for _ in range(5)]))
        env.close()
    np.testing.assert_array_equal(*seen)


def mjx_difference():
    """Largest joint difference of MJX and C MuJoCo over 15 environment steps without contacts, and joint range."""
    jax = pytest.importorskip("jax")
    mjx = pytest.importorskip("mujoco.mjx")
    model = load_walker()
    # Without sensors, as MJX's touch sensors need at least one contact.
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
    data = mujoco.MjData(model)
    theirs, blank = mjx.put_model(model), mjx.make_data(model)
    actions = np.random.default_rng(0).uniform(-1, 1, (15, 10)).astype(np.float32)

    @jax.jit
    def run(actions):
        def env_step(data, action):
            data = jax.lax.fori_loop(0, 10, lambda _, d: mjx.step(theirs, d), data.replace(ctrl=action))
            return data, data.qpos

        return jax.lax.scan(env_step, blank, actions)[1]

    ours = []
    for action in actions:
        data.ctrl = action
        mujoco.mj_step(model, data, 10)
        ours.append(data.qpos.copy())
    worst = float(np.abs(np.asarray(run(actions)) - np.array(ours)).max())
    return worst, float(np.abs(np.array(ours)).max())


@pytest.mark.slow
def test_mjx_agrees_with_c_mujoco_without_contacts():
    worst, moved = mjx_difference()
    assert moved > 0.3
    assert worst <= 1e-3


def test_bad_input():
    with pytest.raises(InputError, match="num_envs=0"):
        make_host_task("walker", num_envs=0)
    env = make_host_task("walker", **WALKERS, threads=1)
    env.reset(0)
    with pytest.raises(InputError, match="expected finite floats"):
        env.step(np.full((4, 10), np.nan, np.float32))


def test_a_missing_extra_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'awavo\[mujoco\]'"):
        load_mujoco("the walker")
    with pytest.raises(MissingExtraError, match=r"awavo\[mujoco\]"):
        make_task("walker-mjx")


def gaits(num_envs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (num_envs, 20)).astype(np.float32)


def test_a_gait_moves_the_joints_in_antiphase_and_shows_its_clock():
    env = make_host_task("walker", **WALKERS, threads=1, gait_hz=2.0)
    assert (env.spec.obs_dim, env.spec.action_space.dim) == (64, 20)
    first = env.reset(0)
    np.testing.assert_allclose(first[:, -2:], [[0, 1]] * 4)
    swing = np.zeros((4, 20), np.float32)
    swing[:, [12, 17]] = 1.0  # both hip_y
    seen = []
    for t in range(1, 161):
        out = env.step(swing)
        angle = 2 * np.pi * 2.0 * 0.05 * t
        np.testing.assert_allclose(out.final_obs[:, -2:], [[np.sin(angle), np.cos(angle)]] * 4, atol=1e-5)
        seen.append(out.final_obs[0, [24 + 4, 24 + 14]])
    np.testing.assert_allclose(out.obs[:, -2:], [[0, 1]] * 4)
    assert np.corrcoef(np.array(seen)[5:30].T)[0, 1] < -0.5
    env.close()


def test_random_gaits_walk_where_random_torques_tremble():
    def speed(**options):
        env = make_host_task("walker", **WALKERS, threads=1, **options)
        env.reset(1)
        rng, gait = np.random.default_rng(0), gaits(4)
        torques = lambda: rng.uniform(-1, 1, (4, 10)).astype(np.float32)  # noqa: E731
        seen = [env.step(gait if options else torques()).obs[:, 59:61] for _ in range(60)]
        env.close()
        return np.linalg.norm(np.mean(seen[20:], 0), axis=-1).mean()

    assert speed(gait_hz=2.0) > 3 * speed()


def test_mjx_makes_the_same_torques_of_a_gait():
    jnp = pytest.importorskip("jax.numpy")
    from awavo.tasks.goal.gait import REACH, gait_torques

    action, joints = 1.5 * gaits(8), np.random.default_rng(1).uniform(-1, 1, (8, 10)) * REACH
    time = np.arange(8)
    here = gait_torques(np, 2.0, action, joints, time)
    there = gait_torques(jnp, 2.0, action, joints, jnp.asarray(time))
    np.testing.assert_allclose(here, there, atol=1e-4)
    assert np.abs(here).max() <= 1.0
    np.testing.assert_allclose(gait_torques(np, 2.0, np.zeros((8, 20)), np.zeros((8, 10)), time), 0, atol=1e-12)


def test_joints_reach_half_of_their_range(model):
    from awavo.tasks.goal.gait import REACH

    np.testing.assert_allclose(REACH, np.ptp(model.jnt_range[3:], axis=1) / 2)


@pytest.mark.parametrize("rate", [-1.0, 9.0, float("nan")])
def test_a_rate_that_steps_cannot_show(rate):
    with pytest.raises(InputError, match="gait_hz"):
        make_host_task("walker", gait_hz=rate)
