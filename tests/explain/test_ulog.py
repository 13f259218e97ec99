"""The force balance of PX4 logs, on logs whose force is known."""

import json
import struct

import numpy as np
import pytest
from ulog_writer import write_ulog

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.explain.ulog import TOPICS, force_balance, ulog_segments
from awavo.explain.ulog_file import read_ulog

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


def test_the_reader_agrees_with_pyulog(tmp_path):
    """With a second instance, padding, text, a topic nobody asked for, and a tail that is cut off."""
    ULog = pytest.importorskip("pyulog").ULog
    path = flight_log(tmp_path / "f.ulg", lambda t: np.zeros(3), seconds=1.0)
    data = path.read_bytes().replace(b"float[4] q;", b"float[4] q;uint8_t[4] _padding0;")
    fmt = b"vehicle_attitude:uint64_t timestamp;float[4] q;"
    data = data.replace(struct.pack("<H", len(fmt)) + b"F", struct.pack("<H", len(fmt) + 21) + b"F")
    extra = struct.pack("<HBBH", 19, ord("A"), 1, 9) + b"vehicle_attitude"
    extra += struct.pack("<HBHQ4f", 26, ord("D"), 9, 5, 9, 9, 9, 9)
    extra += struct.pack("<HBBQ", 12, ord("L"), 6, 7) + b"hi!"
    path.write_bytes(data + extra + struct.pack("<HBH", 26, ord("D"), 1) + b"cut")
    found, oracle = read_ulog(path, TOPICS), ULog(str(path))
    assert found.damaged
    assert set(found.samples) == set(TOPICS)
    for name, samples in found.samples.items():
        theirs = oracle.get_dataset(name).data
        assert samples["timestamp"].tolist() == theirs["timestamp"].tolist()
        field, components = TOPICS[name]
        for i in components:
            np.testing.assert_array_equal(samples[field][:, i], theirs[f"{field}[{i}]"])


def shifted(log, **changes):
    """Three seconds of hovering, with the samples of each topic changed."""
    times = np.arange(1.0, 4.0, 0.02)
    rows = {
        "sensor_combined": [[0.0, 0.0, -GRAVITY]], "vehicle_attitude": [[1.0, 0.0, 0.0, 0.0]],
        "vehicle_thrust_setpoint": [[0.0, 0.0, -HOVER]],
    }  # fmt: skip
    topics = {name: (list(times), row * len(times)) for name, row in rows.items()}
    for name, change in changes.items():
        topics[name] = change(*topics[name])
    return write_ulog(log, topics)


def test_times_a_year_apart_take_no_memory(tmp_path):
    """Every topic has one last sample a year later: the grid between would have had 1.6e9 rows."""
    later = lambda times, rows: ([*times, times[-1] + 3.15e7], [*rows, rows[-1]])  # noqa: E731
    names = ("sensor_combined", "vehicle_attitude", "vehicle_thrust_setpoint")
    path = shifted(tmp_path / "year.ulg", **dict.fromkeys(names, later))
    assert path.stat().st_size < 20_000
    with pytest.raises(InputError, match=r"covers 8.75e.03 hours, at most 6"):
        force_balance(path)
    hour = lambda times, rows: ([*times, times[-1] + 3600], [*rows, rows[-1]])  # noqa: E731
    with pytest.raises(InputError, match=r"at 0.042 Hz, expected 1 Hz or more"):
        force_balance(shifted(tmp_path / "hour.ulg", **dict.fromkeys(names, hour)))


def test_times_that_run_backwards_are_refused(tmp_path):
    path = shifted(tmp_path / "f.ulg")
    data = path.read_bytes()
    at = data.index(struct.pack("<Q", 2_000_000))
    path.write_bytes(data[:at] + struct.pack("<Q", 2**63) + data[at + 8 :])
    with pytest.raises(InputError, match="run backwards"):
        force_balance(path)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_attitudes_that_are_none_are_refused(tmp_path, value):
    broken = lambda times, rows: (times, [[value] * 4] * len(rows))  # noqa: E731
    with pytest.raises(InputError, match="zero or not finite"):
        force_balance(shifted(tmp_path / "f.ulg", vehicle_attitude=broken))


def test_a_quaternion_and_its_negative_are_one_attitude(tmp_path):
    flipped = lambda times, rows: (times, [[(-1.0) ** i * x for x in row] for i, row in enumerate(rows)])  # noqa: E731
    found = force_balance(shifted(tmp_path / "f.ulg", vehicle_attitude=flipped))
    np.testing.assert_allclose(found.force, 0, atol=1e-4)


def test_formats_that_promise_much_or_nonsense_are_refused(tmp_path):
    data = shifted(tmp_path / "f.ulg").read_bytes()
    for bad in (b"float[9] q", b"float4] q;", b"char[4]  q", b"nothing[1]"):
        (tmp_path / "bad.ulg").write_bytes(data.replace(b"float[4] q", bad))
        with pytest.raises(InputError, match="no usable topic vehicle_attitude"):
            force_balance(tmp_path / "bad.ulg")


def test_a_large_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("awavo.explain.ulog_file.MAX_BYTES", 1000)
    with pytest.raises(InputError, match="at most 1,000 are read"):
        force_balance(shifted(tmp_path / "f.ulg"))
