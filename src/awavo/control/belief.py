r"""The low-dimensional posterior p_D(theta) of a flight: external force, mass and drag, by a filter that stays honest.

The accelerometer's force balance, with nominal mass m, measured specific force a, reported thrust T and nominal drag F
in still air, is

.. math::  m a - T - F = f + (T + F)\bigl(\tfrac{1}{1 + \delta_m} - 1\bigr) + F\,\delta_d + \text{noise} ,

with :math:`\theta = (f, \delta_m, \delta_d)`. A thrust that is larger than reported looks like a smaller mass:
:math:`\delta_m` stands for both. With the measured m a in place of T + F, noise would stand on both sides and the mass
come out wrong. The posterior is Gaussian, from an extended Kalman filter. What keeps one part from lying for another:

* Sideways, f walks at random and may jump. Where three innovations in a row lean one way by more than chance allows,
  the force is what changed: its variance is raised, and mass and drag learn nothing from that step.
* Upwards, f is small and passes (standard deviation `LIFT_STD`, `LIFT_TIME` seconds): what stays is mass or thrust.
* Mass learns from the vertical balance alone, drag from the sideways one alone.
* The noise is measured, by second differences of the balance, which know neither wind nor mass; the filter takes the
  larger one of this and what it was told.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.body import body_drag, rotate
from awavo.tasks.quadrotor.flight import DT, FlightState
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Belief", "Watch", "draw_members", "start_belief", "take_in", "update_belief"]

FORCE_STD, MASS_STD, DRAG_STD = 1.0, 0.05, 0.5
SLOW_WALK = (2e-3, 1e-2)
LIFT_STD, LIFT_TIME = 0.2, 0.3
# Innovations are smoothed over three steps (variance S / 5); 13.8 is passed by chance once in a thousand.
SMOOTHING, GATE = 1 / 3, 13.8
# Noise and the innovation test are averaged over about a second; one sample counts as at most six times its variance.
MEMORY_S, LARGEST = 1.0, 6.0


class Watch(NamedTuple):
    """What the filter watches itself by.

    `noise` is the measured variance of the balance (N^2, one axis), over `weight` samples; `recent` its two last
    values, `lean` the smoothed innovation, and `surprise` the mean of squared innovations over what the filter expects:
    1 where it is right.
    """

    noise: Float[Array | np.ndarray, ""] = np.zeros((), np.float32)
    weight: Float[Array | np.ndarray, ""] = np.zeros((), np.float32)
    recent: Float[Array | np.ndarray, "2 3"] = np.zeros((2, 3), np.float32)
    lean: Float[Array | np.ndarray, " 3"] = np.zeros(3, np.float32)
    surprise: Float[Array | np.ndarray, ""] = np.ones((), np.float32)


class Belief(NamedTuple):
    """Mean and covariance of (f_x, f_y, f_z, mass change, drag change), and how the filter watches itself."""

    mean: Float[Array, " 5"]
    covariance: Float[Array, "5 5"]
    watch: Watch = Watch()


def start_belief(mass_std: float = MASS_STD) -> Belief:
    """Return the prior: no force within 1 N (upwards 0.2 N), mass within `mass_std`, drag within 50%."""
    std = jnp.array([FORCE_STD, FORCE_STD, LIFT_STD, mass_std, DRAG_STD])
    return Belief(jnp.zeros(5), jnp.diag(jnp.square(std)), jax.tree.map(jnp.asarray, Watch()))


def take_in(belief: Belief, state: FlightState, params: QuadrotorParams, dt: float | Array = DT) -> Belief:
    """Take in what the vehicle measured in its last step of dt seconds; `params` are the nominal ones."""
    body = state.body
    drag = rotate(body.attitude, body_drag(body.attitude, body.velocity, 1.0, params))
    return update_belief(belief, state.felt, state.thrust, drag, params, dt)


def _measured_noise(watch: Watch, balance: Float[Array, " 3"], params: QuadrotorParams, dt: float | Array) -> Watch:
    """Follow the variance of the balance's white part: a second difference has six times that, and hardly any wind."""
    started = watch.weight > 1.5  # two values are there
    sample = jnp.mean((balance - 2 * watch.recent[1] + watch.recent[0]) ** 2) / 6
    told = jnp.asarray(params.force_noise, jnp.float32) ** 2
    known = jnp.maximum(watch.noise, 0.25 * told)
    share = jnp.maximum(dt / MEMORY_S, 1 / (watch.weight + 3))
    noise = watch.noise + share * (jnp.minimum(sample, LARGEST * known) - watch.noise)
    noise = jnp.where(started, noise, told)
    return watch._replace(noise=noise, weight=watch.weight + 1, recent=jnp.stack([watch.recent[1], balance]))


