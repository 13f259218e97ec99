"""The whole chain: a simulated vehicle in wind, the link, the record of a flight that is killed, the explanation."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mavsdk")
pytest.importorskip("pymavlink")
pytest.importorskip("mcap")

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.explain.flight_report import explain_log
from awavo.explain.record import read_log
from awavo.explain.recording import replay_log
from awavo.explain.summary import find_segments
from awavo.runs.fly import _start_near
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT
from awavo.tasks.quadrotor.frames import wind_name

SOURCE = str(Path(__file__).parents[2] / "src")
# 6 m/s; where the air moves to (north, east) in a wind from NW: an axis or a sign mistaken gives it another name.
WIND = (-4.25, 4.25)
# The planner is that of tests/explain: its programs are compiled once.
FLY = """
from pathlib import Path
from awavo.control.planner_config import PlannerConfig
from awavo.deploy.mavlink import LinkConfig
from awavo.runs.fly import fly_over_link
from awavo.transport import sorting
sorting._MIN_ROWS = 10**9  # as in tests/conftest.py
link = LinkConfig(url="udpin://127.0.0.1:{port}", stale_s=5.0, hold_s=5.0)
small = PlannerConfig(num_candidates=64, num_particles=8, clearance_margin=0.42, max_rate=6.0)
fly_over_link("lissajous", link, seconds=60, record=Path({record!r}), here=True, config=small)
"""


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def environment():
    return {**os.environ, "PYTHONPATH": SOURCE, "JAX_PLATFORMS": "cpu"}


@pytest.fixture
def vehicle(environment):
    port = free_port()
    command = [sys.executable, "-m", "awavo.deploy.vehicle", "--port", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert json.loads(process.stdout.readline())["ready"]
    yield port, process
    process.kill()
    process.wait(10)


def recorded(path, seconds, patience=240):
    """The record, once the flight has gone on for so long."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if path.is_file() and path.stat().st_size > 30_000:
            log = read_log(path)
            if float(log.decisions[-1].inputs.time) >= seconds:
                return log
        time.sleep(0.5)
    pytest.fail("the flight did not begin")


def test_a_wind_a_kill_and_the_explanation(vehicle, environment, tmp_path):
    port, process = vehicle
    path = tmp_path / "flight.mcap"
    flight = subprocess.Popen([sys.executable, "-c", FLY.format(port=port, record=str(path))], env=environment)
    try:
        now = float(recorded(path, 1.0).decisions[-1].inputs.time)
        process.stdin.write("wind {} {}\n".format(*WIND))
        process.stdin.flush()
        log = recorded(path, now + 3.0, 60)
    finally:
        flight.send_signal(signal.SIGKILL)
        flight.wait(10)
    end = float(log.decisions[-1].inputs.time)
    part = log._replace(decisions=[d for d in log.decisions if float(d.inputs.time) > end - 1.5])
    force = np.mean([d.inputs.belief.mean[:3] for d in part.decisions], 0)
    assert wind_name(force) == "NW"
    # Drag of 6 m/s: 1.6 N and 0.24 to 0.72 N more of the quadratic part, as the vehicle flies with or against it.
    assert 1.5 < np.hypot(*force[:2]) < 2.9
    found = find_segments(explain_log(part, every=6), part)
    # Decisions asked far apart, on a busy machine, make several stretches: each has the right name.
    assert {(s.named, "N from NW" in s.about) for s in found if s.factor == "wind"} == {("wind", True)}
    log = read_log(path)
    assert len(log.missing) == 1
    assert "not finished" in log.missing[0] or "cut off" in log.missing[0]
    assert log.reference.kind == "lissajous"
    assert len(log.decisions) > 60
    # Made again here, in another process, every decision comes out bit by bit.
    assert replay_log(log._replace(decisions=log.decisions[::20])).differing == []
    errors = [float(d.extra["error"]) for d in log.decisions]
    assert np.sqrt(np.mean(np.square(errors))) < 0.6


@pytest.mark.parametrize("here", [True, False])
def test_a_vehicle_that_does_not_say_where_it_is_gets_no_reference(here):
    with pytest.raises(InputError, match="does not say where it is"):
        _start_near(FIGURE_OF_EIGHT, np.array([0.0, np.nan, 2.0]), here)


def test_a_reference_far_from_the_vehicle_is_refused(vehicle, tmp_path, capsys):
    (tmp_path / "far.json").write_text(json.dumps({"waypoints": [[50, 0, 2], [60, 0, 2]]}))
    link = f"udpin://127.0.0.1:{vehicle[0]}"
    assert main(["fly", str(tmp_path / "far.json"), "--link", link, "--record", str(tmp_path / "f.mcap")]) == 2
    assert "starts 50.0 m from the vehicle" in capsys.readouterr().err
    assert not (tmp_path / "f.mcap").exists()


def test_bad_input_is_one_line_before_anybody_is_called(tmp_path, capsys):
    (tmp_path / "there.mcap").write_bytes(b"x")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    cases = [["nowhere.json"], [str(tmp_path / "odd.csv")], ["circle", "--seconds", "0"], ["circle", "--seed", "-1"]]
    cases += [["circle", "--record", str(tmp_path / "there.mcap")], ["circle", "--link", "udpin://127.0.0.1"]]
    for case in cases:
        assert main(["fly", *case]) == 2, case
        error = capsys.readouterr().err
        assert error.startswith("awavo: ")
        assert error.count("\n") == 1
