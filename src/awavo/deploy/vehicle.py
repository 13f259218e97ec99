"""A simulated vehicle that speaks MAVLink over loopback: our quadrotor behind PX4's offboard rules.

    python -m awavo.deploy.vehicle --port 14540 [--sender SYSTEM] [--wind NORTH EAST]

It sends a heartbeat (1 Hz), attitude, local position and accelerations (100 Hz), takes arming and mode commands and
body-rate and thrust setpoints, and leaves offboard mode for position hold when setpoints stop for `LOSS_S`, as PX4
does. Commands on its standard input, for tests: `cut` (radio silence both ways), `restore`, `wind NORTH EAST` (m/s,
where the air moves to), `status` (one JSON line), `quit`. It is for tests and rehearsals, needs pymavlink, binds to
127.0.0.1 alone, hears the address it sends to and no other, and obeys messages that name it as their target and come
from the system it was told to obey.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from awavo.errors import InputError, MissingExtraError
from awavo.tasks.quadrotor.frames import flip_attitude, flip_vector, rotate_rows, thrust_per_mass
from awavo.types import Fields

if TYPE_CHECKING:
    from awavo.tasks.quadrotor.body import Body

__all__ = ["LOSS_S", "RATE_HZ", "SimulatedVehicle", "main"]

RATE_HZ = 100
LOSS_S = 1.0
ARM, SET_MODE, SET_INTERVAL, REQUEST = 400, 176, 511, 512
OFFBOARD, HOLD = (6, 0), (4, 3)  # PX4's main mode and sub-mode
DENIED = 2
FASTEST = 50.0  # rad/s of a setpoint
STRONGEST = 30.0  # m/s of wind
SYSTEM, COMPONENT = 1, 1  # our numbers, those of an autopilot
SENDER = 1  # MAVSDK on a companion computer speaks as a part of the vehicle's system


class SimulatedVehicle:
    """The vehicle's state and radio; `tick` advances both by 10 ms."""

    def __init__(self, port: int, sender: int = SENDER, wind: tuple[float, float] = (0.0, 0.0)):
        if not 1024 <= port <= 65535:
            raise InputError(f"port={port} must lie in 1024 .. 65535.")
        if not 1 <= sender <= 255:
            raise InputError(f"sender={sender} must lie in 1 .. 255.")
        try:
            from pymavlink import mavutil
        except ImportError as error:
            raise MissingExtraError("the simulated vehicle needs pymavlink: pip install 'awavo[px4-sim]'.") from error
        import jax
        import jax.numpy as jnp

        from awavo.control.tracking import Gains, track
        from awavo.tasks.quadrotor.body import hovering
        from awavo.tasks.quadrotor.flight import fly
        from awavo.tasks.quadrotor.params import QuadrotorParams
        from awavo.tasks.quadrotor.rate_loop import start_loop
        from awavo.tasks.quadrotor.references import RefState

        self.params = params = QuadrotorParams()
        self.radio = mavutil.mavlink_connection(
            f"udpout:127.0.0.1:{port}", source_system=SYSTEM, source_component=COMPONENT, dialect="common"
        )
        # Unbound, the socket would listen on every interface; connected, it hears this peer alone.
        self.radio.port.bind(("127.0.0.1", 0))
        self.radio.port.connect(("127.0.0.1", port))
        self.sender, self.refused = sender, 0
        self.body = hovering(jnp.array([0.0, 0.0, 1.5]), params)
        self.loop = start_loop(self.body.rates)
        zero = jnp.zeros(3)

        def tracked(body, place):
            wanted = RefState(place, zero, zero)
            return track(body.position, body.velocity, body.attitude, wanted, zero, params.gravity, Gains())

        self._fly = jax.jit(lambda b, s, a, w: fly(b, s, a, w, zero, params, False, round(500 / RATE_HZ))[:2])
        self._track = jax.jit(tracked)
        self.place = self.body.position
        self.setpoint = np.array([params.gravity, 0.0, 0.0, 0.0])
        self.blow(*wind)
        self._fly(self.body, self.loop, self._track(self.body, self.place), self.wind)
        self.felt = np.array([0.0, 0.0, params.gravity])
        self.armed, self.mode, self.cut, self.running = False, HOLD, False, True
        self.arrivals: list[float] = []
        self.events: list[str] = []
        self.began = time.monotonic()
        self._beat = 0.0

    def blow(self, north: float, east: float) -> None:
        """Let the air move, in m/s."""
        if not (abs(north) <= STRONGEST and abs(east) <= STRONGEST):  # False for NaN too
            raise InputError(f"wind {north:g} {east:g} must lie within {STRONGEST:g} m/s.")
        self.wind = flip_vector(np.array([north, east, 0.0])).astype(np.float32)

    def status(self) -> Fields:
        """What a test wants to know."""
        body = self.body
        return {
            "time": time.monotonic() - self.began,
            "mode": "offboard" if self.mode == OFFBOARD else "hold",
            "armed": self.armed,
            "position": [float(x) for x in body.position],
            "speed": float(np.linalg.norm(np.asarray(body.velocity))),
            "upright": float(1 - 2 * (body.attitude[1] ** 2 + body.attitude[2] ** 2)),
            "setpoints": len(self.arrivals),
            "last_setpoint_s": self.arrivals[-1] - self.began if self.arrivals else None,
            "intervals_ms": [round(1e3 * g, 2) for g in np.diff(self.arrivals[-6000:])],
            "events": self.events,
        }

    def tick(self) -> None:
        """Read what came in, apply the rules, fly 10 ms, send telemetry."""
        self._receive()
        now = time.monotonic()
        silent = not self.arrivals or now - self.arrivals[-1] > LOSS_S
        if self.mode == OFFBOARD and silent:
            self._hold("setpoints lost")
        action = self.setpoint if self.mode == OFFBOARD else self._track(self.body, self.place)
        before = self.body
        self.body, self.loop = self._fly(self.body, self.loop, np.asarray(action, np.float32), self.wind)
        self.felt = self._feel(before)
        if not self.cut:
            self._send(now)

    def _feel(self, before: Body) -> np.ndarray:
        """What an accelerometer feels over a tick, in our body frame: everything but gravity.

        The mean over the tick is turned by the attitude at its middle: by that at its end, a fast turn would feel like
        a force to the side.
        """
        change = np.asarray(self.body.velocity, float) - np.asarray(before.velocity, float)
        middle = np.asarray(before.attitude, float) + np.asarray(self.body.attitude, float)
        back = middle / np.linalg.norm(middle) * [1.0, -1.0, -1.0, -1.0]
        return rotate_rows(back[None], (change * RATE_HZ + [0.0, 0.0, self.params.gravity])[None])[0]

    def _hold(self, why: str) -> None:
        self.mode, self.place = HOLD, self.body.position
        self.events.append(f"{time.monotonic() - self.began:.2f} hold: {why}")

    def _receive(self) -> None:
        while (message := self.radio.recv_msg()) is not None:
            if self.cut:
                continue
            if not self._is_for_us(message):
                self.refused += 1
                continue
            kind = message.get_type()
            if kind == "SET_ATTITUDE_TARGET" and message.type_mask & 128:
                self._take_setpoint(message)
            elif kind == "COMMAND_LONG":
                self.radio.mav.command_ack_send(message.command, self._command(message))
            elif kind == "SET_MODE":
                self._change_mode((message.custom_mode >> 16) & 255, (message.custom_mode >> 24) & 255)

    def _is_for_us(self, message: Any) -> bool:
        """Whether it comes from the system we obey and, where it names a target, that is us."""
        target = getattr(message, "target_system", SYSTEM), getattr(message, "target_component", COMPONENT)
        return message.get_srcSystem() == self.sender and target[0] == SYSTEM and target[1] in (0, COMPONENT)

    def _take_setpoint(self, message: Any) -> None:
        """Follow a setpoint; one that no vehicle could follow does not count as one."""
        rates = flip_vector(np.array([message.body_roll_rate, message.body_pitch_rate, message.body_yaw_rate]))
        if not (0 <= message.thrust <= 1 and (np.abs(rates) <= FASTEST).all()):  # False for NaN too
            self.refused += 1
            return
        self.arrivals.append(time.monotonic())
        thrust = thrust_per_mass(message.thrust, self.params.mass, self.params.thrust_max)
        self.setpoint = np.array([thrust, *rates])

    def _command(self, message: Any) -> int:
        if message.command == ARM:
            self.armed = message.param1 > 0.5
            self.events.append(f"{time.monotonic() - self.began:.2f} {'armed' if self.armed else 'disarmed'}")
            return 0
        if message.command == SET_MODE:
            if not all(0 <= mode <= 255 for mode in (message.param2, message.param3)):  # False for NaN too
                return DENIED
            return self._change_mode(int(message.param2), int(message.param3))
        return 0 if message.command in (SET_INTERVAL, REQUEST) else 3

    def _change_mode(self, main: int, sub: int) -> int:
        if (main, sub)[0] == OFFBOARD[0]:
            streaming = self.arrivals and time.monotonic() - self.arrivals[-1] < 0.5
            if not streaming:
                return 1
            self.mode = OFFBOARD
            self.events.append(f"{time.monotonic() - self.began:.2f} offboard")
        else:
            self._hold("commanded")
        return 0

    def _send(self, now: float) -> None:
        mav, boot = self.radio.mav, int(1e3 * (now - self.began))
        if now - self._beat >= 1.0:
            self._beat = now
            custom = (self.mode[0] << 16) | (self.mode[1] << 24)
            mav.heartbeat_send(2, 12, 1 | (128 if self.armed else 0), custom, 4)
        q, rates = flip_attitude(np.asarray(self.body.attitude)), flip_vector(np.asarray(self.body.rates))
        mav.attitude_quaternion_send(boot, *map(float, q), *map(float, rates))
        place, speed = (flip_vector(np.asarray(x)) for x in (self.body.position, self.body.velocity))
        mav.local_position_ned_send(boot, *map(float, place), *map(float, speed))
        felt = flip_vector(self.felt)
        mav.highres_imu_send(1000 * boot, *map(float, felt), *map(float, rates), 0, 0, 0, 0, 0, 0, 0, 0b111111)


def _listen(vehicle: SimulatedVehicle) -> None:
    for line in sys.stdin:
        word = line.strip()
        if word in ("cut", "restore"):
            vehicle.cut = word == "cut"
        elif word.startswith("wind "):
            vehicle.blow(*map(float, word.split()[1:3]))
        elif word == "status":
            print(json.dumps(vehicle.status()), flush=True)
        elif word == "quit":
            break
    vehicle.running = False


def main() -> None:
    """Run until `quit` or the end of the standard input."""
    parser = argparse.ArgumentParser(description="A simulated vehicle that speaks MAVLink over loopback.")
    parser.add_argument("--port", type=int, default=14540)
    parser.add_argument("--sender", type=int, default=SENDER, help="number of the system to obey")
    parser.add_argument("--wind", type=float, nargs=2, default=(0.0, 0.0), metavar=("NORTH", "EAST"), help="m/s")
    options = parser.parse_args()
    vehicle = SimulatedVehicle(options.port, options.sender, tuple(options.wind))
    threading.Thread(target=_listen, args=(vehicle,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    due = time.monotonic()
    while vehicle.running:
        vehicle.tick()
        due = max(due + 1 / RATE_HZ, time.monotonic() - 0.05)
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
