"""A policy of a few Gaussians: its density, its gradients, what fits it, and the formats that hold it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.inference.clouds import policy_cloud
from awavo.networks import SquashedMixture, actor
from awavo.transport import adaptive_gswd
from awavo.transport.defining import Linear
from awavo.types import Box, Discrete

BOX = Box((-1.0, -2.0), (1.0, 2.0))
LOW, HIGH = np.float32([-1.0]), np.float32([1.0])


def two_ways(left=0.0, right=0.0):
    mean = np.float32([[-1.0], [1.0]])
    return SquashedMixture(np.float32([left, right]), mean, np.full((2, 1), -1.5, np.float32), LOW, HIGH)


def test_the_density_is_one_and_that_of_its_draws():
    grid = np.linspace(-0.99999, 0.99999, 20_001, dtype=np.float32)

    @jax.jit
    def said(mixture, key):
        drawn = jax.vmap(mixture.sample)(jax.random.split(key, 4000))
        return jax.vmap(mixture.log_prob)(grid[:, None]), drawn

    log_density, drawn = map(np.asarray, said(two_ways(0.5), jax.random.key(0)))
    density = np.exp(log_density)
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    assert (drawn < 0).mean() == pytest.approx(1 / (1 + np.exp(-0.5)), abs=0.03)
    assert np.trapezoid(density * grid, grid) == pytest.approx(drawn.mean(), abs=0.03)


def test_the_greedy_action_is_a_way_and_not_the_middle():
    mode = jax.jit(lambda mixture: mixture.mode())
    assert mode(two_ways(0.0, 0.1)).item() == pytest.approx(np.tanh(1.0), abs=1e-5)
    assert mode(two_ways(0.1, 0.0)).item() == pytest.approx(-np.tanh(1.0), abs=1e-5)


def test_expectations_over_every_component_teach_the_weights():
    def expected(logits):
        drawn, log_probs, shares = two_ways()._replace(logits=logits).every(jax.random.key(0))
        assert drawn.shape == (2, 1)
        assert log_probs.shape == shares.shape == (2,)
        return jnp.sum(shares * drawn[:, 0])

    # More weight on the right way raises the mean action: d mean / d logit = p (1 - p) (right - left).
    slope = np.asarray(jax.jit(jax.grad(expected))(np.zeros(2, np.float32)))
    assert slope[1] == pytest.approx(0.25 * 2 * np.tanh(1.0), abs=0.15)
    assert slope[0] == pytest.approx(-slope[1], abs=1e-6)


def test_kl_is_zero_of_itself_and_bounds_that_of_draws():
    one, other = two_ways(1.0), two_ways(0.0, 0.3)._replace(log_std=np.full((2, 1), -1.0, np.float32))

    @jax.jit
    def said(one, other, key):
        drawn = jax.vmap(one.sample)(jax.random.split(key, 4000))
        exact = jnp.mean(jax.vmap(one.log_prob)(drawn) - jax.vmap(other.log_prob)(drawn))
        return one.kl(one), exact, one.kl(other)

    own, exact, bound = map(float, said(one, other, jax.random.key(1)))
    assert own == pytest.approx(0.0, abs=1e-6)
    assert 0 < exact <= bound + 0.02


def test_components_start_apart_and_a_mixture_of_one_is_the_gaussian():
    key, obs = jax.random.key(0), np.zeros((5, 3), np.float32)
    mixed = jax.jit(lambda key: actor(key, 3, BOX, (8,), 3)(obs))(key)
    assert isinstance(mixed, SquashedMixture)
    assert mixed.mean.shape == (5, 3, 2)
    assert mixed.logits.shape == (5, 3)
    mean = np.asarray(mixed.mean)[0]
    gaps = np.abs(mean[:, None] - mean[None]).sum(-1)
    assert gaps[~np.eye(3, dtype=bool)].min() > 0.05
    single = jax.eval_shape(lambda key: actor(key, 3, BOX, (8,))(obs), key)
    assert not isinstance(single, SquashedMixture)
    assert jax.eval_shape(lambda key: actor(key, 3, Discrete(4), (8,), 3)(obs), key).logits.shape == (5, 4)


def test_the_sliced_distance_moves_means_and_weights():
    """Particles on two ways, three quarters of them on the right: a descent finds both and their shares."""
    particles = np.float32([[-0.8]] * 8 + [[0.8]] * 24)
    space = Box((-1.0,), (1.0,))

    def loss(parts, key):
        mixture = SquashedMixture(*(x[None] for x in parts), LOW, HIGH)
        points, shares = policy_cloud(key, mixture, 32, space)
        return adaptive_gswd(points[0], particles, jnp.ones((1, 1)), x_weights=shares[0], defining=Linear())

    parts = (np.zeros(2, np.float32), np.float32([[-0.1], [0.1]]), np.full((2, 1), -1.0, np.float32))

    @jax.jit
    def fit(parts):
        def step(parts, key):
            grads = jax.grad(loss)(parts, key)
            return jax.tree.map(lambda x, g: x - 0.3 * g, parts, grads), None

        return jax.lax.scan(step, parts, jax.random.split(jax.random.key(2), 600))[0]

    logits, mean, _ = map(np.asarray, fit(parts))
    np.testing.assert_allclose(np.tanh(mean[:, 0]), [-0.8, 0.8], atol=0.08)
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), [0.25, 0.75], atol=0.05)


def test_exported_it_decides_by_its_heaviest_component():
    pytest.importorskip("onnx")
    from awavo.deploy.onnx_actor import actor_onnx, run_onnx
    from awavo.networks import actor_parts, running_statistics

    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)

    @jax.jit
    def made(key):
        # Larger weights: which component is the heaviest must depend on the observation.
        policy = jax.tree.map(lambda x: 3 * x, actor(key, 4, BOX, (16,), 3))
        return policy, policy(obs).logits, policy(obs).mode()

    policy, logits, mode = made(jax.random.key(3))
    assert len(np.unique(np.argmax(logits, -1))) > 1
    found = run_onnx(actor_onnx(actor_parts(running_statistics(4), policy.net, BOX, 3)), obs)
    np.testing.assert_allclose(found, mode, atol=1e-4)
    obs[0, 0] = np.nan
    model = actor_onnx(actor_parts(running_statistics(4), policy.net, BOX, 3))
    assert np.isnan(run_onnx(model, obs)[0]).all()


def test_a_gradient_step_of_the_learner_reaches_every_output():
    from awavo.algorithms import replay as ring
    from awavo.algorithms.actor_critic import ActorCriticConfig, Objective, actor_critic
    from awavo.inference.operators import make_operator
    from awavo.inference.optimality import ReturnRange
    from awavo.networks import running_statistics
    from awavo.types import EnvSpec

    spec = EnvSpec("point", 3, BOX, 10, ("speed",), (1.0,))
    config = ActorCriticConfig(hidden=(8,), num_components=3, num_quantiles=4, batch_size=16, backup_steps=1)
    networks = actor_critic(spec, config, make_operator("logistic"))
    learner = jax.jit(networks.init)(jax.random.key(0))
    buffer = ring.empty_replay(spec, 32, 1)
    buffer = buffer._replace(added=np.int32(32))
    span = ReturnRange(np.zeros(2, np.float32), np.ones(2, np.float32))
    half = np.full(2, 0.5, np.float32)
    # No weight on the entropy: the shares must learn from what the components are worth.
    objective = Objective(running_statistics(3), np.ones(2, np.float32), span, span, half, np.float32(0.0))
    new, metrics = jax.jit(lambda *x: networks.update(*x, None))(jax.random.key(1), learner, buffer, objective)
    moved = np.asarray(new.actor.net.biases[-1]) != np.asarray(learner.actor.net.biases[-1])
    assert moved.shape == (3 * (2 + 2 + 1),)
    assert moved.all()
    assert np.isfinite(float(metrics.actor_loss))
