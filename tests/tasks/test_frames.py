import numpy as np
from scipy.spatial.transform import Rotation

from awavo.tasks.quadrotor.frames import (
    flip_attitude,
    flip_vector,
    map_vector,
    normalised_thrust,
    thrust_per_mass,
    wind_name,
)

FLIP = np.diag([1.0, -1.0, -1.0])


def test_vectors_north_east_down():
    np.testing.assert_array_equal(flip_vector(np.array([1.0, 2, 3])), [1, -2, -3])
    np.testing.assert_array_equal(flip_vector(flip_vector(np.array([1.0, 2, 3]))), [1, 2, 3])


def test_attitudes_are_the_same_rotation_in_the_other_frames():
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = rng.standard_normal(4)
        q /= np.linalg.norm(q)
        ours = Rotation.from_quat(q, scalar_first=True).as_matrix()
        theirs = Rotation.from_quat(flip_attitude(q), scalar_first=True).as_matrix()
        np.testing.assert_allclose(theirs, FLIP @ ours @ FLIP, atol=1e-12)


def test_known_cases():
    """Nose up is positive pitch in FRD and a negative turn about our y; a turn to the left is negative yaw in NED."""
    nose_up = Rotation.from_euler("y", -0.3).as_quat(scalar_first=True)
    assert Rotation.from_quat(flip_attitude(nose_up), scalar_first=True).as_euler("xyz")[1] > 0.29
    left = Rotation.from_euler("z", 0.5).as_quat(scalar_first=True)
    assert Rotation.from_quat(flip_attitude(left), scalar_first=True).as_euler("xyz")[2] < -0.49


def test_thrust():
    assert abs(normalised_thrust(9.81, 1.2, 12.4) - 0.237) < 1e-3
    assert normalised_thrust(1e9, 1.2, 12.4) == 1.0
    np.testing.assert_allclose(thrust_per_mass(normalised_thrust(7.0, 1.2, 12.4), 1.2, 12.4), 7.0)


def test_winds_are_named_by_where_they_come_from():
    """x is north and y west: a push to the south is a wind from N."""
    pushes = {"N": (-1, 0), "E": (0, 1), "S": (1, 0), "W": (0, -1), "NE": (-1, 1), "SW": (1, -1)}
    for name, (x, y) in pushes.items():
        assert wind_name(np.array([x, y, 5.0])) == name
        north, east = flip_vector(np.array([x, y, 0.0]))[:2]
        assert ("N" in name, "S" in name, "E" in name, "W" in name) == (north < 0, north > 0, east < 0, east > 0)


def test_a_map_shows_east_and_north():
    np.testing.assert_array_equal(map_vector(np.array([[2.0, 0, 1], [0, 3.0, 1]])), [[0, 2, 1], [-3, 0, 1]])
