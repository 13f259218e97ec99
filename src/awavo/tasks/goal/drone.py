r"""GUARD's drone, in pure JAX: four propellers on three slides and three hinges, over-damped, 0.08 s a step.

A step holds the propellers' world forces :math:`F_i = R_0 e_3 (m g / 4 + 0.1 a_i)` of its start (above 3 m without the
weight's share) and takes ten implicit substeps of h = 8 ms, elementwise in the joints
:math:`q = (x, y, z, \alpha, \beta, \gamma)` with :math:`R = R_x R_y R_z`:

.. math::

   v \leftarrow \frac{M v + h Q}{M + h D}, \quad q \leftarrow q + h v, \qquad
   Q = \Big(\sum_i F_i - m g e_3,\; e_x \cdot \tau,\; R_x e_y \cdot \tau,\; R_x R_y e_z \cdot \tau\Big),
   \quad \tau = \sum_i R p_i \times F_i .

M is the joint-space inertia at rest. All this happens in a frame turned by the start's yaw. The floor is a choice of
ours: what lies below it at the end of a step is lifted, its downward speed lost and its tilt left alone. Slides under
a constant force are summed in closed form, which gives the same numbers as their substeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.checks import check_limits, check_physics
from awavo.tasks.base import Transition, auto_reset
from awavo.tasks.goal.lidar import AZIMUTHS, ELEVATIONS, compass, lidar_space
from awavo.tasks.goal.rules import GoalParams, GoalState, check_layout, sample_layout, score
from awavo.types import Box, Env, EnvSpec

__all__ = ["DroneBody", "DroneParams", "DroneState", "drone", "drone_obs", "drone_pose", "drone_step", "rotation"]

SUBSTEPS = 10
OBS_DIM = 3 + 3 + 3 + AZIMUTHS * ELEVATIONS + 3 + 8 + 3
START_HEIGHT = 1.0
# Radii of the body and of the propellers' ends, which are what touches the floor.
SPHERE, TIP = 0.1, 0.03
SIZES = GoalParams()


class DroneParams(NamedTuple):
    """Sizes of the task, then physics, one number each; vmap over a batch of them to randomise."""

    arena: float = SIZES.arena
    keepout: float = SIZES.keepout
    goal_radius: float = SIZES.goal_radius
    hazard_radius: float = SIZES.hazard_radius
    height_low: float = SIZES.height_low
    height_high: float = SIZES.height_high
    mass: float = 0.0105222
    inertia_xy: float = 2.1572e-4
    inertia_z: float = 3.8674e-4
    damping_xy: float = 0.5
    damping_z: float = 0.2
    damping_turn: float = 0.2
    gravity: float = 9.81
    arm: float = 0.3
    gain: float = 0.1
    ceiling: float = 3.0
    time_step: float = 0.008


def _sizes(params: DroneParams) -> GoalParams:
    return GoalParams(*params[: len(GoalParams._fields)])


class DroneBody(NamedTuple):
    """Joints and their speeds, and what the sensors need of the last step: force on the body, load on the floor."""

    q: Float[Array, " 6"]
    v: Float[Array, " 6"]
    force: Float[Array, " 3"]
    touch: Float[Array, " 8"]


class DroneState(NamedTuple):
    """The body, and the task around it."""

    body: DroneBody
    goal: GoalState


def rotation(alpha: Array, beta: Array, gamma: Array) -> list[list[Array]]:
    """Rows of R_x R_y R_z; the entries broadcast over any batch."""
    angles = (alpha, beta, gamma)
    return _rotation(tuple(map(jnp.sin, angles)), tuple(map(jnp.cos, angles)))


def _rotation(sines: tuple[Array, ...], cosines: tuple[Array, ...]) -> list[list[Array]]:
    (sa, sb, sc), (ca, cb, cc) = sines, cosines
    return [
        [cb * cc, -cb * sc, sb],
        [ca * sc + sa * sb * cc, ca * cc - sa * sb * sc, -sa * cb],
        [sa * sc - ca * sb * cc, sa * cc + ca * sb * sc, ca * cb],
    ]


def _tips(rows: list[list[Array]], arm: Array | float) -> list[Array]:
    """Heights of the propellers' eight ends over the centre: four lower ones, then four upper ones."""
    arms = [arm * rows[2][0], arm * rows[2][1], -arm * rows[2][0], -arm * rows[2][1]]
    return [a - 0.1 * rows[2][2] for a in arms] + [a + 0.1 * rows[2][2] for a in arms]


