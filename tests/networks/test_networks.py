import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from awavo.networks import (
    Categorical,
    SquashedGaussian,
    actor,
    mlp,
    normalize,
    quantile_critic,
    running_statistics,
    update_statistics,
)
from awavo.networks.optimize import all_finite, choose
from awavo.types import Box, Discrete

BOX = Box((-2.0, 0.0), (2.0, 1.0))


def test_mlp_is_arrays_only_and_maps_the_last_axis():
    net = mlp(jax.random.key(0), (3, 8, 2))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(net))
    assert jax.jit(net.__call__)(jnp.ones((5, 4, 3))).shape == (5, 4, 2)


def test_categorical_against_scipy():
    logits = jnp.array([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]])
    dist = Categorical(logits)
    probabilities = np.asarray(jax.nn.softmax(logits))
    np.testing.assert_allclose(dist.entropy(), [stats.entropy(p) for p in probabilities], rtol=1e-5)
    np.testing.assert_allclose(dist.log_prob(jnp.array([2, 1])), np.log(probabilities[[0, 1], [2, 1]]), rtol=1e-5)
    draws = np.asarray(jax.vmap(dist.sample)(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose((draws[:, 0] == 2).mean(), probabilities[0, 2], atol=0.015)
    assert dist.mode().tolist() == [2, 0]


def test_squashed_gaussian_density_integrates_to_one_and_matches_its_samples():
    dist = SquashedGaussian(jnp.array([0.4]), jnp.array([-0.3]), jnp.array([-2.0]), jnp.array([3.0]))
    draws, log_density = jax.vmap(dist.sample_with_log_prob)(jax.random.split(jax.random.key(1), 200_000))
    assert float(draws.min()) >= -2
    assert float(draws.max()) <= 3
    # E[1 / p(a)] over the samples is the length of the support.
    inside = (draws[:, 0] > -1.9) & (draws[:, 0] < 2.9)
    volume = float(jnp.mean(jnp.where(inside, jnp.exp(-log_density), 0)))
    assert volume == pytest.approx(4.8, rel=0.03)


def test_squashed_gaussian_log_prob_stays_finite_far_out():
    dist = SquashedGaussian(jnp.array([40.0]), jnp.array([0.0]), jnp.array([-1.0]), jnp.array([1.0]))
    grads = jax.grad(lambda m: dist._replace(mean=m).sample_with_log_prob(jax.random.key(0))[1])(dist.mean)
    assert np.isfinite(grads).all()


@pytest.mark.parametrize("space", [Discrete(3), BOX])
def test_actor_and_critic_shapes(space):
    policy = actor(jax.random.key(0), 4, space, (8,))
    obs = jnp.ones((6, 4))
    action = policy(obs).sample(jax.random.key(1))
    critic = quantile_critic(jax.random.key(2), 4, space, (8,), num_signals=3, num_quantiles=5, scale=10.0)
    assert critic(obs, action).shape == (6, 3, 5)
    assert policy(obs).mode().shape == action.shape


def test_all_actions_agrees_with_single_actions():
    critic = quantile_critic(jax.random.key(2), 4, Discrete(3), (8,), 2, 5, 10.0)
    obs = jax.random.normal(jax.random.key(3), (6, 4))
    for a in range(3):
        np.testing.assert_array_equal(critic(obs, jnp.full(6, a)), critic.all_actions(obs)[:, a])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.sampled_from((1, 3, 30)), min_size=1, max_size=4),
    offset=st.floats(-50, 50),
)
def test_running_statistics_match_numpy(seed, sizes, offset):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(offset, 3, size=(size, 2)).astype(np.float32) for size in sizes]
    running = running_statistics(2)
    for batch in batches:
        running = update_statistics(running, jnp.asarray(batch))
    everything = np.concatenate(batches)
    np.testing.assert_allclose(running.mean, everything.mean(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(running.deviation / running.total, everything.var(0), rtol=2e-2, atol=1e-2)


def test_normalize_leaves_constants_and_bounds_outliers():
    running = update_statistics(running_statistics(2), jnp.array([[1.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_allclose(normalize(running, jnp.array([3.0, 6.0])), [1.0, 1.0], rtol=1e-5)
    assert float(normalize(running, jnp.array([1e9, 5.0]))[0]) == 10.0


def test_squashed_density_is_that_of_the_draw_and_integrates_to_one():
    low, high = jnp.array([-1.0]), jnp.array([3.0])
    dist = SquashedGaussian(jnp.array([[0.4]]), jnp.array([[-0.3]]), low, high)
    action, log_prob = dist.sample_with_log_prob(jax.random.key(0))
    np.testing.assert_allclose(dist.log_prob(action), log_prob, rtol=1e-4)
    grid = jnp.linspace(-1 + 1e-4, 3 - 1e-4, 20_001)[:, None]
    assert float(jnp.trapezoid(jnp.exp(dist.log_prob(grid)), grid[:, 0])) == pytest.approx(1, abs=1e-3)


def test_a_tree_with_one_bad_number_is_not_finite():
    good = (jnp.zeros(3), {"a": jnp.ones(())})
    assert bool(all_finite(good))
    assert not bool(all_finite((good, jnp.array([0.0, jnp.nan]))))
    kept = choose(jnp.array(False), (jnp.ones(3), {"a": jnp.zeros(())}), good)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), kept, good))
