"""The link end to end against our quadrotor in another process, real MAVLink over loopback."""

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("mavsdk")
pytest.importorskip("pymavlink")

from awavo.deploy.mavlink import LinkConfig, LinkError, OffboardLink
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
        found = loopback.run(3.0)
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
    with pytest.raises(LinkError, match=r"no autopilot answered .* within 0.3 s"):
        OffboardLink(LinkConfig(url=f"udpin://127.0.0.1:{loopback.free_port()}", connect_s=0.3))


def test_bad_rate():
    with pytest.raises(InputError, match=r"rate_hz=1.0 must lie in \(2, 500\]"):
        OffboardLink(LinkConfig(rate_hz=1.0))


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
