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


def test_a_steady_hover_leaves_mass_and_lift_confounded():
    belief = start_belief()
    up = jnp.array([0.0, 0.0, P.gravity])
    update = jax.jit(lambda b: update_belief(b, up, P.mass * up, jnp.zeros(3), P, 0.02))
    for _ in range(50):
        belief = update(belief)
    corr = belief.covariance[2, 3] / jnp.sqrt(belief.covariance[2, 2] * belief.covariance[3, 3])
    assert corr > 0.8
    assert jnp.sqrt(belief.covariance[3, 3]) > 0.04


def test_draws_have_the_posteriors_moments():
    belief = start_belief()._replace(mean=jnp.arange(5.0))
    draws = np.asarray(draw_members(jax.random.key(0), belief, 4000))
    np.testing.assert_allclose(draws.mean(1), belief.mean, atol=1e-4)
    np.testing.assert_allclose(draws.std(1), [1, 1, 1, 0.05, 0.3], rtol=0.06)
