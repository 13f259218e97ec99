"""The drone against MuJoCo: a model built from the same numbers, free flight and sensors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.tasks.goal.drone import DroneBody, DroneParams, DroneState, drone, drone_obs, drone_step
from awavo.tasks.goal.rules import GoalState, Layout

mujoco = pytest.importorskip("mujoco")
PROPELLERS = ((0.3, 0), (0, 0.3), (-0.3, 0), (0, -0.3))


def model():
    bodies = "".join(
        f'<body name="p{i}" pos="{x} {y} 0"><geom type="capsule" fromto="0 0 -0.1 0 0 0.1" size="0.03"/></body>'
        for i, (x, y) in enumerate(PROPELLERS)
    )
    joints = "".join(
        f'<joint type="{kind}" axis="{axis}" damping="{damping}"/>'
        for kind, axis, damping in (
            ("slide", "1 0 0", 0.5), ("slide", "0 1 0", 0.5), ("slide", "0 0 1", 0.2),
            ("hinge", "1 0 0", 0.2), ("hinge", "0 1 0", 0.2), ("hinge", "0 0 1", 0.2),
        )
    )  # fmt: skip
    return mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep="0.008"/><default><geom density="1"/></default>
    <worldbody><body name="drone" pos="0 0 0">{joints}<site name="s"/><geom type="sphere" size="0.1"/>
    <geom type="capsule" fromto="-0.3 0 0 0.3 0 0" size="0.03"/>
    <geom type="capsule" fromto="0 -0.3 0 0 0.3 0" size="0.03"/>
    {bodies}</body></worldbody>
    <sensor><accelerometer site="s"/><gyro site="s"/><velocimeter site="s"/><magnetometer site="s"/></sensor>
    </mujoco>""")


def body(height=1.0):
    zeros = jnp.zeros(6)
    return DroneBody(zeros.at[2].set(height), zeros, jnp.zeros(3), jnp.zeros(8))


def test_the_numbers_are_those_of_the_model():
    m = model()
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    dense = np.zeros((6, 6))
    mujoco.mj_fullM(m, d, dense) if mujoco.__version__ >= "4" else mujoco.mj_fullM(m, dense, d.qM)
    p = DroneParams()
    np.testing.assert_allclose(np.diag(dense), [p.mass] * 3 + [p.inertia_xy] * 2 + [p.inertia_z], rtol=2e-4)


def free_flight(seed):
    """300 steps of ours and of MuJoCo: largest position error and tilt, our last state, and MuJoCo's data."""
    m = model()
    d = mujoco.MjData(m)
    d.qpos[2] = 30.0
    mujoco.mj_forward(m, d)
    params = DroneParams(ceiling=100.0)
    rng = np.random.default_rng(seed)
    state, step = body(30.0), jax.jit(lambda b, a: drone_step(b, a, params))
    weight = m.body_subtreemass[1] * 9.81
    steer, worst, tilt = np.zeros(4), 0.0, 0.0
    for _ in range(300):
        tip = d.qpos[3:5]
        steer = 0.9 * steer + 0.3 * rng.standard_normal(4)
        action = np.clip(steer + np.array([0, -1, 0, 1]) * tip[0] + np.array([1, 0, -1, 0]) * tip[1], -1, 1)
        up = d.xmat[1].reshape(3, 3)[:, 2].copy()
        d.xfrc_applied[:] = 0
        for i in range(4):
            d.xfrc_applied[m.body(f"p{i}").id, :3] = up * (weight / 4 + 0.1 * action[i])
        mujoco.mj_step(m, d, 10)
        mujoco.mj_forward(m, d)
        state = step(state, jnp.float32(action))
        worst = max(worst, np.abs(np.asarray(state.q) - d.qpos)[:3].max())
        tilt = max(tilt, np.abs(d.qpos[3:5]).max())
    return worst, tilt, state, d


def test_free_flight_agrees_with_mujoco():
    """One flight with tilts up to about 0.7 rad: position within 2 mm, sensors within 1%."""
    worst, tilt, state, d = free_flight(3)
    params = DroneParams(ceiling=100.0)
    assert 0.3 < tilt < 1.2
    assert worst <= 2e-3
    assert np.abs(np.asarray(state.q) - d.qpos)[3:].max() <= 1e-3
    layout = Layout(jnp.zeros(2), jnp.zeros(()), jnp.array([1.0, 0, 31]), jnp.ones((8, 3)) * 50)
    obs = np.asarray(drone_obs(DroneState(state, GoalState(layout, jnp.ones(()))), params))
    ours = np.concatenate([obs[0:3], obs[6:9], obs[80:83], obs[69:72]])
    np.testing.assert_allclose(ours, d.sensordata, atol=0.01 * np.abs(d.sensordata[:3]).max())
    np.testing.assert_allclose(ours[9:], d.sensordata[9:], atol=1e-4)


def test_the_floor_holds_and_is_felt():
    falling = jax.jit(lambda b: drone_step(b, -jnp.ones(4), DroneParams()))
    state = body(0.4)
    for _ in range(20):
        state = falling(state)
    np.testing.assert_allclose(state.q[2], 0.13, atol=1e-3)
    assert (np.asarray(state.touch[:4]) > 0).all()
    assert (np.asarray(state.touch[4:]) == 0).all()


def test_yaw_of_the_start_turns_the_flight():
    env = drone()
    state, _ = jax.jit(env.reset)(jax.random.key(0), env.params)
    step = jax.jit(env.step)
    action = jnp.array([0.3, 0.1, 0.0, 0.2])
    moved = []
    for yaw in (0.0, np.pi / 2):
        s = state._replace(inner=state.inner._replace(goal=state.inner.goal._replace(
            layout=state.inner.goal.layout._replace(yaw=jnp.float32(yaw), start=jnp.zeros(2)))))  # fmt: skip
        for _ in range(5):
            s, out = step(jax.random.key(1), s, action, env.params)
        moved.append(np.asarray(out.obs[0:3]))
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-4)
