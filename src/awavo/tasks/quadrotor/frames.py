r"""The frames, all of them, and the names of winds.

Ours: world x north, y west, z up; body x forward, y left, z up. MAVLink's and those of PX4's logs: north-east-down and
forward-right-down. The page's: east, north, up. Ours and MAVLink's differ by half a turn about x,
:math:`F = \mathrm{diag}(1, -1, -1)`: :math:`v' = F v` for positions, velocities, forces and body rates,
:math:`R' = F R F` for attitudes, each its own inverse. A vehicle at yaw 0 looks north in both. There is no other
conversion in this package.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

__all__ = ["flip_attitude", "flip_vector", "map_vector", "normalised_thrust", "rotate_rows", "thrust_per_mass",
           "wind_name"]  # fmt: skip

COMPASS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")


def flip_vector(v: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
    """World or body vectors and body rates, ours to MAVLink's or back."""
    return np.asarray(v, float) * np.array([1.0, -1.0, -1.0])


def flip_attitude(q: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 4"]:
    """Attitude quaternions (w, x, y, z), body to world, ours to MAVLink's or back."""
    return np.asarray(q, float) * np.array([1.0, 1.0, -1.0, -1.0])


def map_vector(v: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
    """Our world vectors as a map shows them: east, north, up."""
    v = np.asarray(v)
    return np.stack([-v[..., 1], v[..., 0], v[..., 2]], -1)


def wind_name(force: Float[np.ndarray, " 3"]) -> str:
    """Say where a force of our world frame comes from: one that pushes north is a wind from S."""
    east, north = -map_vector(np.asarray(force, float))[:2]
    return COMPASS[round(float(np.arctan2(east, north)) / (np.pi / 4)) % 8]


def rotate_rows(q: Float[np.ndarray, "n 4"], v: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """From body to world for rows of unit quaternions (w, x, y, z), in either pair of frames."""
    w, u = q[:, :1], q[:, 1:]
    twice = 2 * np.cross(u, v)
    return v + w * twice + np.cross(u, twice)


def normalised_thrust(thrust_per_mass: float, mass: float, thrust_max: float) -> float:
    """PX4's collective thrust in [0, 1], linear in force, of a thrust per mass (four rotors of `thrust_max`)."""
    return float(np.clip(mass * thrust_per_mass / (4 * thrust_max), 0.0, 1.0))


def thrust_per_mass(normalised: float, mass: float, thrust_max: float) -> float:
    """Return the inverse of `normalised_thrust`."""
    return normalised * 4 * thrust_max / mass
