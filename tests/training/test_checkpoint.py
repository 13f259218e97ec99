"""Checkpoints: bit-exact, atomic, and refused when anything is wrong with them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awavo.errors import CheckpointError, RunFolderError
from awavo.training.checkpoint import (
    flatten,
    latest_checkpoint,
    read_checkpoint,
    restore,
    resume_notes,
    seed_arrays,
    write_checkpoint,
)


def state(scale=1.0):
    return {
        "key": jax.random.key(3),
        "w": jnp.arange(6.0).reshape(2, 3) * scale,
        "n": jnp.int32(4),
        "flags": jnp.array([True, False]),
        "nothing": jnp.zeros((0, 2)),
    }


def write(folder, steps, scale=1.0, mark="abc"):
    return write_checkpoint(
        folder, [0, 7], [state(scale), state(-scale)], fingerprint=mark, iteration=steps // 10, env_steps=steps
    )


def test_round_trip_is_exact(tmp_path):
    found = read_checkpoint(write(tmp_path, 100), "abc")
    assert (found.iteration, found.env_steps) == (10, 100)
    back = restore(seed_arrays(found, 7), jax.eval_shape(state), found.path)
    for name, array in flatten(state(-1.0)).items():
        np.testing.assert_array_equal(flatten(back)[name], array)
    assert jax.random.bits(back["key"]) == jax.random.bits(jax.random.key(3))


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    return write(tmp_path_factory.mktemp("ck"), 100).read_bytes()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_is_refused(intact, tmp_path_factory, data):
    place = data.draw(st.integers(0, len(intact) - 1))
    bit = data.draw(st.integers(0, 7))
    broken = bytearray(intact)
    broken[place] ^= 1 << bit
    path = tmp_path_factory.mktemp("flip") / "step-000000000100.safetensors"
    path.write_bytes(broken)
    with pytest.raises(CheckpointError):
        read_checkpoint(path, "abc")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, -1])
def test_a_torn_file_is_refused(intact, tmp_path, keep):
    path = tmp_path / "step-000000000100.safetensors"
    path.write_bytes(intact[:keep])
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_a_foreign_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="another configuration"):
        read_checkpoint(write(tmp_path, 100), "other")
    from safetensors.numpy import save

    path = tmp_path / "step-000000000200.safetensors"
    path.write_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(CheckpointError, match="format"):
        read_checkpoint(path)


def test_the_previous_one_is_used_and_the_refusal_is_reported(tmp_path):
    write(tmp_path, 100)
    newer = write(tmp_path, 200, scale=2.0)
    newer.write_bytes(newer.read_bytes()[:-3])
    found, refused = latest_checkpoint(tmp_path, "abc")
    assert found is not None
    assert found.env_steps == 100
    assert len(refused) == 1
    assert "step-000000000200" in refused[0]
    (note,) = resume_notes(found, refused)
    assert re.search(r"step-000000000200.safetensors' is damaged .*: goes on from step 100\.$", note)
    assert resume_notes(None, refused)[0].endswith(": no older one is intact, begins anew.")


def test_two_are_kept_and_leftovers_are_ignored(tmp_path):
    for steps in (100, 200, 300):
        write(tmp_path, steps)
    (tmp_path / ".step-000000000400.safetensors.1.tmp").write_bytes(b"half")
    assert sorted(p.name for p in tmp_path.glob("step*")) == [
        "step-000000000200.safetensors",
        "step-000000000300.safetensors",
    ]
    assert latest_checkpoint(tmp_path, "abc")[0].env_steps == 300


def test_no_space_is_one_clear_line_and_loses_nothing(tmp_path, monkeypatch):
    write(tmp_path, 100)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("awavo.files.os.fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        write(tmp_path, 200)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000000100.safetensors"]
    assert latest_checkpoint(tmp_path, "abc")[0].env_steps == 100


def test_a_state_of_another_shape_is_refused(tmp_path):
    found = read_checkpoint(write(tmp_path, 100))
    other = {**state(), "w": jnp.zeros((3, 3))}
    with pytest.raises(CheckpointError, match="'w' is float32"):
        restore(seed_arrays(found, 0), jax.eval_shape(lambda: other), found.path)
    with pytest.raises(CheckpointError, match="only one of them"):
        restore(seed_arrays(found, 0), jax.eval_shape(lambda: {"w": other["w"]}), found.path)
