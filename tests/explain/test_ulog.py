"""The force balance of PX4 logs, on logs whose force is known."""

import functools
import json
import struct
import tracemalloc

import numpy as np
import pytest
from ulog_writer import LAYOUTS, write_layout, write_ulog

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.explain.ulog import force_balance, ulog_segments
from awavo.explain.ulog_file import ULogFile, read_ulog
from awavo.explain.ulog_topics import firmware

GRAVITY, HOVER = 9.81, 0.4
TOPICS = {
    "sensor_combined": ("accelerometer_m_s2", (0, 1, 2)), "vehicle_attitude": ("q", (0, 1, 2, 3)),
    "vehicle_thrust_setpoint": ("xyz", (2,)),
}  # fmt: skip


def quaternion(axis, angle):
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis, float))])


def turn(q, v):
    w, u = q[0], q[1:]
    return v + 2 * w * np.cross(u, v) + 2 * np.cross(u, np.cross(u, v))


def hovering(force, yaw):
    """Attitude, specific force (body) and thrust per mass of a vehicle that leans so that thrust and force balance."""
    return _hovering(tuple(force), yaw)


@functools.cache
def _hovering(force, yaw):
    force = np.array(force)
    thrust = -np.array([0, 0, GRAVITY]) - force
    up = -thrust / np.linalg.norm(thrust)
    axis = np.cross([0, 0, 1.0], up)
    size = np.linalg.norm(axis)
    tilt = quaternion(axis / size if size > 1e-9 else [1, 0, 0], np.arcsin(min(size, 1.0)))
    spin = quaternion([0, 0, 1], yaw)
    turned = tilt[0] * spin[1:] + spin[0] * tilt[1:] + np.cross(tilt[1:], spin[1:])
    q = np.array([tilt[0] * spin[0] - tilt[1:] @ spin[1:], *turned])
    return q, turn(np.array([q[0], *-q[1:]]), thrust + force), np.linalg.norm(thrust)


def flight_log(path, force, seconds=10.0, yaw=0.7, noise=0.05, leave_out=(), flown=True):
    """A vehicle that hovers against `force(t)` (m/s^2, NED)."""
    rng = np.random.default_rng(0)
    times = {"sensor_combined": 200.0, "vehicle_attitude": 100.0, "vehicle_thrust_setpoint": 50.0}
    rows = {name: ([], []) for name in times if name not in leave_out}
    for name, rate in times.items():
        for t in np.arange(0, seconds, 1 / rate):
            q, felt, thrust = hovering(force(t), yaw)
            felt = felt + noise * rng.normal(size=3)
            level = thrust / GRAVITY * HOVER * flown
            row = {"sensor_combined": felt, "vehicle_attitude": q, "vehicle_thrust_setpoint": [0, 0, -level]}[name]
            if name in rows:
                rows[name][0].append(t + 1)
                rows[name][1].append([float(x) for x in row])
    return write_ulog(path, rows)


def version_log(path, version, force, told=HOVER, seconds=10.0, landed=2.0, yaw=0.7, parameters=None):
    """The same flight in the layout of a version, after `landed` seconds on the ground with rotors idling at 15%."""
    rng, samples = np.random.default_rng(1), []
    for t in np.arange(0, seconds, 0.01):
        on = t >= landed
        q, felt, thrust = hovering(force(t) if on else np.zeros(3), yaw)
        level = thrust / GRAVITY * HOVER if on else 0.15
        samples += [
            (1 + t, "sensor_combined", {"accelerometer_m_s2": list(felt + 0.05 * rng.normal(size=3))}),
            (1 + t, "vehicle_attitude", {"q": list(q)}),
            (1 + t, "vehicle_rates_setpoint", {"thrust": level, "thrust_body": [0, 0, -level]}),
            (1 + t, "vehicle_attitude_setpoint", {"thrust": level}),
            (1 + t, "vehicle_thrust_setpoint", {"xyz": [0, 0, -level]}),
        ]
    for t in np.arange(0, seconds, 0.5):
        on = t >= landed
        samples.append((1 + t, "vehicle_land_detected", {"landed": not on, "maybe_landed": not on}))
        estimate = {"hover_thrust": told, "hover_thrust_var": 1e-4, "valid": on}
        samples.append((1 + t, "hover_thrust_estimate", estimate))
    return write_layout(path, version, samples, {"MPC_THR_HOVER": told} if parameters is None else parameters)


