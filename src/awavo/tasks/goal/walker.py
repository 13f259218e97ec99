r"""The walker in the goal task: the rules around its physics, and C MuJoCo on threads as a host task.

The model stands at the origin of a frame that the layout's start and yaw place in the arena: floor, gravity and damping
are the same everywhere, so one compiled model serves all environments. With base joints
:math:`(q_x, \psi, q_y)` the torso stands in that frame at :math:`(q_x - q_y \sin\psi,\; q_y \cos\psi)`, turned by
:math:`\psi`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from awavo.checks import check_limits
from awavo.tasks.base import make_where_needed
from awavo.tasks.goal.gait import check_rate, clock, gait_torques
from awavo.tasks.goal.lidar import BINS, compass, lidar_plane
from awavo.tasks.goal.rules import MAX_SHAPED, GoalParams, GoalState, Layout, check_layout, sample_layout, score
from awavo.tasks.goal.walker_model import SENSORS, load_walker, skip_sensors
from awavo.tasks.host_core import HostEnv, HostStep
from awavo.tasks.mujoco_host import StepThreads, load_mujoco
from awavo.types import Box, EnvSpec, Timestep

__all__ = [
    "WalkerBackend", "WalkerTask", "advance_task", "start_task", "walker", "walker_obs", "walker_pose", "walker_spec",
]  # fmt: skip

SUBSTEPS = 10  # of 5 ms
OBS_DIM = 3 + 2 + 3 + BINS + 20 + 10 + 3 + 2 + 3
TORSO_HEIGHT = 0.43
DIVERGED = 1e10  # from here on MuJoCo calls a number bad


class WalkerTask(NamedTuple):
    """The task's state of one environment."""

    goal: GoalState
    time: Int[Array, ""]


def walker_spec(cost_limits: Sequence[float], horizon: int, gait_hz: float = 0.0) -> EnvSpec:
    """What an algorithm may know of the task."""
    names = ("hazards",)
    motors, clocks = (20, 2) if check_rate(gait_hz) else (10, 0)
    space = Box((-1.0,) * motors, (1.0,) * motors)
    return EnvSpec("walker", OBS_DIM + clocks, space, horizon, names, check_limits(cost_limits, names))


def walker_pose(base: Float[Array, " 3"], goal: GoalState) -> tuple[Float[Array, " 3"], Float[Array, "3 3"]]:
    """World position and rotation of the torso for base joints (x, yaw, y)."""
    layout = goal.layout
    c, s = jnp.cos(layout.yaw), jnp.sin(layout.yaw)
    x = base[0] - base[2] * jnp.sin(base[1])
    y = base[2] * jnp.cos(base[1])
    place = layout.start + jnp.stack([c * x - s * y, s * x + c * y])
    yaw = layout.yaw + base[1]
    c, s, zero, one = jnp.cos(yaw), jnp.sin(yaw), jnp.zeros(()), jnp.ones(())
    rotation = jnp.stack([c, -s, zero, s, c, zero, zero, zero, one]).reshape(3, 3)
    return jnp.append(place, TORSO_HEIGHT), rotation


def walker_obs(
    base: Float[Array, " 3"], sensors: Float[Array, " 31"], state: WalkerTask, gait_hz: float = 0.0
) -> Float[Array, " d"]:
    """Accelerometer, compass, gyroscope, lidar, sine and cosine of joints, their speeds, magnetometer, touch, speed.

    With a rhythm, its clock comes last.
    """
    goal = state.goal
    ends = np.cumsum(list(SENSORS.values()))[:-1]
    acceleration, gyro, speed, touch, joints, rates = jnp.split(sensors, ends)
    position, rotation = walker_pose(base, goal)
    hazards = (goal.layout.hazards - position) @ rotation
    turned = jnp.stack([jnp.sin(joints), jnp.cos(joints)], 1).ravel()
    field = jnp.array([0.0, -0.5, 0.0]) @ rotation
    towards = compass((goal.layout.goal - position) @ rotation, 2)
    rhythm = clock(gait_hz, state.time)
    return jnp.concatenate(
        [acceleration, towards, gyro, lidar_plane(hazards), turned, rates, field, touch, speed, rhythm]
    )


