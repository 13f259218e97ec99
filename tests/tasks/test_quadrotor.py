"""The quadrotor's parts: rigid body against MuJoCo, wind, forest, references, inner loop, force filter."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.tasks.quadrotor.body import LEVERS, SPINS, Body, body_drag, euler_step, hovering, mix, rotor_forces, wrench
from awavo.tasks.quadrotor.force_filter import start_filter, update_filter
from awavo.tasks.quadrotor.forest import Forest, distances, plant_forest, proximity_push
from awavo.tasks.quadrotor.params import QuadrotorParams, draw_parameters, hover_speed
from awavo.tasks.quadrotor.rate_loop import rate_loop, start_loop, throttle
from awavo.tasks.quadrotor.references import circle, lissajous, minimum_snap, snap_reference
from awavo.tasks.quadrotor.wind import gusts, start_gusts, step_gusts, wind_at

P = QuadrotorParams()
STILL = np.zeros(3, np.float32)
# One program each, not one for each operation.
mix, wrench, rotor_forces, throttle, distances, proximity_push, body_drag, wind_at, euler = map(
    jax.jit, (mix, wrench, rotor_forces, throttle, distances, proximity_push, body_drag, wind_at, euler_step)
)


def test_mixing_inverts_the_wrench():
    forces = jnp.array([2.0, 3.0, 4.0, 2.5])
    np.testing.assert_allclose(mix(wrench(forces, P), P), forces, rtol=1e-5)
    np.testing.assert_allclose(mix(jnp.array([1e3, 0, 0, 0]), P), P.thrust_max)


def test_hover_throttle_is_thirty_percent():
    np.testing.assert_allclose(throttle(np.float32(P.mass * P.gravity / 4), P), 0.30, atol=2e-3)


def mujoco_flight(params, speeds, duration):
    """Position and attitude of MuJoCo's own rigid body, its rotors as actuators at their places."""
    mujoco = pytest.importorskip("mujoco")
    a = params.arm
    sites = "".join(f'<site name="r{i}" pos="{x * a} {y * a} 0"/>' for i, (x, y) in enumerate(LEVERS))
    motors = "".join(f'<motor site="r{i}" gear="0 0 1 0 0 {-params.torque_ratio * s}"/>' for i, s in enumerate(SPINS))
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep="5e-5" integrator="RK4"/><worldbody>
    <body><freejoint/><inertial pos="0 0 0" mass="{params.mass}"
    diaginertia="{params.inertia_x} {params.inertia_y} {params.inertia_z}"/>{sites}</body></worldbody>
    <actuator>{motors}</actuator></mujoco>""")
    data = mujoco.MjData(model)
    data.ctrl = params.thrust_coefficient * np.asarray(speeds) ** 2
    mujoco.mj_step(model, data, round(duration / 5e-5))
    return data.qpos.copy(), data.qvel.copy()


def convergence():
    """Half a second of tumbling flight without drag: errors at three steps, MuJoCo's state and rates."""
    params = P._replace(drag_x=0.0, drag_y=0.0, drag_z=0.0, drag_quadratic=0.0, rotor_inertia=0.0)
    speeds = hover_speed(params) * jnp.array([1.04, 1.03, 1.05, 1.01])
    truth, rates = mujoco_flight(params, speeds, 0.5)
    zero = jnp.zeros(3)

    @functools.partial(jax.jit, static_argnums=1)
    def fly(start, dt):
        return jax.lax.fori_loop(
            0, round(0.5 / dt), lambda _, x: euler_step(x, start.rotors, zero, zero, params, dt), start
        )

    errors = []
    with jax.enable_x64(True):
        start = Body(*(jnp.asarray(x, jnp.float64) for x in hovering(jnp.zeros(3), params)))
        start = start._replace(rotors=jnp.asarray(speeds, jnp.float64))
        for dt in (1e-3, 5e-4, 2.5e-4):
            errors.append(np.abs(np.asarray(fly(start, dt).position) - truth[:3]).max())
    return errors, truth, rates


