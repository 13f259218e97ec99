r"""The external force as the whole record shows it: a smoother over the flight, robust to jumps, that knows drag.

While it flies, a vehicle knows the past alone; an explanation may use the future too, and so tell at which decision a
burst began and ended, and whether a lasting force was mass, thrust or drag. From the balances y that the filter took
in (`control/belief.py`), with T the thrust and F the drag in still air,

.. math::

   y_t = f_t + (T_t + F_t)\,\lambda + F_t\,\delta_d + \text{noise}, \qquad
   f_t = f_{t-1} + \Delta_t + \text{step}, \quad \text{step} \sim \text{Student}_\nu(0, q\,dt) ,

with the lightness :math:`\lambda = 1/(1 + \delta_m) - 1` and the drag's change :math:`\delta_d` the same all along.
Steps with heavy tails are what jumps are made of: reweighted least squares, each round two tridiagonal solutions and a
2 x 2 one. :math:`\Delta_t` is how the force of an unchanged horizontal wind changes as the vehicle moves and leans, by
the nominal drag: without it wind passes for drag, and its lift for thrust. Upwards f is that lift and a small force
that passes, as in the filter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solveh_banded

from awavo.control.belief import DRAG_STD, FORCE_STD, LIFT_STD, LIFT_TIME, MASS_STD, Belief
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["LEAST", "Air", "Hindsight", "look_back", "still_forces"]

# Degrees of freedom of the steps; rounds of reweighting; m/s beyond which no wind is believed.
TAIL, ROUNDS, STRONGEST = 2.0, 12, 30.0
FEWEST = 10  # measurements below which nothing can be looked back on
LEAST = 1e-3  # of noise (N) and walk (N per root second)
Vectors = Float[np.ndarray, "T 3"]


class Hindsight(NamedTuple):
    """The force at every decision with its covariance, and what is one number over the flight, with its deviation.

    `thrust` and `drag` are the forces (N, world frame) that mass and drag scale; `noise` is the balance's measured
    standard deviation.
    """

    force: Vectors
    covariance: Float[np.ndarray, "T 3 3"]
    lightness: float
    lightness_std: float
    drag_change: float
    drag_std: float
    noise: float
    thrust: Vectors
    drag: Vectors


class Air(NamedTuple):
    """Drag of the nominal vehicle at every decision: the matrix of its linear part (world frame), the quadratic one."""

    linear: Float[np.ndarray, "T 3 3"]
    quadratic: float

    def drag(self, speed: Vectors, rows: slice = slice(None)) -> Vectors:
        """Drag at an airspeed."""
        size = np.linalg.norm(speed, axis=1, keepdims=True)
        return -np.einsum("tij,tj->ti", self.linear[rows], speed) - self.quadratic * size * speed

    def pushed(self, velocity: Vectors, wind: Vectors, rows: slice = slice(None)) -> Vectors:
        """What wind adds to the drag in still air."""
        return self.drag(velocity - wind, rows) - self.drag(velocity, rows)

    def wind(self, force: Float[np.ndarray, "T 2"], velocity: Vectors) -> Vectors:
        """Return the horizontal wind that pushes sideways so, by Newton's method."""
        wind = np.zeros_like(velocity)
        for _ in range(6):
            speed = velocity - wind
            size = np.maximum(np.linalg.norm(speed, axis=1), 1e-6)[:, None, None]
            slope = size * np.eye(2) + speed[:, :2, None] * speed[:, None, :2] / size
            slope = self.linear[:, :2, :2] + self.quadratic * slope
            miss = self.pushed(velocity, wind)[:, :2] - force
            wind[:, :2] -= np.linalg.solve(slope, miss[:, :, None])[:, :, 0]
            wind *= np.minimum(1.0, STRONGEST / np.maximum(np.linalg.norm(wind, axis=1, keepdims=True), 1e-9))
        return wind