def start_task(
    key: Array, sensors: Float[Array, " 31"], params: GoalParams, num_hazards: int, gait_hz: float = 0.0
) -> tuple[WalkerTask, Array]:
    """Draw a layout; `sensors` are those of the model at rest."""
    layout = sample_layout(key, params, num_hazards, three_d=False)
    goal = GoalState(layout, jnp.linalg.norm(layout.goal[:2] - layout.start))
    state = WalkerTask(goal, jnp.zeros((), jnp.int32))
    return state, walker_obs(jnp.zeros(3), sensors, state, gait_hz)


def advance_task(
    key: Array,
    state: WalkerTask,
    base: Float[Array, " 3"],
    sensors: Float[Array, " 31"],
    broken: Bool[Array, ""],
    rest: Float[Array, " 31"],
    params: GoalParams,
    num_hazards: int,
    horizon: int,
    gait_hz: float = 0.0,
) -> tuple[WalkerTask, Timestep]:
    """One step of the rules after the physics has come to `base`; episodes that end start again at once.

    Where the physics is `broken` (it diverged), the episode terminates with reward -10 and cost 1, as in GUARD. The
    last solution of a step is read by sensors before MuJoCo checks it, so they are looked at too.
    """
    step_key, reset_key = jax.random.split(key)
    broken |= ~jnp.all(jnp.abs(jnp.concatenate([base, sensors])) < DIVERGED)
    base, sensors = jnp.where(broken, 0.0, base), jnp.where(broken, rest, sensors)
    goal, found = score(step_key, state.goal, walker_pose(base, state.goal)[0], params, three_d=False)
    reward, cost = jnp.where(broken, -MAX_SHAPED, found.reward), jnp.where(broken, 1.0, found.cost)
    time = state.time + 1
    obs = walker_obs(base, sensors, WalkerTask(goal, time), gait_hz)
    terminated = found.stuck | broken
    truncated = (time >= horizon) & ~terminated
    over = terminated | truncated
    fresh = partial(start_task, sensors=rest, params=params, num_hazards=num_hazards, gait_hz=gait_hz)
    state, shown = make_where_needed(reset_key, over, lambda k: fresh(k), (WalkerTask(goal, time), obs))
    return state, Timestep(shown, reward, cost[None], terminated, truncated, obs)


