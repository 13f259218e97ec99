r"""An inner loop for the walker's legs: actions choose a gait; a rhythm and proportional control make torques of it.

With `gait_hz` f an action holds for each joint j a middle :math:`m_j` and a swing :math:`s_j` in [-1, 1]. The joint is
to stand at

.. math:: q^*_j(t) = r_j \left(\tfrac12 m_j + s_j \sin(2 \pi f t + \varphi_j)\right)

with :math:`r_j` half its range and :math:`\varphi_j` 0 in one leg and :math:`\pi` in the other; the motor gets
:math:`10\,(q^*_j - q_j)`, within its limits, once a step. The sine and cosine of the clock join the observation.
Random torques cancel out before they carry the walker anywhere; random gaits walk (docs/robots.md).
"""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.tasks.goal.walker_model import JOINTS, SIDES

__all__ = ["REACH", "check_rate", "clock", "gait_torques"]

Arrays = TypeVar("Arrays", np.ndarray, Array)  # C MuJoCo's on the host, MJX's on the device
STEP_SECONDS = 0.05
STIFFNESS = 10.0  # of full torque a radian
LAGS = np.repeat([0.0, np.pi], len(JOINTS))  # right leg, left leg
REACH = np.radians([(high - low) / 2 for _, (low, high), *_ in JOINTS.values()] * len(SIDES))
HIGHEST_HZ = 5.0  # four steps a swing


def check_rate(gait_hz: float) -> float:
    """The rate itself, if steps of 50 ms can show it."""
    if not 0.0 <= gait_hz <= HIGHEST_HZ:
        raise InputError(f"gait_hz={gait_hz} must be 0 (actions are torques) or a rate up to {HIGHEST_HZ:g} Hz.")
    return float(gait_hz)


def gait_torques(
    xp: ModuleType, gait_hz: float, action: Float[Arrays, "*E 20"], joints: Float[Arrays, "*E 10"], time: Arrays
) -> Float[Arrays, "*E 10"]:
    """Torques in [-1, 1] for the joints' angles after `time` steps; `xp` is numpy or jax.numpy."""
    middle, swing = xp.split(xp.clip(action, -1.0, 1.0), 2, axis=-1)
    wanted = REACH * (0.5 * middle + swing * xp.sin(_angle(gait_hz, time)[..., None] + LAGS))
    return xp.clip(STIFFNESS * (wanted - joints), -1.0, 1.0)


def clock(gait_hz: float, time: Array) -> Float[Array, " c"]:
    """Sine and cosine of the rhythm after `time` steps; nothing without one."""
    angle = _angle(gait_hz, time)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)]) if gait_hz else jnp.zeros(0)


def _angle(gait_hz: float, time: Arrays) -> Arrays:
    return (2.0 * np.pi * gait_hz * STEP_SECONDS) * time