def test_the_body_converges_to_mujoco_with_order_one():
    errors, truth, rates = convergence()
    assert np.abs(truth[:3]).max() > 0.1
    assert np.abs(rates[3:]).max() > 1.0
    assert errors[0] < 1e-2
    for coarse, fine in itertools.pairwise(errors):
        assert 1.8 < coarse / fine < 2.2


def test_drag_and_gyroscopic_terms_by_hand():
    tilted = jnp.array([np.cos(0.2), np.sin(0.2), 0.0, 0.0], jnp.float32)
    air = jnp.array([1.0, -2.0, 0.5])
    angle = 0.4
    back = np.array([[1, 0, 0], [0, np.cos(angle), np.sin(angle)], [0, -np.sin(angle), np.cos(angle)]]) @ air
    wanted = -1.1 * np.array([P.drag_x, P.drag_y, P.drag_z]) * back - P.drag_quadratic * np.linalg.norm(back) * back
    np.testing.assert_allclose(body_drag(tilted, air, 1.1, P), wanted, rtol=1e-5)
    still = jax.device_get(hovering(STILL, P))
    spun = still._replace(rates=np.float32([1.0, 0.0, 0.0]), rotors=still.rotors * np.float32([1.1, 1.1, 0.9, 0.9]))
    after = euler(spun, spun.rotors, STILL, STILL, P, 1e-3)
    spin = P.rotor_inertia * float(spun.rotors @ np.array(SPINS))
    torque = np.asarray(wrench(rotor_forces(spun.rotors, P), P))
    expected = (torque[2] + spin) / P.inertia_y
    np.testing.assert_allclose(np.asarray(after.rates)[1] / 1e-3, expected, rtol=1e-3)


@jax.jit
def gust_deviations(dt):
    """Deviations of 8192 gusts after 64 steps, and over all steps, where 2.0 is asked for."""
    params = P._replace(gust_sigma=2.0)
    steps = 64

    def advance(state, key):
        keys = jax.random.split(key, 8192)
        state = jax.vmap(lambda k, s: step_gusts(k, s, dt, params))(keys, state)
        return state, jnp.mean(jax.vmap(lambda s: gusts(s, params))(state) ** 2, 0)

    start = jax.vmap(start_gusts)(jax.random.split(jax.random.key(0), 8192))
    squares = jax.lax.scan(advance, start, jax.random.split(jax.random.key(1), steps))[1]
    return jnp.sqrt(squares[-1]), jnp.sqrt(squares.mean(0))


@pytest.mark.parametrize("dt", [0.002, 0.02, 0.1])
def test_gusts_have_the_deviation_asked_for(dt):
    np.testing.assert_allclose(gust_deviations(dt), 2.0, rtol=0.03)


def test_wind_zone_and_gust():
    calm = P._replace(gust_sigma=0.0)
    blow = lambda place, time: np.asarray(  # noqa: E731
        wind_at(np.float32(place), STILL, np.float32(time), np.float32(1.0), np.zeros(5, np.float32), calm)
    )
    np.testing.assert_allclose(blow((0.0, 0.0, 1.0), 0.0), [0, 4, 0], atol=0.05)
    np.testing.assert_allclose(blow((4.0, 0.0, 1.0), 0.0), [0, 0, 0], atol=0.01)
    np.testing.assert_allclose(blow((4.0, 0.0, 1.0), 1.75), [0, 2, 0], atol=0.01)
    blown = np.ones(5, np.float32)
    off = wind_at(STILL, STILL, np.float32(1.75), np.float32(1), blown, P._replace(wind_on=0.0))
    assert not np.any(off)


def test_distances_against_points_on_the_surface():
    forest = Forest(jnp.array([1.0]), jnp.array([0.0]), jnp.array([0.5]), jnp.array([2.0]))
    angles, heights = np.meshgrid(np.linspace(0, 2 * np.pi, 400), np.linspace(-3, 2, 200))
    side = np.stack([1 + 0.5 * np.cos(angles), 0.5 * np.sin(angles), heights], -1).reshape(-1, 3)
    radii = np.linspace(0, 0.5, 60)[:, None] * np.ones(400)
    top = np.stack([1 + radii * np.cos(angles[0]), radii * np.sin(angles[0]), 2 + 0 * radii], -1).reshape(-1, 3)
    surface = np.concatenate([side, top])
    for point in ([0.0, 0.0, 1.0], [1.2, 0.1, 2.7], [2.0, 1.0, 2.5], [1.1, 0.0, 1.0]):
        nearest = np.linalg.norm(surface - point, axis=1).min()
        inside = np.hypot(point[0] - 1, point[1]) < 0.5 and point[2] < 2
        found = distances(forest, np.float32(point)).item()
        np.testing.assert_allclose(found, -nearest if inside else nearest, atol=0.02)
    push = proximity_push(forest, jnp.array([0.25, 0.0, 1.0]), P)
    np.testing.assert_allclose(push, [-P.proximity_force * np.exp(-0.25 / 0.25), 0, 0], rtol=1e-5)


