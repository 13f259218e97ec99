r"""References to track: a figure of eight, a circle, and minimum snap through waypoints.

Minimum snap: pieces of degree 7 with :math:`\int \lVert p^{(4)} \rVert^2 dt` least, through the waypoints, at rest at
both ends, continuous up to the third derivative. Without inequalities the quadratic programme is one linear system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.checks import all_finite, check_choice
from awavo.errors import InputError
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["REFERENCES", "RefState", "circle", "lissajous", "make_reference", "minimum_snap", "snap_reference"]

REFERENCES = ("lissajous", "circle", "snap")
DEGREE = 7  # the least that snap allows: its Euler-Lagrange equation is p^(8) = 0
WAYPOINTS = ((0, 0, 1.5), (2, 1, 1.8), (3, -1, 1.2), (0, -1.5, 1.5), (-3, 1, 1.8), (-2, -1, 1.2), (0, 0, 1.5))


class RefState(NamedTuple):
    """Where the vehicle should be, how fast, and under which acceleration; components first."""

    position: Float[Array, "3 ..."]
    velocity: Float[Array, "3 ..."]
    acceleration: Float[Array, "3 ..."]


RefFn = Callable[[Array, QuadrotorParams], RefState]


def lissajous(time: Float[Array, " *n"], params: QuadrotorParams) -> RefState:
    """Follow a figure of eight: x = A sin(rate t), y = B sin(2 rate t), at one height."""
    w, a, b = params.reference_rate, params.reference_x, params.reference_y
    s1, c1, s2, c2 = jnp.sin(w * time), jnp.cos(w * time), jnp.sin(2 * w * time), jnp.cos(2 * w * time)
    zero = jnp.zeros_like(s1)
    return RefState(
        jnp.stack([a * s1, b * s2, zero + params.reference_z]),
        jnp.stack([a * w * c1, 2 * b * w * c2, zero]),
        jnp.stack([-a * w**2 * s1, -4 * b * w**2 * s2, zero]),
    )


def circle(time: Float[Array, " *n"], params: QuadrotorParams) -> RefState:
    """Follow a circle of radius `reference_y`, once in 2 pi / `reference_rate`."""
    w, r = params.reference_rate, params.reference_y
    s, c = jnp.sin(w * time), jnp.cos(w * time)
    zero = jnp.zeros_like(s)
    return RefState(
        jnp.stack([r * c, r * s, zero + params.reference_z]),
        jnp.stack([-r * w * s, r * w * c, zero]),
        jnp.stack([-r * w**2 * c, -r * w**2 * s, zero]),
    )


def _powers(t: float, order: int) -> np.ndarray:
    """Row of the derivative of given order of the monomials 1, t, ..., t^7."""
    row = np.zeros(DEGREE + 1)
    for k in range(order, DEGREE + 1):
        row[k] = np.prod(np.arange(k, k - order, -1.0)) * t ** (k - order)
    return row


def minimum_snap(waypoints: Float[np.ndarray, "W 3"], durations: Float[np.ndarray, " P"]) -> Float[np.ndarray, "P 8 3"]:
    """Coefficients of every piece, each in its own time from 0 to its duration, by the KKT system."""
    pieces, num = len(durations), DEGREE + 1
    # Integral of the product of fourth derivatives of t^a and t^b over a piece.
    hessian = np.zeros((pieces * num, pieces * num))
    for i, duration in enumerate(durations):
        for a in range(4, num):
            for b in range(4, num):
                scale = np.prod(np.arange(a, a - 4, -1.0)) * np.prod(np.arange(b, b - 4, -1.0))
                hessian[i * num + a, i * num + b] = scale * duration ** (a + b - 7) / (a + b - 7)
    rows, values = [], []

    def demand(entries: Sequence[tuple[int, np.ndarray]], value: np.ndarray) -> None:
        row = np.zeros(pieces * num)
        for piece, part in entries:
            row[piece * num : (piece + 1) * num] += part
        rows.append(row)
        values.append(value)

    for i, duration in enumerate(durations):
        demand([(i, _powers(0.0, 0))], waypoints[i])
        demand([(i, _powers(duration, 0))], waypoints[i + 1])
    # At rest at both ends, smooth in between.
    for order in (1, 2, 3):
        demand([(0, _powers(0.0, order))], np.zeros(3))
        demand([(pieces - 1, _powers(durations[-1], order))], np.zeros(3))
        for i in range(pieces - 1):
            demand([(i, _powers(durations[i], order)), (i + 1, -_powers(0.0, order))], np.zeros(3))
    # The stationary point of the quadratic form under the constraints, with their multipliers.
    constraints = np.array(rows)
    zero = np.zeros((len(rows), len(rows)))
    system = np.block([[2 * hessian, constraints.T], [constraints, zero]])
    right = np.concatenate([np.zeros((pieces * num, 3)), np.array(values)])
    return np.linalg.lstsq(system, right, rcond=None)[0][: pieces * num].reshape(pieces, num, 3)


def snap_reference(waypoints: Sequence[Sequence[float]], speed: float) -> RefFn:
    """Build the reference through `waypoints`: pieces take their length over `speed`; it stays at the last one."""
    points = np.asarray(waypoints, float)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 2 or not all_finite(points):
        raise InputError(f"waypoints have shape {points.shape}, expected (W, 3) finite numbers with W >= 2.")
    if not speed > 0:
        raise InputError(f"speed={speed} must be > 0.")
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
    if (lengths < 1e-6).any():
        raise InputError("two waypoints in a row are the same: give each once.")
    durations = np.maximum(lengths / speed, 0.5)  # at least half a second each
    coefficients = minimum_snap(points, durations)
    starts = np.concatenate([[0.0], np.cumsum(durations)])

    def reference(time, params):
        table, begins = jnp.asarray(coefficients, jnp.float32), jnp.asarray(starts, jnp.float32)
        time = jnp.clip(time, 0.0, begins[-1])
        piece = jnp.clip(jnp.searchsorted(begins, time, side="right") - 1, 0, len(durations) - 1)
        t = time - begins[piece]
        found = []
        for order in range(3):
            weights = [
                np.prod(np.arange(k, k - order, -1.0)) * t ** (k - order) if k >= order else jnp.zeros_like(t)
                for k in range(DEGREE + 1)
            ]
            found.append(jnp.stack([sum(w * table[piece, k, i] for k, w in enumerate(weights)) for i in range(3)]))
        return RefState(*found)

    return reference


def make_reference(kind: str, waypoints: Sequence[Sequence[float]] | None, speed: float) -> RefFn:
    """Build the reference of a name."""
    check_choice("reference", kind, REFERENCES)
    if kind == "snap":
        return snap_reference(WAYPOINTS if waypoints is None else waypoints, speed)
    if waypoints is not None:
        raise InputError(f"waypoints were given with reference='{kind}': they belong to reference='snap'.")
    return lissajous if kind == "lissajous" else circle
