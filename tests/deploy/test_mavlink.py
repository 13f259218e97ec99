"""The link end to end against our quadrotor in another process, real MAVLink over loopback."""

import importlib.util
import queue
import socket
import sys
import time
import types
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("mavsdk")
pytest.importorskip("pymavlink")

from pymavlink.dialects.v10 import common as mavlink1
from pymavlink.dialects.v20 import common as mavlink2

from awavo.deploy.mavlink import LinkConfig, LinkError, OffboardLink
from awavo.deploy.radio import Radio, frame_systems
from awavo.deploy.vehicle import SimulatedVehicle
from awavo.errors import InputError, MissingExtraError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "robots" / "loopback.py"


@pytest.fixture(scope="module")
def loopback():
    spec = importlib.util.spec_from_file_location("loopback", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_time(loopback) -> dict:
    """The loopback's findings on a machine that let it run: a link that must answer in half a second was not paused."""
    for _ in range(3):
        found = loopback.run(1.5)
        if found["longest_pause_s"] < 0.2:
            return found
    pytest.skip(f"the machine paused the link for {found['longest_pause_s']:.2f} s in each of three flights")


def test_stream_stall_cut_and_kill(loopback, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SCRIPT.parents[2] / "src"))
    found = on_time(loopback)
    assert found["stream"]["ended"] is None
    assert found["stream"]["mode"] == "offboard"
    assert found["stream"]["received_hz"] > 50
    assert found["stream"]["rms_error_m"] < 0.3
    assert found["stall"] == {"ended": "the policy stalled", "mode": "hold", "setpoints_after_the_end": 0}
    assert found["link_cut"]["ended"].startswith("telemetry lost")
    assert found["link_cut"]["mode"] == "hold"
    assert found["link_cut"]["after_restoring"] == "offboard"
    assert found["kill"]["mode"] == "hold"
    assert found["kill"]["setpoints_after"] == 0
    assert found["kill"]["upright"] > 0.95
    assert 1.0 < found["kill"]["height_m"] < 2.0


def test_a_ready_vehicle_does_not_stop_to_compile(loopback):
    """A first tick that changed the types of the state would compile while telemetry stands still."""
    vehicle = SimulatedVehicle(loopback.free_port())
    before = jax.tree.map(jax.typeof, (vehicle.body, vehicle.loop))
    vehicle.tick()
    assert jax.tree.map(jax.typeof, (vehicle.body, vehicle.loop)) == before


def test_nobody_there(loopback):
    with pytest.raises(LinkError, match=r"no autopilot with system_id 1 answered .* within 0.3 s"):
        OffboardLink(LinkConfig(url=f"udpin://127.0.0.1:{loopback.free_port()}", connect_s=0.3))


def test_bad_rate():
    with pytest.raises(InputError, match=r"rate_hz=1.0 must lie in \(2, 500\]"):
        OffboardLink(LinkConfig(rate_hz=1.0))