def test_the_forest_leaves_the_path_free():
    path = np.asarray(
        jax.jit(lambda times: lissajous(times, P).position.T)(np.linspace(0, 10.5, 160, dtype=np.float32))
    )
    plant = jax.jit(jax.vmap(lambda k: plant_forest(k, path, path[40], 30, 0.25, 0.8)))
    forests = jax.device_get(plant(jax.random.split(jax.random.key(0), 20)))
    for x, y, radius, _ in zip(*forests, strict=True):
        real = np.abs(x) < 100
        assert real.sum() >= 20
        gaps = np.hypot(x[real, None] - path[:, 0], y[real, None] - path[:, 1]) - radius[real, None]
        assert gaps.min() >= 0.25 - 1e-4
        assert gaps[0].min() < 0.3
        places = np.stack([x[real], y[real]], 1)
        apart = np.linalg.norm(places[:, None] - places, axis=-1) - radius[real, None] - radius[real]
        assert (apart + 99 * np.eye(len(places))).min() >= 0.8 - 1e-4


@pytest.mark.parametrize("reference", [lissajous, circle, snap_reference(((0, 0, 1), (2, 1, 1), (3, -1, 2)), 1.0)])
def test_derivatives_of_references(reference):
    times, h = np.linspace(0.3, 2.0, 7), 1e-3
    with jax.enable_x64(True):
        at = jax.jit(lambda t: reference(t, P))
        before, found, after = (jax.device_get(at(t)) for t in (times - h, times, times + h))
    velocity = (after.position - before.position) / (2 * h)
    acceleration = (after.velocity - before.velocity) / (2 * h)
    np.testing.assert_allclose(found.velocity, velocity, atol=2e-3)
    np.testing.assert_allclose(found.acceleration, acceleration, atol=2e-3)


def test_minimum_snap_passes_waypoints_smoothly_and_is_the_least():
    points = np.array([[0, 0, 1], [1, 1, 1], [3, 0, 2], [3, -2, 1.0]])
    durations = np.array([1.0, 2.0, 1.5])
    table = minimum_snap(points, durations)
    derivative = lambda c, t, n: np.polynomial.polynomial.polyval(t, np.polynomial.polynomial.polyder(c, n))  # noqa: E731
    for i, duration in enumerate(durations):
        np.testing.assert_allclose(derivative(table[i], 0.0, 0), points[i], atol=1e-6)
        np.testing.assert_allclose(derivative(table[i], duration, 0), points[i + 1], atol=1e-6)
    for n in (1, 2, 3):
        np.testing.assert_allclose(derivative(table[0], 1.0, n), derivative(table[1], 0.0, n), atol=1e-5)
        np.testing.assert_allclose(derivative(table[0], 0.0, n), 0, atol=1e-6)
    single = minimum_snap(points[:2], durations[:1])[0]
    # Degree 7 through two points at rest is unique: p = p0 + d (35 s^4 - 84 s^5 + 70 s^6 - 20 s^7).
    np.testing.assert_allclose(single[:, 0], [0, 0, 0, 0, 35, -84, 70, -20], atol=1e-6)
    with pytest.raises(InputError, match="the same"):
        snap_reference(((0, 0, 1), (0, 0, 1)), 1.0)


