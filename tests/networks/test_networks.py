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
update_statistics = jax.jit(update_statistics)  # one program, not one for each operation


def test_mlp_is_arrays_only_and_maps_the_last_axis():
    net = jax.jit(lambda key: mlp(key, (3, 8, 2)))(jax.random.key(0))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(net))
    assert jax.eval_shape(net.__call__, np.ones((5, 4, 3))).shape == (5, 4, 2)


def test_categorical_against_scipy():
    logits = np.float32([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]])

    @jax.jit
    def said(logits, keys):
        dist = Categorical(logits)
        return dist.entropy(), dist.log_prob(jnp.array([2, 1])), jax.vmap(dist.sample)(keys), dist.mode()

    entropy, log_prob, draws, mode = said(logits, jax.random.split(jax.random.key(0), 20_000))
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(entropy, [stats.entropy(p) for p in probabilities], rtol=1e-5)
    np.testing.assert_allclose(log_prob, np.log(probabilities[[0, 1], [2, 1]]), rtol=1e-5)
    np.testing.assert_allclose((np.asarray(draws)[:, 0] == 2).mean(), probabilities[0, 2], atol=0.015)
    assert mode.tolist() == [2, 0]


def test_squashed_gaussian_density_integrates_to_one_and_matches_its_samples():
    dist = SquashedGaussian(jnp.array([0.4]), jnp.array([-0.3]), jnp.array([-2.0]), jnp.array([3.0]))
    draw = jax.jit(lambda key: jax.vmap(dist.sample_with_log_prob)(jax.random.split(key, 200_000)))
    draws, log_density = map(np.asarray, draw(jax.random.key(1)))
    assert draws.min() >= -2
    assert draws.max() <= 3
    # E[1 / p(a)] over the samples is the length of the support.
    inside = (draws[:, 0] > -1.9) & (draws[:, 0] < 2.9)
    volume = np.mean(np.where(inside, np.exp(-log_density), 0))
    assert volume == pytest.approx(4.8, rel=0.03)


def test_squashed_gaussian_log_prob_stays_finite_far_out():
    dist = SquashedGaussian(jnp.array([40.0]), jnp.array([0.0]), jnp.array([-1.0]), jnp.array([1.0]))
    slope = jax.jit(jax.grad(lambda m, key: dist._replace(mean=m).sample_with_log_prob(key)[1]))
    assert np.isfinite(slope(dist.mean, jax.random.key(0))).all()


@pytest.mark.parametrize("space", [Discrete(3), BOX])
def test_actor_and_critic_shapes(space):
    def parts(key, obs):
        policy = actor(key, 4, space, (8,))
        action = policy(obs).sample(key)
        critic = quantile_critic(key, 4, space, (8,), num_signals=3, num_quantiles=5, scale=10.0)
        return action, critic(obs, action), policy(obs).mode()

    action, quantiles, mode = jax.eval_shape(parts, jax.random.key(0), np.ones((6, 4), np.float32))
    assert quantiles.shape == (6, 3, 5)
    assert mode.shape == action.shape
    assert action.shape == ((6,) if space == Discrete(3) else (6, 2))


def test_all_actions_agrees_with_single_actions():
    @jax.jit
    def both(key, obs):
        critic = quantile_critic(key, 4, Discrete(3), (8,), 2, 5, 10.0)
        return jnp.stack([critic(obs, jnp.full(6, a)) for a in range(3)], 1), critic.all_actions(obs)

    single, every = both(jax.random.key(2), np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32))
    np.testing.assert_array_equal(single, every)
    assert np.ptp(every, 1).min() > 0


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
        running = update_statistics(running, batch)
    everything = np.concatenate(batches)
    np.testing.assert_allclose(running.mean, everything.mean(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(
        np.asarray(running.deviation) / np.asarray(running.total), everything.var(0), rtol=2e-2, atol=1e-2
    )


def test_normalize_leaves_constants_and_bounds_outliers():
    running = update_statistics(running_statistics(2), jnp.array([[1.0, 5.0], [3.0, 5.0]]))
    seen = np.asarray(jax.jit(normalize)(running, jnp.array([[3.0, 6.0], [1e9, 5.0]])))
    np.testing.assert_allclose(seen[0], [1.0, 1.0], rtol=1e-5)
    assert seen[1, 0] == 10.0


def test_squashed_density_is_that_of_the_draw_and_integrates_to_one():
    low, high = jnp.array([-1.0]), jnp.array([3.0])
    dist = SquashedGaussian(jnp.array([[0.4]]), jnp.array([[-0.3]]), low, high)
    grid = np.linspace(-1 + 1e-4, 3 - 1e-4, 20_001, dtype=np.float32)[:, None]

    @jax.jit
    def said(key):
        action, log_prob = dist.sample_with_log_prob(key)
        return dist.log_prob(action), log_prob, dist.log_prob(grid)

    again, log_prob, over_grid = said(jax.random.key(0))
    np.testing.assert_allclose(again, log_prob, rtol=1e-4)
    assert np.trapezoid(np.exp(over_grid), grid[:, 0]) == pytest.approx(1, abs=1e-3)


def test_a_tree_with_one_bad_number_is_not_finite():
    good = (np.zeros(3, np.float32), {"a": np.ones((), np.float32)})
    finite = jax.jit(all_finite)
    assert bool(finite(good))
    assert not bool(finite((good, np.array([0.0, np.nan]))))
    kept = jax.jit(choose)(False, jax.tree.map(lambda x: 1 - x, good), good)
    jax.tree.map(np.testing.assert_array_equal, kept, good)
