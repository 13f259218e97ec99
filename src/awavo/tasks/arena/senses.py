r"""What the agent observes: its own motion, and a lidar of 16 directions for every kind of thing.

A thing at distance :math:`d`, at the angle of direction :math:`b + f` (:math:`f` in [0, 1)), shows
:math:`s = \max(0, D - d) / D` in direction :math:`b`, :math:`f s` in the next and :math:`(1 - f) s` in the one before;
the largest of a direction counts. Nothing hides anything else.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

__all__ = ["BINS", "OWN", "lidars", "own_motion", "rotation"]

BINS = 16
OWN = {"point": 12, "car": 24}  # numbers about the own motion
FIELD = (0.0, -0.5, 0.0)  # what the magnetometer measures, in the world's frame


def rotation(agent: str, qpos: Float[np.ndarray, "E q"]) -> Float[np.ndarray, "E 3 3"]:
    """From the frame of the body to the world's."""
    if agent == "car":
        return _matrices(qpos[:, 3:7])
    turned = np.zeros((len(qpos), 3, 3))
    c, s = np.cos(qpos[:, 2]), np.sin(qpos[:, 2])
    turned[:, 0, 0] = turned[:, 1, 1] = c
    turned[:, 0, 1], turned[:, 1, 0], turned[:, 2, 2] = -s, s, 1.0
    return turned


def _matrices(quaternion: Float[np.ndarray, "E 4"]) -> Float[np.ndarray, "E 3 3"]:
    w, x, y, z = quaternion.T
    rows = [
        w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z,
    ]  # fmt: skip
    return np.stack(rows, 1).reshape(-1, 3, 3)


def own_motion(
    agent: str,
    qpos: Float[np.ndarray, "E q"],
    qvel: Float[np.ndarray, "E v"],
    acceleration: Float[np.ndarray, "E 3"],
    turned: Float[np.ndarray, "E 3 3"],
) -> Float[np.ndarray, "E d"]:
    """Accelerometer, velocity, turning rate and magnetometer in the frame of the body; of a car also its free ball."""
    num = len(qpos)
    if agent == "point":
        linear, angular = np.zeros((num, 3)), np.zeros((num, 3))
        linear[:, :2], angular[:, 2] = qvel[:, :2], qvel[:, 2]
    else:
        linear, angular = qvel[:, :3], qvel[:, 3:6]
    seen = np.einsum("eij,ei->ej", turned, linear)
    field = np.asarray(FIELD) @ turned
    parts = [acceleration, seen, angular, field]
    if agent == "car":
        parts += [qvel[:, 8:11], _matrices(qpos[:, 9:13]).reshape(num, 9)]
    return np.concatenate(parts, 1)


def lidars(
    ego: Float[np.ndarray, "E n 2"], kind: Int[np.ndarray, " n"], num_kinds: int, sight: float
) -> Float[np.ndarray, "E k"]:
    """The lidars of all kinds, side by side; `ego` are places in the frame of the body, `kind` what stands there."""
    num = len(ego)
    x, y = ego[..., 0], ego[..., 1]
    turns = (np.arctan2(y, x) % (2 * np.pi)) / (2 * np.pi / BINS)
    whole = turns.astype(np.int64)
    part = turns - whole
    whole %= BINS  # an angle that rounds up to a full turn
    near = np.maximum(0.0, sight - np.hypot(x, y)) / sight
    seen = np.zeros(num * num_kinds * BINS)
    first = (np.arange(num)[:, None] * num_kinds + kind) * BINS
    np.maximum.at(seen, (first + whole).ravel(), near.ravel())
    np.maximum.at(seen, (first + (whole + 1) % BINS).ravel(), (part * near).ravel())
    np.maximum.at(seen, (first + (whole - 1) % BINS).ravel(), ((1 - part) * near).ravel())
    return seen.reshape(num, num_kinds * BINS)