class WalkerBackend:
    """E walkers in C MuJoCo, stepped on threads.

    Sensors are computed once a step, at its end. The next step's first substep starts from there: positions,
    collisions and inertia do not depend on the action.
    """

    def __init__(
        self, num_envs: int, params: GoalParams, num_hazards: int, horizon: int, threads: int, gait_hz: float = 0.0
    ):
        self._mujoco = load_mujoco("the walker")
        self.params = params
        self._model = load_walker()
        # Between the ends of two steps nobody reads sensors.
        self._quick = skip_sensors(self._model)
        self._datas = [self._mujoco.MjData(self._model) for _ in range(num_envs)]
        self._controls = [data.ctrl for data in self._datas]
        self._places = [data.qpos for data in self._datas]
        self._felt = [data.sensordata for data in self._datas]
        self._warnings = [data.warning.number for data in self._datas]
        kinds = self._mujoco.mjtWarning
        self._bad = [int(k) for k in (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)]
        self._reset_models(range(num_envs))
        self._rest = np.array(self._datas[0].sensordata, np.float32)
        self._threads = StepThreads(self._walk, num_envs, threads)
        self._device = jax.local_devices(backend="cpu")[0]
        self._gait_hz = gait_hz
        self._start, self._advance = _programs(params, num_hazards, horizon, gait_hz, tuple(self._rest.tolist()))

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        self._reset_models(range(len(self._datas)))
        with jax.default_device(self._device):
            self._keys, self._state, obs = self._begin(seeds)
        return np.asarray(obs)

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        self._reset_models(which)
        every = np.zeros(len(self._datas), np.int64)
        every[which] = seeds
        mask = np.isin(np.arange(len(every)), which)
        with jax.default_device(self._device):
            keys, state, obs = self._begin(every.tolist())
            pick = lambda new, old: jnp.where(mask.reshape(-1, *[1] * (old.ndim - 1)), new, old)  # noqa: E731
            self._keys, self._state = jax.tree.map(pick, (keys, state), (self._keys, self._state))
        return np.asarray(obs)[which]

    def _begin(self, seeds: list[int]) -> tuple[Array, WalkerTask, Array]:
        keys = jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
        # One stream for layouts, one for steps.
        return (jax.vmap(lambda k: jax.random.fold_in(k, 1))(keys), *self._start(keys))

    def step(self, action: Float[np.ndarray, "E a"]) -> HostStep:
        """Step every walker by ten physics steps."""
        if self._gait_hz:
            joints = np.array(self._places)[:, 3:]
            action = gait_torques(np, self._gait_hz, action, joints, np.asarray(self._state.time))
        for control, wanted in zip(self._controls, action, strict=True):
            control[:] = wanted
        self._threads.run(self._datas)
        base, sensors = np.array(self._places, np.float32)[:, :3], np.array(self._felt, np.float32)
        # MuJoCo resets a state that diverges and counts a warning.
        broken = np.array(self._warnings)[:, self._bad].any(1)
        with jax.default_device(self._device):
            self._keys, self._state, out = self._advance(self._keys, self._state, base, sensors, broken)
        out = jax.tree.map(np.array, out)
        self._reset_models(np.flatnonzero(out.terminated | out.truncated))
        return HostStep(out.obs, out.reward, out.costs, out.terminated, out.truncated, out.final_obs)

    def layout(self, index: int) -> Layout:
        """The layout of one environment's episode."""
        return jax.tree.map(lambda x: np.asarray(x[index]), self._state.goal.layout)

    def place(self, index: int) -> Float[np.ndarray, " 3"]:
        """World position of one torso."""
        goal = jax.tree.map(lambda x: x[index], self._state.goal)
        return np.asarray(walker_pose(jnp.asarray(self._datas[index].qpos[:3], jnp.float32), goal)[0])

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _reset_models(self, which: Iterable[int]) -> None:
        for i in which:
            self._mujoco.mj_resetData(self._model, self._datas[i])
            self._mujoco.mj_forward(self._model, self._datas[i])

    def _walk(self, data: Any) -> None:
        """Step one walker: nothing but calls that let go of Python's lock."""
        self._mujoco.mj_step2(self._quick, data)
        self._mujoco.mj_step(self._quick, data, SUBSTEPS - 1)
        self._mujoco.mj_forward(self._model, data)


@lru_cache(maxsize=16)
def _programs(
    params: GoalParams, num_hazards: int, horizon: int, gait_hz: float, rest: tuple[float, ...]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`start_task` and `advance_task` of many walkers, compiled once for all that follow the same rules."""
    sensors = np.array(rest, np.float32)
    rules = dict(params=params, num_hazards=num_hazards, gait_hz=gait_hz)
    start = partial(start_task, sensors=sensors, **rules)
    advance = partial(advance_task, rest=sensors, horizon=horizon, **rules)
    return jax.jit(jax.vmap(lambda key: start(key))), jax.jit(jax.vmap(_split_and(advance)))


def _split_and(
    advance: Callable[..., tuple[WalkerTask, Timestep]],
) -> Callable[..., tuple[Array, WalkerTask, Timestep]]:
    def run(key, state, base, sensors, broken):
        key, step_key = jax.random.split(key)
        return key, *advance(step_key, state, base, sensors, broken)

    return run


def walker(
    *,
    num_envs: int = 4,
    cost_limits: Sequence[float] = (1.0,),
    horizon: int = 1000,
    num_hazards: int = 8,
    threads: int = 0,
    gait_hz: float = 0.0,
    **sizes: float,
) -> HostEnv:
    """Build `num_envs` walkers on C MuJoCo; `sizes` overrides fields of `GoalParams`, `threads=0` is one a core.

    Actions are torques, or with `gait_hz` gaits of that rate (`awavo.tasks.goal.gait`).
    """
    params = GoalParams(**sizes)
    check_layout(params, num_hazards)
    spec = walker_spec(cost_limits, horizon, gait_hz)
    return HostEnv(spec, num_envs, WalkerBackend(num_envs, params, num_hazards, horizon, threads, gait_hz))