@pytest.mark.parametrize("name", ["connect_s", "stale_s", "hold_s", "mass", "thrust_max"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_watchdog_without_end_is_refused(name, value):
    with pytest.raises(InputError, match=f"{name}=.* must lie in"):
        OffboardLink(LinkConfig(**{name: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"system_id": 0}, "system_id=0 must lie in 1 .. 255"),
        ({"url": "udpin://127.0.0.1"}, "is not HOST:PORT"),
        ({"url": "udpin://127.0.0.1:99999"}, "port from 1 to 65535"),
        ({"peer": "vehicle"}, "peer 'vehicle' is not HOST:PORT"),
        ({"peer": "..:14540"}, "the host '..' is not known"),
        ({"url": "udpin://127.0.0.1:\u00b2"}, "is not HOST:PORT"),
        ({"url": "udpin://[::1"}, "is not HOST:PORT|is not known"),
        ({"url": "udpin://192.0.2.7:14540"}, "cannot listen on 192.0.2.7:14540"),
    ],
)
def test_addresses_that_are_none_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        OffboardLink(LinkConfig(**{"url": "udpin://127.0.0.1:24540", **changes}))


def udp():
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.bind(("127.0.0.1", 0))
    found.settimeout(5.0)
    return found


def speaker(system, component=191):
    """Packs messages of a system."""
    return mavlink2.MAVLink(None, srcSystem=system, srcComponent=component)


def heartbeat(system=1):
    mav = speaker(system)
    return mav.heartbeat_encode(2, 12, 1, 0, 4).pack(mav)


@pytest.fixture
def radio(loopback):
    heard, opened = queue.Queue(), []

    def build(kind="udpin", peer=None, port=None):
        address = ("127.0.0.1", port or loopback.free_port())
        opened.append(Radio(kind, address, peer, 1, heard.put))
        return opened[-1], address, heard

    yield build
    for one in opened:
        one.close()


def refused(radio, count):
    end = time.monotonic() + 5
    while radio.refused < count and time.monotonic() < end:
        time.sleep(0.005)
    return radio.refused


def test_a_link_hears_its_system_and_then_its_address_alone(radio):
    found, address, heard = radio()
    with udp() as stranger, udp() as vehicle:
        stranger.sendto(heartbeat(7), address)
        stranger.sendto(b"\xfd nonsense", address)
        stranger.sendto(heartbeat(1) + heartbeat(7), address)
        assert refused(found, 3) == 3
        assert found.peer is None
        vehicle.sendto(heartbeat(), address)
        assert heard.get(timeout=5) == heartbeat()
        stranger.sendto(heartbeat(), address)
        assert refused(found, 4) == 4
        assert found.peer == vehicle.getsockname()
        found.send(b"hello")
        assert vehicle.recvfrom(100) == (b"hello", address)
    assert heard.empty()


def test_a_link_told_its_peer_hears_nobody_else(radio):
    with udp() as stranger, udp() as vehicle:
        found, address, heard = radio(peer=vehicle.getsockname())
        stranger.sendto(heartbeat(), address)
        assert refused(found, 1) == 1
        vehicle.sendto(heartbeat() * 2, address)
        assert heard.get(timeout=5) == heartbeat() * 2


def test_the_peer_of_udpout_is_in_its_url(radio):
    with udp() as vehicle:
        found, _, heard = radio("udpout", port=vehicle.getsockname()[1])
        found.send(b"hello")
        data, sender = vehicle.recvfrom(100)
        assert (data, sender[0]) == (b"hello", "127.0.0.1")
        vehicle.sendto(heartbeat(), sender)
        assert heard.get(timeout=5) == heartbeat()


def test_systems_of_frames():
    mav = speaker(9)
    old = mavlink1.MAVLink(None, srcSystem=8, srcComponent=1)
    one = old.heartbeat_encode(2, 12, 1, 0, 4).pack(old)
    assert list(frame_systems(heartbeat(3) + one + mav.ping_encode(1, 2, 3, 4).pack(mav))) == [3, 8, 9]
    assert list(frame_systems(heartbeat(3)[:-1])) == [3, -1]
    assert list(frame_systems(b"")) == []


@pytest.fixture(scope="module")
def vehicle():
    """A vehicle, the socket it talks to, and where it listens."""
    with udp() as ours:
        made = SimulatedVehicle(ours.getsockname()[1])
        yield made, ours, made.radio.port.getsockname()


def attitude_target(system=1, target=(1, 1), thrust=0.3):
    mav = speaker(system)
    return mav.set_attitude_target_encode(0, *target, 128, [1, 0, 0, 0], 0.1, 0.2, 0.3, thrust).pack(mav)


def arm(system=1, target=(1, 1)):
    mav = speaker(system)
    return mav.command_long_encode(*target, 400, 0, 1, 0, 0, 0, 0, 0, 0).pack(mav)


def test_a_vehicle_listens_on_loopback_alone(vehicle):
    assert vehicle[2][0] == "127.0.0.1"


def test_a_vehicle_obeys_its_controller_alone(vehicle):
    made, ours, address = vehicle
    with udp() as stranger:
        for data in (attitude_target(), arm()):
            stranger.sendto(data, address)
    for data in (attitude_target(system=9), attitude_target(target=(2, 1)), attitude_target(target=(1, 50)), arm(9)):
        ours.sendto(data, address)
    time.sleep(0.05)
    made.tick()
    assert (len(made.arrivals), made.armed, made.refused) == (0, False, 4)
    for data in (attitude_target(), attitude_target(target=(1, 0)), arm()):
        ours.sendto(data, address)
    time.sleep(0.05)
    made.tick()
    assert (len(made.arrivals), made.armed) == (2, True)


def test_a_vehicle_survives_nonsense(vehicle):
    made, ours, address = vehicle
    rng = np.random.default_rng(0)
    whole = attitude_target(thrust=float("nan"))
    for data in (b"", b"\xfd", rng.bytes(500), whole[:9], bytes(whole[:12]) + rng.bytes(40), whole):
        ours.sendto(data, address)
    time.sleep(0.05)
    for _ in range(3):
        made.tick()
    assert np.isfinite(made.setpoint).all()


def test_a_vehicle_denies_numbers_that_no_vehicle_could_follow(vehicle):
    made, ours, address = vehicle
    mav, before = speaker(1), len(made.arrivals)
    for value in (float("nan"), float("inf"), -1e38):
        ours.sendto(mav.command_long_encode(1, 1, 176, 0, value, value, value, 0, 0, 0, 0).pack(mav), address)
        ours.sendto(mav.set_attitude_target_encode(0, 1, 1, 128, [1, 0, 0, 0], value, 0, 0, 0.3).pack(mav), address)
        ours.sendto(attitude_target(thrust=value), address)
    time.sleep(0.05)
    made.tick()
    assert len(made.arrivals) == before
    assert np.isfinite(np.asarray(made.body.position)).all()


def test_a_vehicle_that_turns_feels_no_force_to_the_side(vehicle):
    """Turned by the attitude at the end of a tick, a roll of 6 rad/s felt like 0.3 m/s^2 in still air."""
    made = vehicle[0]
    before, made.body = made.body, made.body._replace(velocity=made.body.velocity * 0)
    after = made._fly(made.body, made.loop, np.array([9.81, 6.0, 0.0, 0.0], np.float32), made.wind)
    sides = []
    for _ in range(8):
        last = made.body
        made.body, made.loop = after
        sides.append(np.abs(made._feel(last)[:2]).max() - np.abs(np.asarray(made.body.velocity)).max() * 0.3)
        after = made._fly(made.body, made.loop, np.array([9.81, 6.0, 0.0, 0.0], np.float32), made.wind)
    assert np.abs(np.asarray(made.body.rates))[0] > 3
    assert max(sides) < 0.1
    made.body = before


def listening(feels=True):
    """A link that has heard one report, without a radio."""
    link = object.__new__(OffboardLink)
    now = time.monotonic()
    link._latest, link._felt, link._asked_at = {"place": (now, None)}, [[0.0, 0.0, -9.81]] if feels else [], -np.inf
    link._felt_at = now if feels else -np.inf
    link._lagged, link._thrusts = 9.0, [8.0, 9.0]
    return link


def test_what_was_given_waits_for_what_was_felt():
    """A decision between two reports found a vehicle that stands still, or a leap: 8 N where there were 2."""
    link = listening()
    first = link.measured()
    np.testing.assert_allclose(first.felt, [0, 0, 9.81])
    assert first.thrust == 8.5
    link._thrusts.append(12.0)
    link._latest["place"] = (time.monotonic(), None)
    assert link.measured() is None
    link._thrusts.append(15.0)
    link._felt = [[0.0, 0.0, -12.0]]
    assert link.measured().thrust == 12.0


def test_a_vehicle_without_accelerations_is_measured_by_its_reports():
    link = listening(feels=False)
    assert link.measured().felt is None
    assert link.measured() is None
    link._latest["place"] = (time.monotonic(), None)
    assert link.measured().felt is None


def test_a_vehicle_that_does_not_arm_is_told_in_one_line(monkeypatch):
    class Refuses:
        def arm(self):
            raise RuntimeError("TIMEOUT")

    link = listening()
    link.config, link._action, link._offboard = LinkConfig(), Refuses(), types.SimpleNamespace(start=None)
    monkeypatch.setattr(OffboardLink, "state", lambda self: "heard")
    monkeypatch.setattr(OffboardLink, "_send", lambda self, action: None)
    with pytest.raises(LinkError, match=r"does not arm \(TIMEOUT\): is it ready"):
        link.start()


@pytest.mark.bad_input
def test_bad_plans_are_refused():
    link = object.__new__(OffboardLink)
    for plan in ([], [np.full(4, np.nan)], [np.zeros(3)]):
        with pytest.raises(InputError, match="four finite numbers"):
            OffboardLink.submit(link, plan)


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mavsdk", None)
    with pytest.raises(MissingExtraError, match=r"awavo\[px4\]"):
        OffboardLink()
