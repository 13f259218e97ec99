"""Every number of the quadrotor and its surroundings; all may be arrays, to vmap over or to draw at random."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["QuadrotorParams", "draw_parameters", "hover_speed"]


class QuadrotorParams(NamedTuple):
    """A 250 mm vehicle of 1.2 kg that hovers at 30% throttle, in SI units.

    Inertia, drag and rotor inertia are estimates between published vehicles of that size; randomise them. The largest
    thrust follows from mass, hover throttle and the throttle curve f / f_max = k u^2 + (1 - k) u.
    """

    mass: float = 1.2
    arm: float = 0.125
    inertia_x: float = 5.0e-3
    inertia_y: float = 5.5e-3
    inertia_z: float = 9.0e-3
    thrust_coefficient: float = 2.0e-6
    torque_ratio: float = 0.0145
    rotor_inertia: float = 1.0e-5
    motor_time: float = 0.04
    thrust_min: float = 0.12
    thrust_max: float = 12.4
    throttle_curve: float = 0.3
    drag_x: float = 0.26
    drag_y: float = 0.28
    drag_z: float = 0.42
    drag_quadratic: float = 0.012
    gravity: float = 9.81
    # Inner loop at 500 Hz, in PX4's normalised units (airframe 4052): torque 1 is all rotors at full difference.
    roll_p: float = 0.076
    roll_i: float = 0.3
    roll_d: float = 0.0012
    pitch_p: float = 0.082
    pitch_i: float = 0.35
    pitch_d: float = 0.0012
    yaw_p: float = 0.25
    yaw_i: float = 0.3
    # Wind: a fan zone around a mark of the reference, Dryden gusts, one 1-cosine gust an episode.
    wind_on: float = 1.0
    wind_x: float = 0.0
    wind_y: float = 4.0
    wind_z: float = 0.0
    zone_radius: float = 1.5
    zone_edge: float = 0.25
    gust_sigma: float = 0.6
    gust_length: float = 10.0
    gust_speed: float = 4.0
    gust_peak: float = 2.0
    gust_time: float = 1.5
    # Obstacles: clearance is measured from the vehicle's centre to the nearest surface.
    obstacles_on: float = 1.0
    collision_radius: float = 0.2
    clearance: float = 0.3
    collision_cost: float = 10.0
    proximity_force: float = 1.2
    proximity_length: float = 0.25
    # Reference: angular rate of the slow axis, size, height.
    reference_rate: float = 0.6
    reference_x: float = 3.0
    reference_y: float = 1.5
    reference_z: float = 1.5
    # Force filter: standard deviations of measured force and velocity, and of the force's random walk (N per sqrt(s)).
    force_noise: float = 0.15
    velocity_noise: float = 0.03
    force_walk: float = 1.5
    # Reward and the second cost.
    tilt_limit: float = 0.5236
    effort_weight: float = 0.01
    velocity_weight: float = 0.1


def hover_speed(params: QuadrotorParams) -> Array:
    """Rotor speed at which the four rotors carry the weight."""
    return jnp.sqrt(params.mass * params.gravity / (4 * params.thrust_coefficient))


SPREADS = {
    "mass": 1.15, "inertia_x": 1.3, "inertia_y": 1.3, "inertia_z": 1.3, "thrust_coefficient": 1.1, "motor_time": 1.25,
    "drag_x": 2.0, "drag_y": 2.0, "drag_z": 2.0, "drag_quadratic": 2.0,
}  # fmt: skip


def draw_parameters(key: Array, params: QuadrotorParams) -> QuadrotorParams:
    """Randomise the vehicle: each uncertain number times a factor, log-uniform within its spread."""
    factors = jax.random.uniform(key, (len(SPREADS),), minval=-1.0, maxval=1.0)
    drawn = {
        name: getattr(params, name) * spread**f for (name, spread), f in zip(SPREADS.items(), factors, strict=True)
    }
    return params._replace(**drawn)
