"""p_D(theta) of a flight finds force, mass and drag, and knows how well."""

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.belief import draw_members, start_belief, update_belief
from awavo.tasks.quadrotor.params import QuadrotorParams

P = QuadrotorParams()


def observe(key, steps, force, mass, drag):
    """Beliefs along a flight that shakes thrust and speed, with the given truth."""

    def step(belief, inputs):
        t, key = inputs
        thrust = P.mass * P.gravity * jnp.stack([0.3 * jnp.sin(3 * t), 0.3 * jnp.cos(2 * t), 1 + 0.5 * jnp.sin(5 * t)])
        still = -jnp.stack([2 * jnp.sin(t), 2 * jnp.cos(0.7 * t), jnp.sin(2 * t)])
        felt = (thrust + still * (1 + drag) + force) / (P.mass * (1 + mass))
        felt = felt + P.force_noise / P.mass * jax.random.normal(key, (3,))
        belief = update_belief(belief, felt, thrust, still, P, 0.02)
        return belief, belief

    times = jnp.arange(steps) * 0.02
    return jax.lax.scan(step, start_belief(), (times, jax.random.split(key, steps)))[1]


def test_force_mass_and_drag_are_found():
    force = jnp.array([0.8, -0.3, 0.1])
    run = jax.jit(jax.vmap(lambda k: observe(k, 600, force, 0.04, 0.2)))
    beliefs = jax.device_get(run(jax.random.split(jax.random.key(0), 16)))
    last, covariance = beliefs.mean[:, -1], beliefs.covariance[:, -1]
    miss = last - np.array([0.8, -0.3, 0.1, 0.04, 0.2])
    assert np.abs(miss[:, 3].mean()) < 0.015
    assert np.abs(miss[:, :3].mean(0)).max() < 0.1
    assert np.abs(miss[:, 4].mean()) < 0.1
    assert np.sqrt(covariance[0, 3, 3]) < 0.03
    # Squared distance in the posterior's own metric: 5 on average if it is calibrated (less, as the truth is constant).
    squares = np.einsum("ni,nij,nj->n", miss, np.linalg.inv(covariance), miss)
    assert 0.5 < squares.mean() < 8


def test_a_hover_cannot_tell_mass_from_lift_at_once_but_lift_passes():
    belief = start_belief()
    up = jnp.array([0.0, 0.0, P.gravity])
    update = jax.jit(lambda b: update_belief(b, up, P.mass * up, jnp.zeros(3), P, 0.02))
    spreads = []
    for _ in range(100):
        belief = update(belief)
        corr = belief.covariance[2, 3] / jnp.sqrt(belief.covariance[2, 2] * belief.covariance[3, 3])
        spreads.append((float(corr), float(jnp.sqrt(belief.covariance[3, 3]))))
    assert spreads[10][0] > 0.8
    assert 0.01 < spreads[10][1] < 0.03
    assert spreads[-1][1] < 0.6 * spreads[10][1]


def test_draws_have_the_posteriors_moments():
    belief = start_belief()._replace(mean=jnp.arange(5.0))
    draws = np.asarray(draw_members(jax.random.key(0), belief, 4000))
    np.testing.assert_allclose(draws.mean(1), belief.mean, atol=1e-4)
    np.testing.assert_allclose(draws.std(1), [1, 1, 0.2, 0.05, 0.5], rtol=0.06)


def flown(force_at, mass=0.0, thrust=1.0, noise=1.0, drag=0.0, steps=500, seed=0):
    """Beliefs along a simulated figure of eight; `force_at(t)` pushes sideways, the rest of the plant is off too."""

    def step(belief, inputs):
        t, key = inputs
        speed = jnp.stack([1.8 * jnp.cos(0.6 * t), 1.8 * jnp.cos(1.2 * t), 0.0])
        push = jnp.stack([-1.1 * jnp.sin(0.6 * t), -2.2 * jnp.sin(1.2 * t), P.gravity])
        still = -0.27 * speed
        given = P.mass * push - still - jnp.append(force_at(t), 0.0)
        felt = (thrust * given + still * (1 + drag) + jnp.append(force_at(t), 0.0)) / (P.mass * (1 + mass))
        felt = felt + noise * P.force_noise / P.mass * jax.random.normal(key, (3,))
        belief = update_belief(belief, felt, given, still, P._replace(force_walk=0.3), 0.02)
        return belief, belief

    times = jnp.arange(steps) * 0.02
    run = jax.jit(lambda key: jax.lax.scan(step, start_belief(), (times, jax.random.split(key, steps)))[1])
    return jax.device_get(run(jax.random.key(seed)))


def test_a_burst_is_force_and_neither_mass_nor_drag():
    """Before, a burst of 8 m/s stayed: 5% of mass, 45% of drag and a wind that was over."""
    found = flown(lambda t: jnp.where((t >= 4) & (t < 5), 1.0, 0.0) * jnp.array([2.0, -2.0]))
    assert np.abs(found.mean[205:248, :2] - [2.0, -2.0]).max() < 0.6
    assert np.abs(found.mean[255:, :2]).max() < 0.4
    assert np.abs(found.mean[255:, :2]).mean() < 0.08
    assert np.abs(found.mean[-1, 3]) < 0.01
    assert np.abs(found.mean[-1, 4]) < 0.25


def test_a_wrong_mass_or_thrust_is_no_force():
    for changes, expected in (({"mass": 0.1}, 0.1), ({"mass": -0.1}, -0.1), ({"thrust": 1.2}, 1 / 1.2 - 1)):
        found = flown(lambda t: jnp.zeros(2), **changes)
        np.testing.assert_allclose(found.mean[100:, 3].mean(), expected, atol=0.015)
        assert np.abs(found.mean[100:, :3].mean(0)).max() < 0.06, changes


def test_noise_that_was_not_told_is_measured():
    found = flown(lambda t: jnp.zeros(2), noise=6.0)
    measured = np.sqrt(found.watch.noise[100:])
    assert 4.5 < measured.mean() / P.force_noise < 7.5
    told = np.sqrt(flown(lambda t: jnp.zeros(2)).watch.noise[100:])
    np.testing.assert_allclose(told.mean() / P.force_noise, 1.0, atol=0.15)
    # The force says how well it is known: not 0.08 N, as with the noise that was told.
    assert np.sqrt(found.covariance[100:, 0, 0]).mean() > 0.14
