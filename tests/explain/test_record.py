"""Decision records: bit-exact, readable when torn, never a way to run code."""

import base64
import json
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.explain.arrays import pack_array, unpack_array
from awavo.explain.record import DecisionLog, read_log
from awavo.explain.recording import replay_log

pytest.importorskip("mcap")


def test_a_flight_replays_bit_by_bit(record):
    log = read_log(record)
    assert len(log.decisions) == 40
    assert log.missing == []
    replay = replay_log(log)
    assert (replay.decisions, replay.differing) == (40, [])


def test_a_changed_bit_is_noticed(record):
    log = read_log(record)
    decision = log.decisions[7]
    changed = decision.inputs.belief.mean.copy()
    changed[0] = np.nextafter(changed[0] + np.float32(0.05), np.float32(9))
    inputs = decision.inputs._replace(belief=decision.inputs.belief._replace(mean=changed))
    decisions = [*log.decisions[:7], decision._replace(inputs=inputs), *log.decisions[8:10]]
    assert replay_log(log._replace(decisions=decisions)).differing == [7]


def test_a_truncated_record_gives_what_is_there(record, tmp_path):
    data = record.read_bytes()
    short = tmp_path / "short.mcap"
    short.write_bytes(data[: int(len(data) * 0.7)])
    log = read_log(short)
    assert 0 < len(log.decisions) < 40
    assert any("cut off" in note for note in log.missing)
    assert any(f"{len(log.decisions)} to 39 of 40" in note for note in log.missing)


