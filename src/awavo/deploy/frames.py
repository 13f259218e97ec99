r"""Between our frames (world z up, body x forward, y left, z up) and MAVLink's (north-east-down, forward-right-down).

Both pairs differ by half a turn about x, :math:`F = \mathrm{diag}(1, -1, -1)`, with our x axis pointing north:
:math:`v' = F v` for positions, velocities and body rates, :math:`R' = F R F` for attitudes. Each function is its own
inverse, and there is no other conversion in this package.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

__all__ = ["flip_attitude", "flip_vector", "normalised_thrust", "thrust_per_mass"]


def flip_vector(v: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
    """World or body vectors and body rates, either way."""
    return np.asarray(v, float) * np.array([1.0, -1.0, -1.0])


def flip_attitude(q: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 4"]:
    """Attitude quaternions (w, x, y, z), body to world, either way."""
    return np.asarray(q, float) * np.array([1.0, 1.0, -1.0, -1.0])


def normalised_thrust(thrust_per_mass: float, mass: float, thrust_max: float) -> float:
    """PX4's collective thrust in [0, 1], linear in force, of a thrust per mass (four rotors of `thrust_max`)."""
    return float(np.clip(mass * thrust_per_mass / (4 * thrust_max), 0.0, 1.0))


def thrust_per_mass(normalised: float, mass: float, thrust_max: float) -> float:
    """Return the inverse of `normalised_thrust`."""
    return normalised * 4 * thrust_max / mass
