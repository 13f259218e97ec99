"""From what a vehicle reports over its link to what planners and policies see: a flight state, and an observation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.deploy.mavlink import Measured, VehicleState
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, thrust_axis
from awavo.tasks.quadrotor.flight import FlightState, observe
from awavo.tasks.quadrotor.force_filter import start_filter, update_filter
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.rate_loop import start_loop
from awavo.tasks.quadrotor.references import RefFn

__all__ = ["Estimator"]

SHORTEST_S, LONGEST_S = 1e-3, 0.5  # between two reports that are compared


class Estimator:
    """Turns reports into `FlightState`s; `observation` is what a policy trained on the quadrotor task expects.

    The accelerometer is used where the vehicle sends it, else the change of its velocity between two reports. Where
    nothing new was measured the force filter waits. Rotor speeds are those that give the thrust that was sent. What a
    vehicle does not know (gusts, the true force) is zero.
    """

    def __init__(self, params: QuadrotorParams, forest: Forest, reference: RefFn):
        self._params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        self._forest = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), forest)
        self._last: tuple[float, float, np.ndarray] | None = None
        self._measured = Measured(None, float(params.gravity))
        self._filter = start_filter(jnp.zeros(3))
        self._build = jax.jit(_flight_state)
        self._observe = jax.jit(lambda state, params: observe(state, reference, params))

    def update(self, seen: VehicleState, measured: Measured | None, time: float) -> FlightState:
        """Take in a report at `time` on the reference, with what was felt and given since the last one, if anything."""
        new = measured is not None
        self._measured = measured = self._measured if measured is None else measured
        heard = time - seen.age_s
        last, last_heard, velocity = self._last or (time - 0.02, heard - 0.02, seen.velocity)
        dt, apart = (float(np.clip(x, SHORTEST_S, LONGEST_S)) for x in (time - last, heard - last_heard))
        drift = (seen.velocity - velocity) / apart + [0.0, 0.0, float(self._params.gravity)]
        felt = np.zeros(3) if measured.felt is None else measured.felt
        numbers = (*seen[:4], felt, drift, measured.thrust, time, dt)
        arrays = [jnp.asarray(x, jnp.float32) for x in numbers]
        state = self._build(arrays, measured.felt is not None, self._filter, self._forest, self._params)
        if not new:
            return state._replace(filter=self._filter)
        self._last, self._filter = (time, heard, seen.velocity), state.filter
        return state

    def observation(self, state: FlightState) -> Float[Array, " d"]:
        """Return the observation of a state."""
        return self._observe(state, self._params)


def _flight_state(arrays, felt_it, force_filter, forest, params) -> FlightState:
    position, velocity, attitude, rates, felt, drift, thrust, time, dt = arrays
    attitude = attitude / jnp.linalg.norm(attitude)
    felt = jnp.asarray(jnp.where(felt_it, rotate(attitude, felt), drift))
    force = params.mass * thrust
    rotors = jnp.full(4, jnp.sqrt(jnp.maximum(force, 0.0) / (4 * params.thrust_coefficient)))
    lift = force * thrust_axis(attitude)
    still = rotate(attitude, body_drag(attitude, velocity, 1.0, params))
    weight = params.mass * params.gravity * jnp.array([0.0, 0.0, 1.0])
    found = update_filter(
        force_filter, lift + still - weight, params.mass * felt - lift - still, velocity, params, dt
    )  # fmt: skip
    body = Body(position, velocity, attitude, rates, rotors)
    return FlightState(
        body, start_loop(rates), found, jnp.zeros(5), forest, time, jnp.zeros(()), jnp.zeros(3), lift, felt
    )
