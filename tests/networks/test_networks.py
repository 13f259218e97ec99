import jax
import jax.numpy as jnp
import numpy as np
import optax
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
from awavo.networks.mlp import unheard_at_first
from awavo.networks.normalizer import TAILS, follow_tails, normalize_with_tails, num_inputs
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


def tailed(obs, scale=1.0, shift=0.0):
    obs = scale * jnp.asarray(obs, jnp.float32) + shift
    running = update_statistics(running_statistics(obs.shape[1], tails=True), obs)
    return follow_tails(running, obs, jnp.float32(1.0)), obs


def test_thresholds_are_the_ends_of_each_component_and_follow_it():
    sample = np.random.default_rng(0).normal([0.0, 50.0], [1.0, 3.0], (2000, 2))
    running, obs = tailed(sample)
    np.testing.assert_allclose(running.thresholds, np.percentile(sample, TAILS, axis=0), rtol=1e-4, atol=1e-4)
    half = follow_tails(running, obs + 1.0, jnp.float32(0.5))
    np.testing.assert_allclose(half.thresholds, running.thresholds + 0.5, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(update_statistics(half, obs).thresholds, half.thresholds)
    plain = running_statistics(2)
    assert plain.thresholds is None
    assert follow_tails(plain, obs, jnp.float32(1.0)) is plain


def test_what_is_seen_of_the_tails_has_no_unit():
    sample = np.random.default_rng(1).exponential(1.0, (1000, 3))
    (running, obs), (far, far_obs) = tailed(sample), tailed(sample, 64.0, 256.0)
    seen = normalize_with_tails(running, obs)
    assert seen.shape == (1000, num_inputs(3, True)) == (1000, 3 * (1 + len(TAILS)))
    np.testing.assert_array_equal(seen[:, :3], normalize(running, obs))
    np.testing.assert_array_equal(normalize(running, obs), normalize_with_tails(running._replace(thresholds=None), obs))
    np.testing.assert_allclose(seen, normalize_with_tails(far, far_obs), atol=2e-3)
    above = np.asarray(seen[:, 3:]).reshape(1000, len(TAILS), 3) > 0
    np.testing.assert_allclose(above.mean((0, 2)), 1 - np.asarray(TAILS) / 100, atol=2e-3)


def test_an_edge_at_the_end_of_a_component_is_learnt_with_the_tails_and_not_without():
    """As with a hazard on a lidar: the signal is 1 where any of 16 components is in its last half percent."""
    rng = np.random.default_rng(2)
    train, test = (rng.beta(1.0, 3.0, (2000, 16)).astype(np.float32) for _ in range(2))
    edge = np.quantile(train, 0.995)
    running, _ = tailed(train)

    @jax.jit
    def fitted(inputs, probes, wanted):
        net = mlp(jax.random.key(0), (inputs.shape[1], 64, 1), standardize=True)
        if inputs.shape[1] > 16:
            net = unheard_at_first(net, slice(16, None))  # as critics are drawn
        optimizer = optax.adam(3e-3)

        def step(carry, index):
            net, opt = carry
            grads = jax.grad(lambda n: jnp.mean((n(inputs[index])[:, 0] - wanted[index]) ** 2))(net)
            updates, opt = optimizer.update(grads, opt)
            return (optax.apply_updates(net, updates), opt), None

        rows = jax.random.randint(jax.random.key(1), (800, 128), 0, len(wanted))
        return jax.lax.scan(step, (net, optimizer.init(net)), rows)[0][0](probes)[:, 0]

    wanted, truth = (jnp.asarray((x.max(1) > edge).astype(np.float32)) for x in (train, test))
    assert 0.03 < float(truth.mean()) < 0.15
    found = {
        tails: np.corrcoef(
            fitted(normalize_with_tails(stats, train), normalize_with_tails(stats, test), wanted), truth
        )[0, 1]
        for tails, stats in ((True, running), (False, running._replace(thresholds=None)))
    }
    assert found[True] > 0.5
    assert found[False] < 0.3


def test_inputs_that_are_unheard_at_first_change_nothing_until_they_are_learnt():
    net = unheard_at_first(mlp(jax.random.key(0), (9, 64, 2)), slice(2, 6))
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 50, 9)).astype(np.float32)
    mixed = np.where((np.arange(9) >= 2) & (np.arange(9) < 6), other, one)
    np.testing.assert_array_equal(net(one), net(mixed))
    first = np.asarray(net.weights[0])
    assert np.std(first[[0, 1, 6, 7, 8]]) == pytest.approx(np.sqrt(2 / 5), rel=0.1)  # as loud as all nine together
    grads = jax.grad(lambda n: jnp.sum(n(one) ** 2))(net).weights[0]
    assert np.abs(grads[2:6]).max() > 0  # and they can be learnt


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