def update_belief(
    belief: Belief,
    felt: Float[Array, " 3"],
    thrust: Float[Array, " 3"],
    drag: Float[Array, " 3"],
    params: QuadrotorParams,
    dt: float | Array,
) -> Belief:
    """Take in one step's mean specific force; `params` are the nominal ones."""
    balance = params.mass * felt - thrust - drag
    watch = _measured_noise(belief.watch, balance, params, dt)
    # Predict: sideways a random walk, upwards a force that passes, mass and drag hardly change.
    keep = jnp.exp(-dt / LIFT_TIME)
    fade = jnp.ones(5).at[2].set(keep)
    walk = jnp.asarray(params.force_walk, jnp.float32) ** 2 * dt
    added = jnp.stack(
        [walk, walk, LIFT_STD**2 * (1 - keep**2), *(jnp.asarray(s**2 * dt, jnp.float32) for s in SLOW_WALK)]
    )
    mean = fade * belief.mean
    covariance = fade[:, None] * belief.covariance * fade + jnp.diag(added)
    lightness = 1 / (1 + mean[3])
    design = jnp.concatenate([jnp.eye(3), -((thrust + drag) * lightness**2)[:, None], drag[:, None]], 1)
    miss = balance - mean[:3] - (thrust + drag) * (lightness - 1) - drag * mean[4]
    noise = jnp.maximum(watch.noise, jnp.asarray(params.force_noise, jnp.float32) ** 2) * jnp.eye(3)
    spread = design @ covariance @ design.T + noise
    # A force that jumped: innovations that lean one way, sideways, more than chance allows.
    lean = watch.lean + SMOOTHING * (miss - watch.lean)
    scale = SMOOTHING / (2 - SMOOTHING) * spread[:2, :2]
    jumped = lean[:2] @ jnp.linalg.solve(scale, lean[:2]) > GATE
    covariance = covariance + jumped * jnp.diag(jnp.zeros(5).at[:2].set(lean[:2] @ lean[:2]))
    spread = design @ covariance @ design.T + noise
    gain = jnp.linalg.solve(spread, design @ covariance).T
    # Mass learns upwards, drag sideways, and neither from a jump; Joseph's form holds for any gain.
    learns = jnp.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]) * (1 - jumped)
    gain = gain.at[3:].multiply(learns)
    left = jnp.eye(5) - gain @ design
    square = jnp.minimum(miss @ jnp.linalg.solve(spread, miss) / 3, LARGEST)
    surprise = watch.surprise + dt / MEMORY_S * (1 - jumped) * (square - watch.surprise)
    watch = watch._replace(lean=jnp.where(jumped, 0.0, lean), surprise=surprise)
    return Belief(mean + gain @ miss, left @ covariance @ left.T + gain @ noise @ gain.T, watch)


def draw_members(key: Array, belief: Belief, num: int) -> Float[Array, "5 num"]:
    """Draw parameters in pairs mirrored at the mean, so that even a few draws have the right mean."""
    root = jnp.linalg.cholesky(belief.covariance + 1e-9 * jnp.eye(5))
    half = jax.random.normal(key, (5, (num + 1) // 2))
    noise = jnp.concatenate([half, -half], 1)[:, :num]
    return belief.mean[:, None] + root @ noise
