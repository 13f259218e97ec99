"""The force balance of PX4 logs, on logs whose force is known."""

import json

import numpy as np
import pytest
from ulog_writer import write_ulog

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.explain.ulog import force_balance, ulog_segments

pytest.importorskip("pyulog")
GRAVITY, HOVER = 9.81, 0.4


def quaternion(axis, angle):
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis, float))])


def turn(q, v):
    w, u = q[0], q[1:]
    return v + 2 * w * np.cross(u, v) + 2 * np.cross(u, np.cross(u, v))


def flight_log(path, force, seconds=10.0, yaw=0.7, noise=0.05, leave_out=(), flown=True):
    """A vehicle that hovers against `force(t)` (m/s^2, NED): it leans so that thrust, weight and force balance."""
    rng = np.random.default_rng(0)
    times = {"sensor_combined": 200.0, "vehicle_attitude": 100.0, "vehicle_thrust_setpoint": 50.0}
    rows = {name: ([], []) for name in times if name not in leave_out}
    for name, rate in times.items():
        for t in np.arange(0, seconds, 1 / rate):
            f = force(t)
            thrust = -np.array([0, 0, GRAVITY]) - f
            up = -thrust / np.linalg.norm(thrust)
            axis = np.cross([0, 0, 1.0], up)
            size = np.linalg.norm(axis)
            tilt = quaternion(axis / size if size > 1e-9 else [1, 0, 0], np.arcsin(min(size, 1.0)))
            spin = quaternion([0, 0, 1], yaw)
            q = np.array(
                [
                    tilt[0] * spin[0] - tilt[1:] @ spin[1:],
                    *(tilt[0] * spin[1:] + spin[0] * tilt[1:] + np.cross(tilt[1:], spin[1:])),
                ]
            )
            back = np.array([q[0], *-q[1:]])
            felt = turn(back, thrust + f) + noise * rng.normal(size=3)
            level = np.linalg.norm(thrust) / GRAVITY * HOVER * flown
            row = {"sensor_combined": felt, "vehicle_attitude": q, "vehicle_thrust_setpoint": [0, 0, -level]}[name]
            if name in rows:
                rows[name][0].append(t + 1)
                rows[name][1].append([float(x) for x in row])
    return write_ulog(path, rows)


def test_the_force_of_a_known_log_is_found(tmp_path):
    path = flight_log(tmp_path / "f.ulg", lambda t: np.array([0.0, 1.5 if 4 <= t < 7 else 0.0, 0.0]))
    found = force_balance(path)
    assert found.hover_throttle == pytest.approx(HOVER, rel=0.02)
    blown = (found.time > 4.2) & (found.time < 6.8)
    np.testing.assert_allclose(found.force[blown].mean(0), [0.0, 1.5, 0.0], atol=0.1)
    calm = found.force[(found.time < 3.8) | (found.time > 7.2)]
    assert np.abs(calm[:, :2].mean(0)).max() < 0.05
    first = ulog_segments(found)[0]
    assert 4 <= first["start_s"] < 7
    assert first["from"] == "W"
    assert first["low"] < 1.5 < first["high"] + 0.1


def test_the_command_says_what_it_cannot_judge(tmp_path, capsys):
    path = flight_log(tmp_path / "f.ulg", lambda t: np.array([0.8, 0.0, 0.0]), seconds=4.0)
    assert main(["explain", str(path), "--mass", "2"]) == 0
    text = capsys.readouterr().out
    assert "from S" in text
    assert "cannot be judged" in text
    written = json.loads((tmp_path / "f-explained" / "explanation.json").read_text())
    assert written["sideways_rms_m_s2"] == pytest.approx(0.8, abs=0.1)
    assert len((tmp_path / "f-explained" / "explanation.csv").read_text().splitlines()) > 100


@pytest.mark.parametrize("topic", ["sensor_combined", "vehicle_attitude", "vehicle_thrust_setpoint"])
def test_a_log_without_a_topic_is_refused(tmp_path, topic):
    path = flight_log(tmp_path / "f.ulg", lambda t: np.zeros(3), seconds=3.0, leave_out=(topic,))
    with pytest.raises(InputError, match=topic):
        force_balance(path)


def test_bad_files_end_with_one_line_and_leave_nothing(tmp_path, capsys):
    flight_log(tmp_path / "ground.ulg", lambda t: np.zeros(3), seconds=3.0, flown=False)
    (tmp_path / "junk.ulg").write_bytes(b"not a log")
    for name in ("ground.ulg", "junk.ulg", "absent.ulg"):
        assert main(["explain", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        assert not (tmp_path / name.replace(".ulg", "-explained")).exists()