@pytest.mark.parametrize("version", LAYOUTS)
def test_logs_of_every_supported_version(tmp_path, version):
    """The wind blows from the west from the first second in the air; on the ground nothing counts."""
    path = version_log(tmp_path / "f.ulg", version, lambda t: np.array([0.0, 1.5, 0.0]))
    found = force_balance(path)
    assert found.firmware.startswith(version)
    assert found.time.min() > 2.4
    np.testing.assert_allclose(found.force.mean(0), [0.0, 1.5, 0.0], atol=0.1)
    assert found.hover.source == ("hover_thrust_estimate" if int(version[2:]) >= 13 else "MPC_THR_HOVER")
    assert {s["from"] for s in ulog_segments(found)} == {"W"}


@pytest.mark.parametrize(("name", "force"), [("N", (-1, 0)), ("E", (0, -1)), ("S", (1, 0)), ("W", (0, 1))])
def test_winds_have_their_names(tmp_path, name, force):
    for yaw in (0.0, 2.0):
        path = version_log(tmp_path / "f.ulg", "1.14", lambda t: np.array([*force, 0.0]), yaw=yaw, seconds=6.0)
        assert {s["from"] for s in ulog_segments(force_balance(path))} == {name}


def test_a_hover_throttle_that_is_off_by_a_fifth_stays_within_the_interval(tmp_path):
    """Wind of 0 to 12 m/s on a vehicle of 1.2 kg; with the hover throttle taken as known, one in four windows held."""
    held = []
    for speed in (0.0, 4.0, 8.0, 12.0):
        size = (0.27 * speed + 0.012 * speed**2) / 1.2
        for told in (0.8 * HOVER, 1.2 * HOVER):
            for version in ("1.11", "1.16"):
                truth = size * np.array([np.cos(0.5), np.sin(0.5), 0.0])
                found = force_balance(version_log(tmp_path / "f.ulg", version, lambda t: truth, told=told, seconds=6.0))  # noqa: B023
                held += [s["low"] <= size <= s["high"] for s in ulog_segments(found, count=None)]
                assert any("hovers at a throttle" in note for note in found.notes)
    assert len(held) > 40
    assert np.mean(held) >= 0.85


def test_a_vehicle_that_was_never_told_its_hover_throttle(tmp_path):
    path = version_log(tmp_path / "f.ulg", "1.11", lambda t: np.array([2.0, 0, 0]), parameters={"MPC_THR_HOVER": 0.5})
    found = force_balance(path)
    assert found.hover.source == "fitted to this flight"
    np.testing.assert_allclose(found.force.mean(0), [2.0, 0.0, 0.0], atol=0.1)
    assert any("does not say what throttle" in note for note in found.notes)


def test_data_appended_after_a_crash_are_read(tmp_path):
    """The flags name where data were appended; the message that the crash cut off ends there."""
    path = version_log(tmp_path / "f.ulg", "1.14", lambda t: np.zeros(3), seconds=6.0)
    data = bytearray(path.read_bytes())
    half = data.index(struct.pack("<Q", 5_000_000)) - 5  # where the first sample at 5 s begins
    cut = data[half : half + 12]
    data[27] = 1
    data[35:43] = struct.pack("<Q", half + len(cut))
    path.write_bytes(data[:half] + cut + data[half:])
    found = read_ulog(path, {"vehicle_attitude"})
    assert not found.damaged
    assert len(found.samples["vehicle_attitude"]) == 600
    data[27] = 2
    path.write_bytes(data)
    with pytest.raises(InputError, match="of a newer kind"):
        read_ulog(path, {"vehicle_attitude"})


def test_a_vehicle_that_never_took_off_is_told_so(tmp_path):
    path = version_log(tmp_path / "f.ulg", "1.14", lambda t: np.zeros(3), landed=99.0)
    with pytest.raises(InputError, match=r"shows 0.0 s of flight \(not landed, by its land detector\)"):
        force_balance(path)


def test_the_force_of_a_known_log_is_found(tmp_path):
    path = flight_log(tmp_path / "f.ulg", lambda t: np.array([0.0, 1.5 if 4 <= t < 7 else 0.0, 0.0]))
    found = force_balance(path)
    assert float(np.median(found.hover.throttle)) == pytest.approx(HOVER, rel=0.02)
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
    page = (tmp_path / "f-explained" / "explanation.html").read_text()
    assert "from S" in page
    assert "sideways force" in page


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
    assert main(["explain", str(tmp_path / "ground.ulg"), "--factor", "wind"]) == 2
    assert "--factor does nothing for a PX4 log" in capsys.readouterr().err


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