@pytest.mark.parametrize(("length", "speed"), [(30.0, 1.5), (500.0, 1.5), (1.0, 0.05)])
def test_long_pieces_pass_their_waypoints_without_a_jump(length, speed):
    # Once, pieces of 20 s and more missed them by their whole length.
    points = np.array([[0, 0, 1.5], [length, 0, 1.5], [length, length, 1.5], [0, length, 1.5]])
    reference, piece = snap_reference(points.tolist(), speed), length / speed
    at = lambda times: np.asarray(reference(jnp.asarray(times, jnp.float32), P).position).T  # noqa: E731
    np.testing.assert_allclose(at(piece * np.arange(4)), points, atol=1e-5 * length)
    steps = np.linalg.norm(np.diff(at(np.linspace(0, 3 * piece, 3001)), axis=0), axis=1)
    assert steps.max() < 3 * length / 1000 * 2.5


def test_many_waypoints_are_passed_in_little_time():
    points = np.random.default_rng(0).normal(size=(2000, 3))
    durations = np.maximum(np.linalg.norm(np.diff(points, axis=0), axis=1) / 1.5, 0.5)
    table = minimum_snap(points, durations)
    ends = np.einsum("pkd,pk->pd", table, durations[:, None] ** np.arange(8))
    np.testing.assert_allclose(ends, points[1:], atol=1e-9)
    # Smooth, and the least: at an inner waypoint derivatives up to the sixth are the same on both sides.
    for n in range(1, 7):
        factors = [np.prod(np.arange(k, k - n, -1.0)) for k in range(n, 8)]
        powers = durations[:-1, None] ** np.arange(8 - n)
        before = np.einsum("k,pk,pkd->pd", factors, powers, table[:-1, n:])
        np.testing.assert_allclose(before, factors[0] * table[1:, n], atol=1e-7 * np.abs(before).max())


def test_the_inner_loop_follows_rates():
    def step(carry, _):
        body, loop = carry
        loop, commands, bound = rate_loop(
            loop, body.rates, jnp.float32(P.mass * P.gravity), jnp.array([2.0, -1.0, 0.5]), P, 0.002
        )
        body = euler_step(body, commands, jnp.zeros(3), jnp.zeros(3), P, 0.002)
        return (body, loop), (body.rates, bound)

    body = hovering(jnp.zeros(3), P)
    _, (rates, bound) = jax.jit(lambda b: jax.lax.scan(step, (b, start_loop(b.rates)), None, length=200))(body)
    rates = np.asarray(rates)
    np.testing.assert_allclose(rates[100], [2.0, -1.0, 0.5], atol=0.25)
    np.testing.assert_allclose(rates[-1], [2.0, -1.0, 0.5], atol=0.12)
    assert rates[:, 0].max() < 2.8
    assert not np.asarray(bound)[-1]


def test_the_force_filter_finds_a_force_and_knows_its_error():
    truth = jnp.array([1.0, -0.5, 0.2])

    def step(carry, key):
        state, velocity = carry
        velocity = velocity + 0.02 * truth / P.mass
        a, b = jax.random.normal(key, (2, 3))
        state = update_filter(state, jnp.zeros(3), truth + P.force_noise * a, velocity + P.velocity_noise * b, P, 0.02)
        return (state, velocity), (state.force - truth, state.covariance[1, 1])

    def flight(key):
        start = (start_filter(jnp.zeros(3)), jnp.zeros(3))
        return jax.lax.scan(step, start, jax.random.split(key, 150))[1]

    errors, variance = jax.jit(jax.vmap(flight))(jax.random.split(jax.random.key(0), 64))
    late = np.asarray(errors)[:, 75:]
    spread = np.sqrt(np.asarray(variance)[0, -1])
    assert np.abs(late.mean((0, 1))).max() < 0.02
    # A constant force errs less than the filter says, as it allows the force to walk.
    assert 0.5 * spread < late.std() < 1.05 * spread
    assert spread < 0.15


def test_parameters_are_drawn_within_their_spread():
    drawn = jax.jit(jax.vmap(lambda k: draw_parameters(k, P)))(jax.random.split(jax.random.key(0), 200))
    ratio = np.asarray(drawn.drag_x) / P.drag_x
    assert 0.5 <= ratio.min() < 0.6
    assert 1.7 < ratio.max() <= 2.0
    assert np.ptp(np.asarray(drawn.gravity)) == 0
