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
from numpy.typing import NDArray

from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["Glide"]

Complexes = NDArray[np.complex128]

GEAR, MOST, GRAVITY = 0.3, 0.05, 9.81  # of both actuators: gear, largest force


class Glide:
    """Steps points that are free of contacts; masses and damping are read from the compiled model."""

    def __init__(self, model: Any):
        self.step = h = model.opt.timestep
        mass, ahead = model.body_mass[1], model.body_ipos[1, 0]
        drag, turn_drag = model.dof_damping[0], model.dof_damping[2]
        lever = mass * ahead
        # MuJoCo gives the inertia about the centre of mass along axes of its own.
        axes = np.zeros(9)
        load_mujoco("a navigation task").mju_quat2Mat(axes, model.body_iquat[1])
        inertia = float(axes[6:] @ (model.body_inertia[1] * axes[6:])) + mass * ahead**2
        masses = np.array([[mass, 0, 0], [0, mass, lever], [0, lever, inertia]])
        # Rows of `_Rows` to forces: ahead, sideways, turning.
        forces = np.array(
            [[-drag, 0, 0, 0, lever, GEAR], [0, -drag, 0, 0, 0, 0], [0, 0, -turn_drag, GEAR, 0, 0]], np.float64
        )
        damping = np.diag([drag, drag, turn_drag])
        self._felt = np.linalg.inv(masses) @ forces
        self._change = h * np.linalg.inv(masses + h * damping) @ forces

    def advance(
        self,
        qpos: Float[np.ndarray, "E 3"],
        qvel: Float[np.ndarray, "E 3"],
        control: Float[np.ndarray, "E 2"],
        steps: int,
    ) -> tuple[Float[np.ndarray, "E 3"], Float[np.ndarray, "E 3"], Float[np.ndarray, "E 3"]]:
        """Positions, velocities and the accelerometer after `steps` steps of physics with constant controls."""
        now = _Rows(qvel, control)
        place, speed = qpos[:, 0] + 1j * qpos[:, 1], qvel[:, 0] + 1j * qvel[:, 1]
        turn, change = qpos[:, 2].copy(), np.empty((3, len(qpos)))
        heading, push = (np.empty(len(qpos), np.complex128) for _ in range(2))
        for _ in range(steps):
            now.look(turn, speed, heading)
            np.matmul(self._change, now.rows, out=change)
            push.real, push.imag = change[0], change[1]
            push *= heading
            speed += push
            now.spin += change[2]
            place += self.step * speed
            turn += self.step * now.spin
        now.look(turn, speed, heading)
        felt = (self._felt @ now.rows).T.copy()
        felt[:, 2] = GRAVITY
        return (
            np.stack([place.real, place.imag, turn], 1), np.stack([speed.real, speed.imag, now.spin], 1), felt
        )  # fmt: skip


class _Rows:
    """What forces depend on: speed ahead and sideways, spin, servo, spin squared, motor; the last is constant."""

    def __init__(self, qvel: np.ndarray, control: np.ndarray):
        self.rows = np.zeros((6, len(qvel)))
        self.spin = self.rows[2]
        self.spin[:] = qvel[:, 2]
        self._wanted = np.clip(control[:, 1], -1, 1)
        np.clip(control[:, 0], -MOST, MOST, out=self.rows[5])

    def look(self, turn: np.ndarray, speed: Complexes, heading: Complexes) -> None:
        """Fill the rows in, and the heading as a complex number of length 1."""
        rows, spin = self.rows, self.spin
        np.cos(turn, out=heading.real)
        np.sin(turn, out=heading.imag)
        seen = speed * heading.conj()
        rows[0], rows[1] = seen.real, seen.imag
        servo = rows[3]
        np.multiply(spin, -GEAR, out=servo)
        servo += self._wanted
        np.maximum(servo, -MOST, out=servo)
        np.minimum(servo, MOST, out=servo)
        np.multiply(spin, spin, out=rows[4])
