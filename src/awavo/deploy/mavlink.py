"""Offboard flight over MAVLink: body rates and thrust streamed through MAVSDK (extra `px4`).

The stream has a thread of its own, which sends at a fixed rate whatever the policy does. Where the policy is late it
holds and shifts the last plan; when the plan is used up, when telemetry stops or the kill switch is pulled, it hands
the vehicle back (PX4 holds its position) and sends nothing more. MAVSDK repeats the last setpoint at 20 Hz by itself:
only leaving offboard mode and destroying its plugin ends the stream, so that is what `kill` does.

The link hears one vehicle: the system number and the address of `LinkConfig`, nobody else.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from awavo.deploy.radio import Radio, read_address, read_url
from awavo.errors import AwavoError, InputError, MissingExtraError
from awavo.tasks.quadrotor.frames import flip_attitude, flip_vector, normalised_thrust

__all__ = ["LinkConfig", "LinkError", "Measured", "OffboardLink", "VehicleState"]


LARGEST = {  # thrust in N a rotor
    "connect_s": 600.0, "stale_s": 10.0, "hold_s": 10.0, "mass": 1e3, "thrust_max": 1e5, "motor_s": 1.0,
}  # fmt: skip
GRAVITY = 9.81
MOST_SAMPLES = 500  # kept for one who does not ask
FELT_LOST_S = 1.0  # without accelerations for so long, the vehicle counts as one that sends none
CATCH_UP_S = 0.1  # ticks missed by less than this are sent late, older ones never


class LinkError(AwavoError):
    """A vehicle that cannot be reached, or refuses a command."""


class VehicleState(NamedTuple):
    """The vehicle in our frames, and the age of what is known of it."""

    position: Float[np.ndarray, " 3"]
    velocity: Float[np.ndarray, " 3"]
    attitude: Float[np.ndarray, " 4"]
    rates: Float[np.ndarray, " 3"]
    age_s: float


class Measured(NamedTuple):
    """Means since it was asked last: specific force (our body frame, None without an accelerometer), thrust per mass.

    The thrust is the one sent, behind the rotors' lag.
    """

    felt: Float[np.ndarray, " 3"] | None
    thrust: float


class LinkConfig(NamedTuple):
    """Where the vehicle is, what it weighs, how its rotors lag, how fast to send, and when to give up.

    Only frames of `system_id` that come from `peer` (HOST:PORT) count. Without a peer it is the address of a `udpout`
    url; on `udpin`, where the url says only where to listen, it is the first sender with that system's number.
    """

    url: str = "udpin://127.0.0.1:14540"
    system_id: int = 1
    peer: str | None = None
    mass: float = 1.2
    thrust_max: float = 12.4
    motor_s: float = 0.04
    rate_hz: float = 100.0
    connect_s: float = 10.0
    stale_s: float = 0.5
    hold_s: float = 0.5


DEFAULT = LinkConfig()
Plan = Sequence[Float[np.ndarray, " 4"]]


def _check(config: LinkConfig) -> None:
    """Refuse settings with which the link could not fly, or would never give up."""
    if not 2 < config.rate_hz <= 500:
        raise InputError(f"rate_hz={config.rate_hz} must lie in (2, 500]: PX4 leaves offboard mode below 2 Hz.")
    for name in LARGEST:
        if not 0 < getattr(config, name) <= LARGEST[name]:  # False for NaN too
            raise InputError(f"{name}={getattr(config, name)} must lie in (0, {LARGEST[name]:g}].")
    if not 1 <= config.system_id <= 255:
        raise InputError(f"system_id={config.system_id} must lie in 1 .. 255.")


class OffboardLink:
    """One vehicle. `submit(plan)` gives the thread its next actions (thrust per mass, body rates), one a tick."""

    def __init__(self, config: LinkConfig = DEFAULT):
        _check(config)
        try:
            import mavsdk
            from mavsdk.plugins.action import Action
            from mavsdk.plugins.offboard import AttitudeRate, Offboard
            from mavsdk.plugins.telemetry import Telemetry
        except ImportError as error:
            raise MissingExtraError("offboard flight needs MAVSDK: pip install 'awavo[px4]'.") from error
        self.config = config
        self._mavsdk = mavsdk.Mavsdk(
            mavsdk.Configuration.create_with_component_type(mavsdk.ComponentType.COMPANION_COMPUTER)
        )
        try:
            self._radio = self._connect()
        except InputError:
            self._mavsdk.destroy()
            raise
        system = self._find_vehicle()
        if system is None:
            self._disconnect()
            raise LinkError(
                f"no autopilot with system_id {config.system_id} answered on {config.url} within "
                f"{config.connect_s:g} s: is it running?"
            )
        self._action, self._offboard, self._telemetry = Action(system), Offboard(system), Telemetry(system)
        self._setpoint = AttitudeRate
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[float, Any]] = {}
        self._telemetry.subscribe_attitude_quaternion(self._keep("attitude"))
        self._telemetry.subscribe_attitude_angular_velocity_body(self._keep("rates"))
        self._telemetry.subscribe_position_velocity_ned(self._keep("place"))
        self._telemetry.subscribe_imu(self._hear_imu)
        self._felt: list[list[float]] = []
        self._felt_at, self._asked_at = -math.inf, -math.inf
        self._lagged, self._thrusts = GRAVITY, [GRAVITY]
        self._plan: list[np.ndarray] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.ended: str | None = None
        self.sent, self.held, self.call_s = 0, 0, []

    def _connect(self) -> Radio | None:
        """Open the url: a UDP socket of our own, which knows its vehicle, or what MAVSDK has for other kinds."""
        found = read_url(self.config.url)
        if found is None:
            self._mavsdk.add_any_connection(self.config.url)
            return None
        peer = None if self.config.peer is None else read_address(self.config.peer, "peer")
        self._mavsdk.add_any_connection("raw://")
        radio = Radio(*found, peer, self.config.system_id, self._mavsdk.pass_received_raw_bytes)
        self._mavsdk.subscribe_raw_bytes_to_be_sent(radio.send)
        return radio

    def _disconnect(self) -> None:
        if self._radio is not None:
            self._radio.close()
        self._mavsdk.destroy()

    def _find_vehicle(self) -> Any:
        """The autopilot with our system's number, or None where it does not show up in time."""
        end = time.monotonic() + self.config.connect_s
        while time.monotonic() < end:
            for system in self._mavsdk.get_systems():
                if system.has_autopilot() and system.get_system_id() == self.config.system_id:
                    return system
            time.sleep(0.01)
        return None

    def _keep(self, name: str) -> Callable[..., None]:
        def keep(value: object, *_: object) -> None:
            self._latest[name] = (time.monotonic(), value)

        return keep

    def _hear_imu(self, imu: Any, *_: object) -> None:
        a = imu.acceleration_frd
        self._felt = [*self._felt[-MOST_SAMPLES:], [a.forward_m_s2, a.right_m_s2, a.down_m_s2]]
        self._felt_at = time.monotonic()

    def measured(self) -> Measured | None:
        """Return what was felt and given since the last answer, what a force filter takes in; None: nothing was heard.

        A report that is late is no report of a vehicle that stands still: what was given meanwhile waits for it.
        """
        heard = self._latest.get("place", (-math.inf, None))[0]
        feels = time.monotonic() - self._felt_at < FELT_LOST_S
        if not self._felt and (feels or heard <= self._asked_at):
            return None
        self._asked_at = heard
        felt, self._felt = self._felt, []
        thrusts, self._thrusts = self._thrusts, [self._lagged]
        mean = flip_vector(np.mean(felt, 0)) if felt and np.isfinite(felt).all() else None
        return Measured(mean, float(np.mean(thrusts)))

    def state(self) -> VehicleState | None:
        """Return the newest state, or None while a part of it has never been heard."""
        latest = dict(self._latest)
        if len(latest) < 3:
            return None
        q, w, p = (latest[name][1] for name in ("attitude", "rates", "place"))
        age = time.monotonic() - min(stamp for stamp, _ in latest.values())
        return VehicleState(
            flip_vector(np.array([p.position.north_m, p.position.east_m, p.position.down_m])),
            flip_vector(np.array([p.velocity.north_m_s, p.velocity.east_m_s, p.velocity.down_m_s])),
            flip_attitude(np.array([q.w, q.x, q.y, q.z])),
            flip_vector(np.array([w.roll_rad_s, w.pitch_rad_s, w.yaw_rad_s])),
            age,
        )

    def start(self) -> None:
        """Stream, then arm and switch to offboard mode, as PX4 demands in this order."""
        begin = time.monotonic()
        while self.state() is None:
            if time.monotonic() - begin > self.config.connect_s:
                raise LinkError("the vehicle sends no attitude and local position: check its stream rates.")
            time.sleep(0.01)
        self._send(np.array([GRAVITY, 0.0, 0.0, 0.0]))
        time.sleep(0.1)
        for name, command in (("arm", self._action.arm), ("switch to offboard mode", self._offboard.start)):
            try:
                command()
            except Exception as error:  # MAVSDK has a kind of its own for each plugin
                raise LinkError(f"the vehicle does not {name} ({error}): is it ready, and still there?") from error
        with self._lock:
            self._plan = [np.array([GRAVITY, 0.0, 0.0, 0.0])] * max(1, round(self.config.hold_s * self.config.rate_hz))
        self._thread = threading.Thread(target=self._stream, daemon=True)
        self._thread.start()

    def submit(self, plan: Plan) -> None:
        """Replace the plan; every action must be finite."""
        actions = [np.asarray(a, float) for a in plan]
        if not actions or any(a.shape != (4,) or not np.isfinite(a).all() for a in actions):
            raise InputError("a plan must hold at least one action of four finite numbers (thrust per mass, rates).")
        with self._lock:
            self._plan = actions

    def kill(self, why: str = "killed") -> None:
        """Stop streaming now and hand the vehicle back. Safe to call from any thread, and twice."""
        self._end(why)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def close(self) -> None:
        """Kill if still flying, and free the connection."""
        self.kill("closed")
        self._disconnect()

    def _end(self, why: str) -> None:
        with self._lock:
            if self.ended is not None:
                return
            self.ended = why
        self._stop.set()
        try:
            self._offboard.stop()
        except Exception as error:  # the vehicle may be out of reach: it falls back to hold by itself
            self.ended = f"{why} ({type(error).__name__}: the vehicle did not answer)"
        self._offboard.destroy()

    def _send(self, action: Float[np.ndarray, " 4"]) -> None:
        roll, pitch, yaw = (math.degrees(x) for x in flip_vector(action[1:]))
        thrust = normalised_thrust(float(action[0]), self.config.mass, self.config.thrust_max)
        given = min(max(float(action[0]), 0.0), 4 * self.config.thrust_max / self.config.mass)
        self._lagged += (given - self._lagged) * (1 - math.exp(-1 / (self.config.rate_hz * self.config.motor_s)))
        self._thrusts = [*self._thrusts[-MOST_SAMPLES:], self._lagged]
        begin = time.perf_counter()
        self._offboard.set_attitude_rate(self._setpoint(roll, pitch, yaw, thrust))
        self.call_s.append(time.perf_counter() - begin)
        self.sent += 1

    def _stream(self) -> None:
        period, spare = 1.0 / self.config.rate_hz, 0
        allowed = self.config.hold_s * self.config.rate_hz
        due = time.monotonic()
        while not self._stop.is_set():
            state = self.state()
            with self._lock:
                last = len(self._plan) == 1
                action = self._plan[0] if last else self._plan.pop(0)
            spare = spare + 1 if last else 0
            self.held += last
            if state is None or state.age_s > self.config.stale_s:
                return self._end("telemetry lost")
            if spare > allowed:
                return self._end("the policy stalled")
            self._send(action)
            due = max(due + period, time.monotonic() - CATCH_UP_S)
            self._stop.wait(max(0.0, due - time.monotonic()))
        return None