KILLED = """
import os, signal, sys
from awavo.explain.record import DecisionLog, read_log
log = read_log(sys.argv[1])
own = DecisionLog(sys.argv[2], log.config, log.params, log.decisions[0].inputs.forest, log.about)
for decision in log.decisions[:20]:
    own.add(decision.inputs, decision.outcome)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_logged_before_a_kill_can_be_read(record, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(record), str(tmp_path / "killed.mcap")], check=False)
    assert done.returncode == -signal.SIGKILL
    log = read_log(tmp_path / "killed.mcap")
    # At most one chunk was still in memory.
    assert len(log.decisions) >= 15
    assert any("not finished" in note or "cut off" in note for note in log.missing)
    assert any(f"{len(log.decisions)} to 39 of 40 are missing" in note for note in log.missing)


@pytest.mark.parametrize("size", [0, 20, 400])
def test_what_is_no_record_is_refused(record, tmp_path, size):
    (tmp_path / "bad.mcap").write_bytes(record.read_bytes()[:size])
    with pytest.raises(InputError, match="is not a decision record"):
        read_log(tmp_path / "bad.mcap")


def test_flipped_bytes_never_raise_anything_else(record, tmp_path):
    data = bytearray(record.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(12):
        damaged = bytearray(data)
        for place in rng.integers(8, len(data), 5):
            damaged[place] ^= int(rng.integers(1, 256))
        (tmp_path / "hurt.mcap").write_bytes(bytes(damaged))
        try:
            log = read_log(tmp_path / "hurt.mcap")
        except InputError:
            continue
        assert len(log.decisions) <= 40


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32", "bool"])
def test_arrays_keep_every_bit(dtype):
    values = np.random.default_rng(0).integers(0, 2**31, (3, 2)).astype(dtype)
    back = unpack_array(json.loads(json.dumps(pack_array(values))))
    assert back.dtype == values.dtype
    assert back.tobytes() == values.tobytes()


def test_arrays_that_lie_about_themselves_are_refused():
    good = pack_array(np.zeros(4, np.float32))
    for change in (
        {"dtype": "object"}, {"shape": [-4]}, {"shape": [400]}, {"data": "%%%"}, {"shape": "4"},
        {"data": base64.b64encode(b"abc").decode()},
    ):  # fmt: skip
        with pytest.raises(InputError, match="cannot be read"):
            unpack_array({**good, **change})


def test_numbers_that_are_not_finite_do_not_break_a_record(record, tmp_path):
    log = read_log(record)
    first = log.decisions[0]
    with DecisionLog(tmp_path / "own.mcap", log.config, log.params, first.inputs.forest, {"steps": 1}) as own:
        outcome = {**first.outcome, "effective_size": np.float32(np.nan)}
        own.add(first.inputs, outcome)
    again = read_log(tmp_path / "own.mcap").decisions[0]
    assert np.isnan(again.outcome["effective_size"])
    assert jax.random.key_data(again.inputs.key).tolist() == jax.random.key_data(first.inputs.key).tolist()


def rewritten(path, record, change, compression="zstd", after=None):
    """The record with every message changed: `change(topic, content)` returns what to write, or bytes as they are.

    `after` is how many messages are written before one more (topic, content).
    """
    from mcap.reader import make_reader
    from mcap.writer import CompressionType, Writer

    with record.open("rb") as source, path.open("wb") as target:
        writer = Writer(target, compression=CompressionType[compression.upper()])
        writer.start()
        schema = writer.register_schema(name="any", encoding="jsonschema", data=b"{}")
        channels = {n: writer.register_channel(topic=n, message_encoding="json", schema_id=schema)
                    for n in ("/flight", "/decision")}  # fmt: skip
        for count, (_, channel, message) in enumerate(make_reader(source).iter_messages(log_time_order=False)):
            if after is not None and count == after[0]:
                writer.add_message(channels[after[1][0]], message.log_time, json.dumps(after[1][1]).encode(), 0)
            content = change(channel.topic, json.loads(message.data))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            writer.add_message(channels[channel.topic], message.log_time, data, message.publish_time)
        writer.finish()
    return path


@pytest.mark.parametrize(
    ("profile", "encoding", "kind"),
    [("ros2", "cdr", "ROS 2"), ("", "cdr", "ROS 2"), ("", "protobuf", "protobuf")],
)
def test_a_recording_of_other_messages_is_named_as_what_it_is(tmp_path, profile, encoding, kind):
    from mcap.writer import Writer

    path = tmp_path / "bag.mcap"
    with path.open("wb") as target:
        writer = Writer(target)
        writer.start(profile=profile, library="other")
        schema = writer.register_schema(name="px4_msgs/msg/VehicleOdometry", encoding="ros2msg", data=b"uint64 t")
        channel = writer.register_channel(topic="/fmu/out/odometry", message_encoding=encoding, schema_id=schema)
        writer.add_message(channel, 1, b"\x00\x01\x00\x00" + bytes(8), 1)
        writer.finish()
    with pytest.raises(InputError) as caught:
        read_log(path)
    assert f"is a recording of {kind} messages (/fmu/out/odometry)" in str(caught.value)
    assert "damaged" not in str(caught.value)


def test_an_index_without_end_takes_no_memory(record, tmp_path):
    def change(topic, content):
        return {**content, "index": 10**15} if topic == "/decision" and content["index"] == 39 else content

    log = read_log(rewritten(tmp_path / "own.mcap", record, change))
    assert len(log.decisions) == 39
    assert any("its number is not in 0 .. 9999999" in note for note in log.missing)
    assert any("decisions 39 of 40 are missing" in note for note in log.missing)


@pytest.mark.parametrize("steps", [10**15, -1, "many", None, True, 40])
def test_the_planned_number_of_steps_is_a_hint_alone(record, tmp_path, steps):
    def change(topic, content):
        return {**content, "about": {"steps": steps}} if topic == "/flight" else content

    assert read_log(rewritten(tmp_path / "own.mcap", record, change)).missing == []


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_what_unpacks_to_far_more_than_the_file_is_refused(record, tmp_path, compression):
    import tracemalloc

    size = 2**26
    bomb = lambda topic, content: b" " * size if topic == "/flight" else b"{}"  # noqa: E731
    path = rewritten(tmp_path / "bomb.mcap", record, bomb, compression)
    assert path.stat().st_size < size // 200
    tracemalloc.start()
    with pytest.raises(InputError, match="unpacks to more than 64 times its size"):
        read_log(path)
    assert tracemalloc.get_traced_memory()[1] < size
    tracemalloc.stop()


def other(values):
    return pack_array(np.asarray(values, np.float32))


BAD_DECISIONS = {
    "a list": lambda c: [],
    "no key": lambda c: {k: v for k, v in c.items() if k != "key"},
    "short key": lambda c: {**c, "key": pack_array(np.zeros(1, np.uint32))},
    "zero attitude": lambda c: {**c, "body_attitude": other([0, 0, 0, 0])},
    "attitude not finite": lambda c: {**c, "body_attitude": other([np.nan, 0, 0, 0])},
    "flat position": lambda c: {**c, "body_position": other([1, 2])},
    "two times": lambda c: {**c, "time": other([0, 1])},
    "endless time": lambda c: {**c, "time": other(np.inf)},
    "covariance": lambda c: {**c, "belief_covariance": other(-np.eye(5))},
    "particles": lambda c: {**c, "particles": other(np.zeros((8, 2)))},
    "weights": lambda c: {**c, "out_weights": other(np.zeros((4, 3)))},
    "two errors": lambda c: {**c, "extra_error": other([1, 2])},
    "index": lambda c: {**c, "index": "0"},
    "infinite index": lambda c: {**c, "index": float("inf")},
    "array": lambda c: {**c, "time": 3},
}


@pytest.mark.parametrize("case", BAD_DECISIONS)
def test_a_decision_with_a_bent_field_is_left_out_and_noted(record, tmp_path, case):
    def change(topic, content):
        return BAD_DECISIONS[case](content) if topic == "/decision" and content["index"] == 0 else content

    log = read_log(rewritten(tmp_path / "own.mcap", record, change))
    assert len(log.decisions) == 39
    assert any("/decision cannot be read" in note for note in log.missing)


BAD_HEADS = {
    "a list": lambda c: [],
    "about": lambda c: {**c, "about": 7},
    "params": lambda c: {**c, "params": []},
    "mass": lambda c: {**c, "params": {**c["params"], "mass": other(0)}},
    "masses": lambda c: {**c, "params": {**c["params"], "mass": other([1, 2])}},
    "forest": lambda c: {**c, "forest": {**c["forest"], "x": other([1.0])}},
    "far forest": lambda c: {**c, "forest": {**c["forest"], "x": other(np.full(len(c["forest"]["x"]), np.nan))}},
    "candidates": lambda c: {**c, "config": {**c["config"], "num_candidates": 10**8}},
    "no candidates": lambda c: {**c, "config": {**c["config"], "num_candidates": 0}},
    "temperature": lambda c: {**c, "config": {**c["config"], "temperature": 0}},
    "pool": lambda c: {**c, "config": {**c["config"], "num_candidates": 2**16, "horizon": 1000, "num_members": 256}},
    "depth": lambda c: b"[" * 10**5,
}


@pytest.mark.parametrize("case", BAD_HEADS)
def test_a_record_with_a_bent_head_is_refused(record, tmp_path, case):
    def change(topic, content):
        return BAD_HEADS[case](content) if topic == "/flight" else content

    with pytest.raises(InputError):
        read_log(rewritten(tmp_path / "own.mcap", record, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {**c, "time": other(-0.02 * c["index"])},
        lambda c: {**c, "time": other(1.0)},
        lambda c: {**c, "index": 5},
        lambda c: {**c, "index": 39 - c["index"]},
    ],
)
def test_decisions_that_do_not_follow_each_other_are_refused(record, tmp_path, change):
    own = rewritten(tmp_path / "own.mcap", record, lambda topic, c: change(c) if topic == "/decision" else c)
    with pytest.raises(InputError, match="numbers or times of its decisions do not grow"):
        read_log(own)


def test_two_flights_in_one_file_are_refused(record, tmp_path):
    """As tools that merge recordings write them; once, all decisions were taken for made under the last settings."""
    head = {}

    def change(topic, content):
        head.update(content if topic == "/flight" else {})
        return content

    rewritten(tmp_path / "own.mcap", record, change)
    path = rewritten(tmp_path / "two.mcap", record, lambda _, c: c, after=(20, ("/flight", head)))
    with pytest.raises(InputError, match="holds more than one flight"):
        read_log(path)


def test_a_large_file_is_refused_unread(record, monkeypatch):
    monkeypatch.setattr("awavo.explain.record.MAX_FILE", 1000)
    with pytest.raises(InputError, match="at most 1,000 are read"):
        read_log(record)
