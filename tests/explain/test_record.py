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
from awavo.explain.record import DecisionLog, pack_array, read_log, unpack_array
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