def drone_step(body: DroneBody, action: Float[Array, " 4"], params: DroneParams) -> DroneBody:
    """Ten substeps under one action, clipped to [-1, 1]."""
    action = jnp.clip(action, -1.0, 1.0)
    start = rotation(*(body.q[i] for i in (3, 4, 5)))
    up = [row[2] for row in start]
    weight = params.mass * params.gravity
    lift = jnp.where(body.q[2] > params.ceiling, 0.0, weight / 4) + params.gain * action
    total = lift.sum()
    # The world force is held over the step; its lever turns with the body, in `turn`.
    force = [total * u for u in up]
    roll, pitch = params.arm * (lift[0] - lift[2]), params.arm * (lift[1] - lift[3])
    h = params.time_step
    slides = [
        _slide(body.q[i], body.v[i], force[i] - (weight if i == 2 else 0.0), d, params)
        for i, d in enumerate((params.damping_xy, params.damping_xy, params.damping_z))
    ]
    place, speed = zip(*slides, strict=True)

    def turn(_, carry):
        # One implicit substep of the hinges: torque about each joint's own axis, then v <- (M v + h Q) / (M + h D).
        angles, rates, sines, cosines = carry
        rows = _rotation(sines, cosines)
        (sa, sb, _), (ca, cb, _) = sines, cosines
        lever = [roll * row[0] + pitch * row[1] for row in rows]
        torque = [lever[i - 2] * up[i - 1] - lever[i - 1] * up[i - 2] for i in range(3)]
        axes = (
            torque[0], ca * torque[1] + sa * torque[2], sb * torque[0] - sa * cb * torque[1] + ca * cb * torque[2]
        )  # fmt: skip
        inertia = (params.inertia_xy, params.inertia_xy, params.inertia_z)
        rates = tuple(
            (m * x + h * f) / (m + h * params.damping_turn) for m, x, f in zip(inertia, rates, axes, strict=True)
        )
        small = [h * x for x in rates]
        # Sine and cosine after a small turn d, to the order d^4: exact in float32 below 0.05 rad a substep.
        turned = [
            (s * (1 - d * d / 2) + c * (d - d**3 / 6), c * (1 - d * d / 2) - s * (d - d**3 / 6))
            for s, c, d in zip(sines, cosines, small, strict=True)
        ]
        sines, cosines = zip(*turned, strict=True)
        return tuple(x + d for x, d in zip(angles, small, strict=True)), rates, tuple(sines), tuple(cosines)

    angles = tuple(body.q[i] for i in (3, 4, 5))
    carry = (angles, tuple(body.v[i] for i in (3, 4, 5)), tuple(map(jnp.sin, angles)), tuple(map(jnp.cos, angles)))
    angles, rates, sines, cosines = jax.lax.fori_loop(0, SUBSTEPS, turn, carry)
    ends = jnp.stack(_tips(_rotation(sines, cosines), params.arm))
    # The lowest point sets how deep the drone lies under the floor: it is lifted by that much.
    depth = -(place[2] + jnp.minimum(-SPHERE, ends.min(0) - TIP))
    load = jnp.where(depth > 0, params.mass * jnp.maximum(-speed[2], 0.0) / h, 0.0)
    fall = jnp.maximum(speed[2], jnp.where(depth > 0, 0.0, -jnp.inf))
    height = place[2] + jnp.maximum(depth, 0.0)
    down = (height - TIP + ends <= 1e-3).astype(ends.dtype)
    touch = load * down / jnp.maximum(down.sum(0), 1.0)
    q, v = jnp.stack([*place[:2], height, *angles]), jnp.stack([*speed[:2], fall, *rates])
    return DroneBody(q, v, jnp.stack([*force[:2], force[2] + load]), touch)


