r"""The rigid body with its four rotors: world z up, body x forward, y left; rotors FR, RL, FL, RR as PX4 numbers them.

.. math::

   \dot p &= v, \qquad m \dot v = R\,(e_3 \textstyle\sum_j f_j + F_{drag}) - m g e_3 + F_{ext}, \qquad
   \dot q = \tfrac12\, q \otimes (0, \omega) \\
   f_j &= k_f \Omega_j^2, \qquad
   F_{drag} = -\tfrac{\sum_j \Omega_j}{4 \Omega_h} \mathrm{diag}(D)\, v_a - c\,|v_a|\,v_a,
   \qquad v_a = R^\top (v - w) \\
   J \dot\omega &= \tau - \omega \times J \omega - \omega \times (J_r \textstyle\sum_j s_j \Omega_j\, e_3)
   - J_r \sum_j s_j \dot\Omega_j\, e_3, \qquad \dot\Omega = (\Omega_c - \Omega) / \tau_m

Components come first and any batch after them: `position` is `[3, *n]`, so that one function serves one vehicle, a
batch, and the planner's candidates, with arithmetic along the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.tasks.quadrotor.params import QuadrotorParams, hover_speed

__all__ = [
    "Body", "LEVERS", "SPINS", "Vector3", "Vector4", "body_drag", "euler_step", "hovering", "mix", "rotate",
    "rotate_back", "rotor_forces", "throttle_forces", "thrust_axis", "wrench",
]  # fmt: skip

# (x, y) of the rotors in arm lengths, and their turning sense (counter-clockwise positive).
LEVERS = tuple((x * 0.5**0.5, y * 0.5**0.5) for x, y in ((1, -1), (-1, 1), (1, 1), (-1, -1)))
SPINS = (1.0, 1.0, -1.0, -1.0)
# Components first, any batch after them.
Vector3 = Float[Array, "3 ..."]
Vector4 = Float[Array, "4 ..."]


class Body(NamedTuple):
    """The 17 states: position, velocity (world), attitude (w, x, y, z), rates (body), rotor speeds."""

    position: Vector3
    velocity: Vector3
    attitude: Vector4
    rates: Vector3
    rotors: Vector4


def hovering(position: Vector3, params: QuadrotorParams) -> Body:
    """At rest, level, with the rotors carrying the weight."""
    zero = jnp.zeros_like(position)
    one = jnp.ones_like(position[:1])
    rotors = jnp.broadcast_to(hover_speed(params), (4, *position.shape[1:])).astype(position.dtype)
    return Body(position, zero, jnp.concatenate([one, zero]), zero, rotors)


def _rows(q: Vector4) -> tuple[tuple[Array, Array, Array], ...]:
    """Rows of R for a unit quaternion."""
    w, x, y, z = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def rotate(q: Vector4, u: Vector3) -> Vector3:
    """From the body to the world: R u."""
    return jnp.stack([a * u[0] + b * u[1] + c * u[2] for a, b, c in _rows(q)])


def rotate_back(q: Vector4, u: Vector3) -> Vector3:
    """From the world to the body: R^T u."""
    rows = _rows(q)
    return jnp.stack([rows[0][i] * u[0] + rows[1][i] * u[1] + rows[2][i] * u[2] for i in range(3)])


def thrust_axis(q: Vector4) -> Vector3:
    """R e_3."""
    return jnp.stack([row[2] for row in _rows(q)])


def body_drag(q: Vector4, air: Vector3, share: Array | float, params: QuadrotorParams) -> Vector3:
    """Drag in the body frame for a world velocity relative to the air; `share` is rotor speed over hover speed."""
    va = rotate_back(q, air)
    speed = jnp.sqrt(jnp.sum(va**2, 0))
    linear = jnp.stack([share * d * x for d, x in zip((params.drag_x, params.drag_y, params.drag_z), va, strict=True)])
    return -linear - params.drag_quadratic * speed * va


def rotor_forces(rotors: Vector4, params: QuadrotorParams) -> Vector4:
    """Thrust of every rotor."""
    return params.thrust_coefficient * rotors**2


def throttle_forces(throttles: Vector4, params: QuadrotorParams) -> Vector4:
    """Thrust that every rotor comes to at its throttle u: f / f_max = k u^2 + (1 - k) u."""
    k, u = params.throttle_curve, throttles
    return jnp.clip((k * u * u + (1 - k) * u) * params.thrust_max, params.thrust_min, params.thrust_max)


def wrench(forces: Vector4, params: QuadrotorParams) -> Vector4:
    """Collective thrust and body torques of rotor thrusts: the rows 1, L y_j, -L x_j, -kappa s_j."""
    f, arm = forces, params.arm
    # A rotor at +y lifts that side (roll), one at +x lifts the nose (negative pitch); drag turns against its spin.
    roll = sum(arm * y * f[j] for j, (_, y) in enumerate(LEVERS))
    pitch = sum(-arm * x * f[j] for j, (x, _) in enumerate(LEVERS))
    yaw = sum(-params.torque_ratio * s * f[j] for j, s in enumerate(SPINS))
    return jnp.stack([f[0] + f[1] + f[2] + f[3], roll, pitch, yaw])


def mix(wanted: Vector4, params: QuadrotorParams) -> Vector4:
    """Rotor thrusts for a wanted wrench, clipped to what the rotors can do (the inverse of `wrench` inside)."""
    thrust, roll, pitch, yaw = wanted
    forces = [
        (thrust + roll * 2 * y / params.arm - pitch * 2 * x / params.arm - s * yaw / params.torque_ratio) / 4
        for (x, y), s in zip(LEVERS, SPINS, strict=True)
    ]
    return jnp.clip(jnp.stack(forces), params.thrust_min, params.thrust_max)


def euler_step(
    body: Body, commands: Vector4, wind: Vector3, external: Vector3, params: QuadrotorParams, dt: float | Array
) -> Body:
    """One Euler step under commanded rotor speeds; the motors' lag is stepped exactly."""
    forces = rotor_forces(body.rotors, params)
    load = wrench(forces, params)
    share = jnp.sum(body.rotors, 0) / (4 * hover_speed(params))
    drag = body_drag(body.attitude, body.velocity - wind, share, params)
    push = rotate(body.attitude, drag + jnp.stack([jnp.zeros_like(load[0])] * 2 + [load[0]])) + external
    ax, ay, az = push / params.mass
    # First-order lag over dt under a constant command.
    change = (commands - body.rotors) * (1 - jnp.exp(-dt / params.motor_time))
    # Angular momentum of the rotors about z, and the torque of changing it.
    spin = params.rotor_inertia * (body.rotors[0] + body.rotors[1] - body.rotors[2] - body.rotors[3])
    kick = params.rotor_inertia * (change[0] + change[1] - change[2] - change[3]) / dt
    p, q, r = body.rates
    jx, jy, jz = params.inertia_x, params.inertia_y, params.inertia_z
    turn = jnp.stack(
        [
            (load[1] - (jz - jy) * q * r - q * spin) / jx,
            (load[2] - (jx - jz) * p * r + p * spin) / jy,
            (load[3] - (jy - jx) * p * q - kick) / jz,
        ]
    )
    w, x, y, z = body.attitude
    drift = jnp.stack([-x * p - y * q - z * r, w * p + y * r - z * q, w * q - x * r + z * p, w * r + x * q - y * p])
    # Back to a unit quaternion: an Euler step lengthens it.
    attitude = body.attitude + 0.5 * dt * drift
    return Body(
        body.position + dt * body.velocity,
        body.velocity + dt * jnp.stack([ax, ay, az - params.gravity]),
        attitude / jnp.sqrt(jnp.sum(attitude**2, 0)),
        body.rates + dt * turn,
        body.rotors + change,
    )
