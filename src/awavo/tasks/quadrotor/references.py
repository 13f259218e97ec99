r"""References to track: a figure of eight, a circle, and minimum snap through waypoints.

Minimum snap: pieces of degree 7 with :math:`\int \lVert p^{(4)} \rVert^2 dt` least, through the waypoints, at rest at
both ends, continuous up to the third derivative. Without inequalities the quadratic programme is one linear system,
in the derivatives at the inner waypoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solveh_banded

from awavo.checks import all_finite, check_choice
from awavo.errors import InputError
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = [
    "REFERENCES", "RefState", "circle", "lissajous", "make_reference", "minimum_snap", "snap_reference", "snap_seconds",
]  # fmt: skip

REFERENCES = ("lissajous", "circle", "snap")
DEGREE = 7  # the least that snap allows: its Euler-Lagrange equation is p^(8) = 0
ROUNDING = 1e-12  # of the diagonal: beside a piece of hours, what one of half a second leaves open is lost in rounding
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


def _unit_piece() -> tuple[np.ndarray, np.ndarray]:
    """Of a piece that lasts 1: coefficients from what is given at both ends (place, three derivatives), and its snap.

    The second matrix is the quadratic form of the integral of the squared fourth derivative in these numbers.
    """
    to_coefficients = np.linalg.inv([_powers(t, order) for t in (0.0, 1.0) for order in range(4)])
    k = np.arange(4.0, DEGREE + 1)
    scale = k * (k - 1) * (k - 2) * (k - 3)
    hessian = np.zeros((DEGREE + 1, DEGREE + 1))
    hessian[4:, 4:] = np.outer(scale, scale) / (k[:, None] + k - DEGREE)
    return to_coefficients, to_coefficients.T @ hessian @ to_coefficients


def minimum_snap(waypoints: Float[np.ndarray, "W 3"], durations: Float[np.ndarray, " P"]) -> Float[np.ndarray, "P 8 3"]:
    """Coefficients of every piece, each in its own time from 0 to its duration.

    What is looked for are the three derivatives at the inner waypoints: whatever they are, a piece that is made of
    what is given at its ends goes through the waypoints and is smooth. (Coefficients under constraints would be of all
    sizes, up to the seventh power of a duration, and long pieces missed their waypoints.)
    """
    pieces, (to_coefficients, snap) = len(durations), _unit_piece()
    scales = np.tile(np.asarray(durations, float)[:, None] ** np.arange(4), 2)  # [piece, 8]: to a time of 1
    forms = scales[:, :, None] * snap * scales[:, None] / durations[:, None, None] ** DEGREE
    ends = np.zeros((pieces + 1, 4, 3))
    ends[:, 0] = waypoints
    if pieces > 1:
        ends[1:-1, 1:] = _inner_derivatives(forms, waypoints)
    given = np.concatenate([ends[:-1], ends[1:]], 1)
    coefficients = np.einsum("ij,pj,pjd->pid", to_coefficients, scales, given)
    return coefficients / durations[:, None, None] ** np.arange(DEGREE + 1)[:, None]


def _inner_derivatives(
    forms: Float[np.ndarray, "P 8 8"], waypoints: Float[np.ndarray, "P+1 3"]
) -> Float[np.ndarray, "P-1 3 3"]:
    """Velocity, acceleration and jerk at the inner waypoints with which the sum of all forms is least."""
    count = len(forms) - 1
    blocks = forms[:-1, 5:, 5:] + forms[1:, 1:4, 1:4]
    links = forms[1:-1, 1:4, 5:]
    right = -(forms[:-1, 5:, 0, None] * waypoints[:-2, None] + forms[1:, 1:4, 4, None] * waypoints[2:, None])
    right -= (forms[:-1, 5:, 4, None] + forms[1:, 1:4, 0, None]) * waypoints[1:-1, None]
    # With every unknown in its own size the diagonal is 1.
    size = np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    blocks = blocks / (size[:, :, None] * size[:, None])
    links = links / (size[:-1, :, None] * size[1:, None])
    band = np.zeros((6, 3 * count))
    for i in range(3):
        for j in range(3):
            if j >= i:
                band[5 - (j - i), j::3] = blocks[:, i, j]
            band[2 - (j - i), 3 + j :: 3] = links[:, i, j]
    band[5] += ROUNDING
    return solveh_banded(band, (right / size[:, :, None]).reshape(-1, 3)).reshape(count, 3, 3) / size[:, :, None]


def _durations(lengths: Float[np.ndarray, " P"], speed: float) -> Float[np.ndarray, " P"]:
    return np.maximum(lengths / speed, 0.5)  # at least half a second each


def snap_seconds(waypoints: Sequence[Sequence[float]], speed: float) -> float:
    """How long the reference through `waypoints` moves."""
    return float(_durations(np.linalg.norm(np.diff(np.asarray(waypoints, float), axis=0), axis=1), speed).sum())


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
    durations = _durations(lengths, speed)
    starts = np.concatenate([[0.0], np.cumsum(durations)])
    # A piece's time runs from 0 to 1: powers of its seconds are too large or too small for single numbers.
    coefficients = minimum_snap(points, durations) * durations[:, None, None] ** np.arange(DEGREE + 1)[:, None]

    def reference(time, params):
        table, begins, lasts = (jnp.asarray(x, jnp.float32) for x in (coefficients, starts, durations))
        time = jnp.clip(time, 0.0, begins[-1])
        piece = jnp.clip(jnp.searchsorted(begins, time, side="right") - 1, 0, len(durations) - 1)
        t = (time - begins[piece]) / lasts[piece]
        found = []
        for order in range(3):
            weights = [
                np.prod(np.arange(k, k - order, -1.0)) * t ** (k - order) if k >= order else jnp.zeros_like(t)
                for k in range(DEGREE + 1)
            ]
            each = [sum(w * table[piece, k, i] for k, w in enumerate(weights)) for i in range(3)]
            found.append(jnp.stack(each) / lasts[piece] ** order)
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