def _slide(q: Array, v: Array, force: Array, damping: Array | float, params: DroneParams) -> tuple[Array, Array]:
    """All substeps of a slide at once: under a constant force its speed is a geometric series."""
    h, m = params.time_step, params.mass
    ratio = m / (m + h * damping)
    rest = force / damping
    left = ratio**SUBSTEPS
    gone = ratio * (1 - left) / (1 - ratio)
    return q + h * (SUBSTEPS * rest + gone * (v - rest)), rest + left * (v - rest)


def drone_pose(state: DroneState) -> tuple[Float[Array, " 3"], Float[Array, "3 3"], Float[Array, "3 3"]]:
    """World position, world rotation, and the rotation within the frame turned by the start's yaw."""
    q, layout = state.body.q, state.goal.layout
    c, s = jnp.cos(layout.yaw), jnp.sin(layout.yaw)
    turn = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    inner = jnp.stack([jnp.stack(row) for row in rotation(q[3], q[4], q[5])])
    return jnp.append(layout.start, 0.0) + turn @ q[:3], turn @ inner, inner


def drone_obs(state: DroneState, params: DroneParams) -> Float[Array, " 83"]:
    """Accelerometer, compass, gyroscope, lidar, magnetometer, touch (8), velocimeter, as MuJoCo defines them."""
    body, layout = state.body, state.goal.layout
    position, world, inner = drone_pose(state)
    q, v = body.q, body.v
    damping = jnp.stack([jnp.asarray(d) for d in (params.damping_xy, params.damping_xy, params.damping_z)])
    felt = (body.force - damping * v[:3]) / params.mass
    sa, ca = jnp.sin(q[3]), jnp.cos(q[3])
    spin = jnp.array([1.0, 0, 0]) * v[3] + jnp.stack([0 * sa, ca, sa]) * v[4] + inner @ jnp.array([0, 0, 1.0]) * v[5]
    parts = [
        felt @ inner,
        compass((layout.goal - position) @ world, 3),
        spin @ inner,
        lidar_space((layout.hazards - position) @ world),
        jnp.array([0.0, -0.5, 0.0]) @ world,
        body.touch,
        v[:3] @ inner,
    ]
    return jnp.concatenate(parts)


def drone(
    *,
    cost_limits: Sequence[float] = (1.0,),
    horizon: int = 1000,
    num_hazards: int = 8,
    single_goal: bool = False,
    **physics: float,
) -> Env:
    """Build the task; `physics` overrides fields of `DroneParams`, `single_goal` ends the episode at the first goal."""
    params = DroneParams(**physics)
    check_physics(params, ("mass", "inertia_xy", "inertia_z", "arm", "ceiling", "time_step"))
    check_layout(_sizes(params), num_hazards)
    names = ("hazards",)
    spec = EnvSpec("drone", OBS_DIM, Box((-1.0,) * 4, (1.0,) * 4), horizon, names, check_limits(cost_limits, names))

    def reset(key, params):
        layout = sample_layout(key, _sizes(params), num_hazards, three_d=True)
        zeros = jnp.zeros(6)
        weight = jnp.stack([jnp.zeros(()), jnp.zeros(()), jnp.asarray(params.mass * params.gravity, jnp.float32)])
        body = DroneBody(zeros.at[2].set(START_HEIGHT), zeros, weight, jnp.zeros(8))
        gap = jnp.linalg.norm(layout.goal - jnp.append(layout.start, START_HEIGHT))
        state = DroneState(body, GoalState(layout, gap))
        return state, drone_obs(state, params)

    def step(key, state, action, params):
        state = state._replace(body=drone_step(state.body, action, params))
        goal, found = score(key, state.goal, drone_pose(state)[0], _sizes(params), three_d=True)
        state = state._replace(goal=goal)
        over = found.stuck | (found.reached & single_goal)
        return state, Transition(drone_obs(state, params), found.reward, found.cost[None], over)

    return auto_reset(spec, params, reset, step, lazy=True)