def _rotations(attitude: Float[np.ndarray, "T 4"]) -> Float[np.ndarray, "T 3 3"]:
    """Body to world."""
    w, x, y, z = attitude.T / np.linalg.norm(attitude, axis=1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


class _Chain(NamedTuple):
    """A Gaussian chain x_t = keep_t x_(t-1) + step with measurements: the precision's diagonal and what is beside."""

    diagonal: Float[np.ndarray, " T"]
    beside: Float[np.ndarray, " T-1"]

    def solve(self, right: Float[np.ndarray, "T n"]) -> Float[np.ndarray, "T n"]:
        """Solve for several right sides."""
        return solveh_banded(np.stack([np.append(0.0, self.beside), self.diagonal]), right)

    def variances(self) -> Float[np.ndarray, " T"]:
        """The diagonal of the inverse, from both ends."""
        found = []
        for diagonal, beside in ((self.diagonal, self.beside), (self.diagonal[::-1], self.beside[::-1])):
            pivots = [float(diagonal[0])]
            for own, link in zip(diagonal[1:].tolist(), np.square(beside).tolist(), strict=True):
                pivots.append(own - link / pivots[-1])
            found.append(np.array(pivots))
        return 1 / (found[0] + found[1][::-1] - self.diagonal)


def _chain(
    weight: Float[np.ndarray, " T"], step: Float[np.ndarray, " T-1"], keep: Float[np.ndarray, " T-1"], first: float
) -> _Chain:
    """The chain of measurements with precision `weight`, steps with precision `step`, a first value with `first`."""
    diagonal = weight.copy()
    diagonal[0] += first
    diagonal[1:] += step
    diagonal[:-1] += keep**2 * step
    return _Chain(diagonal, -keep * step)


def _noise(balance: Vectors, heard: Bool[np.ndarray, " T"]) -> float:
    """Standard deviation of the balance's white part, by the median of second differences."""
    known = balance[heard]
    return float(np.median(np.abs(known[2:] - 2 * known[1:-1] + known[:-2])) / np.sqrt(6) / 0.6745)


def still_forces(body: Body, params: QuadrotorParams) -> tuple[Vectors, Vectors, Air, Vectors]:
    """Return the nominal vehicle's thrust, its drag in still air, its drag in any, and that drag at hover's speed."""
    velocity, rotors = np.asarray(body.velocity, float), np.asarray(body.rotors, float)
    turned = _rotations(np.asarray(body.attitude, float))
    lift = float(params.thrust_coefficient)
    thrust = lift * np.square(rotors).sum(1)[:, None] * turned[:, :, 2]
    # Rotors that turn faster drag more.
    share = rotors.mean(1) / np.sqrt(float(params.mass) * float(params.gravity) / (4 * lift))
    ways = np.array([float(params.drag_x), float(params.drag_y), float(params.drag_z)])
    hover = Air(np.einsum("tij,j,tkj->tik", turned, ways, turned), float(params.drag_quadratic))
    air = hover._replace(linear=share[:, None, None] * hover.linear)
    return thrust, air.drag(velocity), air, hover.drag(velocity)


def look_back(beliefs: Belief, body: Body, times: Float[np.ndarray, " T"], params: QuadrotorParams) -> Hindsight | None:
    """Smooth over a flight, time first; None where its record does not hold what the filter took in, or too little."""
    weight = np.asarray(beliefs.watch.weight, float)
    heard = np.diff(weight, prepend=0.0) > 0
    if heard.sum() < FEWEST:
        return None
    balance = np.asarray(beliefs.watch.recent, float)[:, 1]
    velocity = np.asarray(body.velocity, float)
    try:
        with np.errstate(all="ignore"):
            thrust, drag, air, hover_drag = still_forces(body, params)
            # The filter took off the drag of rotors at hover.
            balance = balance + hover_drag - drag
            found = _smooth(balance, heard, thrust, drag, velocity, air, np.diff(times), params)
    except (np.linalg.LinAlgError, ValueError):  # numbers of a file that no vehicle has
        return None
    return found if np.isfinite(found.covariance).all() and np.isfinite(found.force).all() else None


class _Round(NamedTuple):
    """One round: the force beside what was expected, mass and drag with their covariance, and the chain sideways."""

    rest: Vectors
    change: Float[np.ndarray, " 2"]
    spread: Float[np.ndarray, "2 2"]
    follows: Float[np.ndarray, "T 3 2"]
    side: _Chain


def _solve(
    balance: Vectors, columns: Float[np.ndarray, "T 3 2"], weight: Float[np.ndarray, " T"], side: _Chain, up: _Chain
) -> _Round:
    """Solve for the force, mass and drag together, with the steps as likely as the chains say."""
    precision, right, solved = np.diag([1 / MASS_STD**2, 1 / DRAG_STD**2]), np.zeros(2), []
    for axis, chain in enumerate((side, side, up)):
        known = np.column_stack([balance[:, axis], columns[:, axis]])
        found = chain.solve(weight[:, None] * known)
        # What of the balance and the columns the chain cannot follow tells mass and drag.
        both = columns[:, axis].T @ (weight[:, None] * (known - found))
        precision, right = precision + both[:, 1:], right + both[:, 0]
        solved.append(found)
    spread = np.linalg.inv(precision)
    change = spread @ right
    every = np.stack(solved, 1)
    return _Round(every[:, :, 0] - every[:, :, 1:] @ change, change, spread, every[:, :, 1:], side)


def _smooth(
    balance: Vectors, heard: np.ndarray, thrust: Vectors, drag: Vectors, velocity: Vectors, air: Air,
    dt: np.ndarray, params: QuadrotorParams,
) -> Hindsight:  # fmt: skip
    dt = np.maximum(dt, 1e-4)
    noise = _noise(balance, heard)
    weight = heard / max(noise, float(params.force_noise), LEAST) ** 2
    keep, held = np.exp(-dt / LIFT_TIME), np.ones_like(dt)
    walk = max(float(params.force_walk), LEAST) ** 2 * dt
    up = _chain(weight, 1 / (LIFT_STD**2 * (1 - keep**2)), keep, 1 / LIFT_STD**2)
    columns, expected = np.stack([thrust + drag, drag], -1), np.zeros_like(balance)
    found = _solve(balance, columns, weight, _chain(weight, 1 / walk, held, 1 / FORCE_STD**2), up)
    for _ in range(ROUNDS - 1):
        usual = (TAIL + 2) / (TAIL + np.square(np.diff(found.rest[:, :2], axis=0)).sum(1) / walk)
        expected = _expected(air, velocity, found.rest + expected)
        side = _chain(weight, usual / walk, held, 1 / FORCE_STD**2)
        found = _solve(balance - expected, columns, weight, side, up)
    # What the force gives up where mass or drag gain, and what is left with both of them known.
    covariance = np.einsum("tai,ij,tbj->tab", found.follows, found.spread, found.follows)
    sides = found.side.variances()
    covariance += np.stack([sides, sides, up.variances()], 1)[:, :, None] * np.eye(3)
    change, stds = found.change.tolist(), np.sqrt(np.diag(found.spread)).tolist()
    return Hindsight(
        (found.rest + expected).astype(np.float32), covariance.astype(np.float32), change[0], stds[0], change[1],
        stds[1], noise, thrust, drag,
    )  # fmt: skip


def _expected(air: Air, velocity: Vectors, force: Vectors) -> Vectors:
    """Sideways, how an unchanged wind's force changed with the vehicle's motion since the start; upwards its lift."""
    wind = air.wind(force[:, :2], velocity)
    middle = (wind[1:] + wind[:-1]) / 2
    later, before = slice(1, None), slice(None, -1)
    moved = air.pushed(velocity[1:], middle, later) - air.pushed(velocity[:-1], middle, before)
    expected = np.zeros_like(force)
    expected[1:, :2] = np.cumsum(moved[:, :2], 0)
    expected[:, 2] = air.pushed(velocity, wind)[:, 2]
    return expected
