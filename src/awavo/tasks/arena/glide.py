r"""The point's own motion where it touches nothing: MuJoCo's semi-implicit Euler steps, for all environments at once.

In the frame of the body (x ahead) the mass matrix is constant, so that a step is a handful of multiplications:

.. code-block:: text

    force   = 0.3 clip(u_0, +-0.05),   torque = 0.3 clip(u_1 - 0.3 w, +-0.05)
    M + h D = [[m + h d, 0, 0], [0, m + h d, m c], [0, m c, I + h d_w]]      c: centre of mass ahead of the hinge
    (M + h D) a = (force - d v_x + m c w^2, -d v_y, torque - d_w w)
    v' = v + h a,   q' = q + h v'
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["Glide"]

GEAR, MOST, TURN_GAIN = 0.3, 0.05, 0.3


class Glide:
    """Steps points that are free of contacts; masses and damping are read from the compiled model."""

    def __init__(self, model: Any):
        self.step = h = model.opt.timestep
        mass, ahead = model.body_mass[1], model.body_ipos[1, 0]
        self._damping, self._turn_damping = model.dof_damping[0], model.dof_damping[2]
        self._lever = mass * ahead
        # MuJoCo gives the inertia about the centre of mass along its own axes, one of which is vertical.
        turned = np.zeros(9)
        _matrix(turned, model.body_iquat[1])
        axes = turned.reshape(3, 3)
        inertia = float(axes[2] @ (model.body_inertia[1] * axes[2])) + mass * ahead**2
        self._free = np.linalg.inv([[mass, self._lever], [self._lever, inertia]])
        soft = mass + h * self._damping
        self._ahead = h / soft
        self._side = h * np.linalg.inv([[soft, self._lever], [self._lever, inertia + h * self._turn_damping]])
        self._mass = mass

    def advance(
        self,
        qpos: Float[np.ndarray, "E 3"],
        qvel: Float[np.ndarray, "E 3"],
        control: Float[np.ndarray, "E 2"],
        steps: int,
    ) -> tuple[Float[np.ndarray, "E 3"], Float[np.ndarray, "E 3"], Float[np.ndarray, "E 3"]]:
        """Positions, velocities and the accelerometer after `steps` steps of physics with constant controls."""
        h, d, d_turn, lever = self.step, self._damping, self._turn_damping, self._lever
        force = GEAR * np.clip(control[:, 0], -MOST, MOST)
        wanted = np.clip(control[:, 1], -1, 1)
        (x, y, turn), (vx, vy, w) = qpos.T.copy(), qvel.T.copy()
        (s00, s01), (_, s11) = self._side
        for _ in range(steps):
            c, s = np.cos(turn), np.sin(turn)
            ahead, side = c * vx + s * vy, c * vy - s * vx
            torque = GEAR * np.minimum(np.maximum(wanted - TURN_GAIN * w, -MOST), MOST) - d_turn * w
            more = self._ahead * (force - d * ahead + lever * (w * w))
            drag = -d * side
            aside = s00 * drag + s01 * torque
            w += s01 * drag + s11 * torque
            vx += c * more - s * aside
            vy += s * more + c * aside
            x += h * vx
            y += h * vy
            turn += h * w
        after = np.stack([x, y, turn], 1), np.stack([vx, vy, w], 1)
        c, s = np.cos(turn), np.sin(turn)
        ahead, side = c * vx + s * vy, c * vy - s * vx
        torque = GEAR * np.clip(wanted - TURN_GAIN * w, -MOST, MOST) - d_turn * w
        (f00, f01), _ = self._free
        felt = np.empty((len(x), 3))
        felt[:, 0] = (force - d * ahead + lever * w * w) / self._mass
        felt[:, 1] = f00 * (-d * side) + f01 * torque
        felt[:, 2] = 9.81
        return *after, felt


def _matrix(out: np.ndarray, quaternion: np.ndarray) -> None:
    from awavo.tasks.mujoco_host import load_mujoco

    load_mujoco("a navigation task").mju_quat2Mat(out, quaternion)