def with_topic(path, name, fields, samples):
    """A flight with one more topic, its samples as bytes."""
    message = lambda kind, body: struct.pack("<HB", len(body), kind[0]) + body  # noqa: E731
    data = shifted(path).read_bytes()
    parts = [message(b"F", f"{name}:{fields}".encode()), message(b"A", struct.pack("<BH", 0, 99) + name.encode())]
    path.write_bytes(data + b"".join([*parts, *(message(b"D", struct.pack("<H", 99) + body) for body in samples)]))
    return path


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("vehicle_land_detected", "uint64_t timestamp;char landed;"),
        ("vehicle_land_detected", "uint64_t[2] timestamp;bool landed;"),
        ("vehicle_land_detected", "char timestamp;bool landed;"),
        ("vehicle_local_position", "uint64_t timestamp;float[2] x;float y;float z;"),
        ("hover_thrust_estimate", "uint64_t timestamp;float[2] hover_thrust;float hover_thrust_var;bool valid;"),
    ],
)
def test_topics_that_help_are_left_out_where_their_fields_are_of_another_type(tmp_path, topic, fields):
    samples = [struct.pack("<Q", i * 1_000_000) + b"?" * 24 for i in range(4)]
    found = force_balance(with_topic(tmp_path / "f.ulg", topic, fields, samples))
    assert found.position is None
    assert found.hover.source != "hover_thrust_estimate"
    assert "the log has no land detector" in found.notes[0]


def test_a_land_detector_whose_times_run_backwards_is_refused(tmp_path):
    samples = [struct.pack("<Q?", t, landed) for t, landed in ((7_000_000, True), (0, False))]
    with pytest.raises(InputError, match="vehicle_land_detected run backwards"):
        force_balance(
            with_topic(tmp_path / "f.ulg", "vehicle_land_detected", "uint64_t timestamp;bool landed;", samples)
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, -1.0])
def test_a_firmware_that_is_none_is_unknown(value):
    assert firmware(ULogFile({}, False, {"ver_sw_release": value})) == "unknown"


def test_tiny_samples_take_no_more_memory_than_the_file(tmp_path):
    path = with_topic(tmp_path / "f.ulg", "vehicle_status", "uint8_t vehicle_type;", [b"xy"] * 200_000)
    tracemalloc.start()
    assert len(read_ulog(path, ["vehicle_status"]).samples["vehicle_status"]) == 200_000
    assert tracemalloc.get_traced_memory()[1] < 3 * path.stat().st_size
    tracemalloc.stop()


def test_formats_that_promise_much_or_nonsense_are_refused(tmp_path):
    data = shifted(tmp_path / "f.ulg").read_bytes()
    for bad in (b"float[9] q", b"float4] q;", b"char[4]  q", b"nothing[1]"):
        (tmp_path / "bad.ulg").write_bytes(data.replace(b"float[4] q", bad))
        with pytest.raises(InputError, match="no usable vehicle_attitude"):
            force_balance(tmp_path / "bad.ulg")


def test_a_large_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("awavo.explain.ulog_file.MAX_BYTES", 1000)
    with pytest.raises(InputError, match="at most 1,000 are read"):
        force_balance(shifted(tmp_path / "f.ulg"))


def test_a_gap_in_a_log_is_named_and_not_taken_for_slow_logging(tmp_path):
    """A flight of 60 s without its middle 20 passed for one of 40 s, logged at two thirds of its rate."""
    rows = {name: ([], []) for name in TOPICS}
    for name, rate in zip(TOPICS, (200.0, 100.0, 50.0), strict=True):
        for t in np.arange(0, 60, 1 / rate):
            q, felt, thrust = hovering(np.array([1.0, 0, 0]), 0.7)
            row = {"sensor_combined": felt, "vehicle_attitude": q}.get(name, [0, 0, -thrust / GRAVITY * HOVER])
            if not 20 <= t < 40:
                rows[name][0].append(t + 1)
                rows[name][1].append([float(x) for x in row])
    found = force_balance(write_ulog(tmp_path / "gap.ulg", rows))
    assert any("not logged (from 20.5 to 39.5 s)" in note for note in found.notes)
    assert not any("logged slowly" in note for note in found.notes)
    assert found.rates["sensor_combined"] == pytest.approx(200, rel=0.05)
    assert not any(
        "not logged" in note
        for note in force_balance(
            write_ulog(
                tmp_path / "whole.ulg",
                {
                    name: (list(1 + np.arange(len(times)) / rate), values)
                    for (name, (times, values)), rate in zip(rows.items(), (200.0, 100.0, 50.0), strict=True)
                },
            )
        ).notes
    )
