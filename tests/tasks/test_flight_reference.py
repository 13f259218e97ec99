"""References from names and files: what is flown is what the file says."""

import json

import jax
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.tasks.quadrotor.flight_path import (
    FIGURE_OF_EIGHT,
    Reference,
    path_through,
    read_reference,
    reference_function,
    stored_reference,
)
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import circle, lissajous

P = QuadrotorParams()


def at(reference, times):
    function = reference_function(reference)
    found = jax.jit(lambda times: function(times, P))(np.float32(times))
    return [np.asarray(x).T for x in found]


def test_names_are_the_references_of_the_tasks():
    assert reference_function(FIGURE_OF_EIGHT) is lissajous
    assert reference_function(read_reference("circle")) is circle


def test_a_recorded_path_is_followed():
    """A circle flown in 10 s and sampled at 50 Hz comes back within centimetres, with its speed; then it stays."""
    times = np.arange(0, 10, 0.02)
    places = np.stack([2 * np.cos(0.6 * times), 2 * np.sin(0.6 * times), 1.5 + 0 * times], 1)
    found = path_through(times + 100.0, places)
    position, velocity, acceleration = at(found, np.arange(1, 9, 0.1))
    wanted = np.arange(1, 9, 0.1)
    truth = np.stack([2 * np.cos(0.6 * wanted), 2 * np.sin(0.6 * wanted), 1.5 + 0 * wanted], 1)
    assert np.abs(position - truth).max() < 0.03
    np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), 1.2, atol=0.1)
    np.testing.assert_allclose(np.linalg.norm(acceleration[10:-10], axis=1), 0.72, atol=0.35)
    last = at(found, [10.5, 20.0])
    np.testing.assert_allclose(last[0], np.broadcast_to(places[-1], (2, 3)), atol=1e-4)
    assert np.abs(last[1]).max() < 1e-4
    assert np.abs(last[2]).max() == 0


def test_files_give_the_same_reference(tmp_path):
    points = [[0.0, 0.0, 1.5], [2.0, -1.0, 1.5], [4.0, 0.0, 2.0]]
    (tmp_path / "w.json").write_text(json.dumps({"waypoints": points, "speed": 2.0}))
    (tmp_path / "w.csv").write_text("north,east,up\n0,0,1.5\n2,1,1.5\n4,0,2\n")  # east is minus y
    first, second = read_reference(str(tmp_path / "w.json")), read_reference(str(tmp_path / "w.csv"), speed=2.0)
    assert first == second
    np.testing.assert_allclose(at(first, [0.0, 99.0])[0], [points[0], points[-1]], atol=1e-3)
    assert stored_reference(json.loads(json.dumps(first._asdict()))) == first
    moved = first._replace(offset=(1.0, 2.0, 3.0))
    np.testing.assert_allclose(at(moved, [0.5])[0] - at(first, [0.5])[0], [[1, 2, 3]], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.json", "[1", "cannot be read as a reference"),
        ("f.json", '{"waypoints": [[0, 0, 1], [0, 0, 1]]}', "the same"),
        ("f.json", '{"waypoints": [[0, 0], [1, 1]]}', "3 numbers"),
        ("f.json", '{"waypoints": [[0, 0, 1], [1e9, 0, 1]]}', "finite numbers"),
        ("f.json", '{"path": [[0, 0, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1], [2, 0, 0, 1]]}', "must grow"),
        ("f.csv", "a,b,c\n1,2,3\n", "neither x, y, z"),
        ("f.csv", "x,y,z\n1,2,nan\n2,2,2\n", "finite numbers"),
        ("f.csv", "x,y,z\n", "holds no point"),
        ("f.json", '{"waypoints": []}', "holds no point"),
        ("f.csv", "x,y,z\n0,0," + "1" * 200_000 + "\n", "field limit"),
        ("f.json", '{"waypoints": [[0, 0, 1], [' + "9" * 400 + ", 0, 1]]}", "too large"),
        ("f.csv", "x,y,z\n0,0,1\n0.1,0,1\n60,0,1\n60,0.2,1\n0,0,1\n", "legs of about the same length"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_reference(str(tmp_path / name))


@pytest.mark.parametrize("speed", [float("nan"), 0.0, -1.0, float("inf")])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InputError, match="must be a number of m/s above 0"):
        read_reference("snap", speed)


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="no reference is named 'cirle'"):
        read_reference("cirle")
    with pytest.raises(InputError, match="expected lissajous"):
        stored_reference(Reference("spiral")._asdict())
