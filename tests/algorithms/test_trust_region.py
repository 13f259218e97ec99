"""The linear algebra under every trust-region step, against dense and brute-force answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from toys import CONTINUOUS, SPEC, toy_batch

from awavo.algorithms.onpolicy import OnPolicyConfig
from awavo.algorithms.trust_region import (
    active_sets,
    backtrack,
    conjugate_gradient,
    local_model,
    natural_gradients,
    solve_subsets,
)
from awavo.errors import ConfigError
from awavo.networks.stochastic import kl_divergence

CONFIG = OnPolicyConfig(damping=0.0, fisher_rows=10_000)
DENSE = jax.jit(lambda matrix, target: conjugate_gradient(lambda v: matrix @ v, target, 60))
SPECS = pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])


@pytest.mark.parametrize("seed", range(10))
def test_conjugate_gradient_agrees_with_a_dense_solve(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(30, 30))
    matrix, target = np.float32(root @ root.T / 30 + np.eye(30)), np.float32(rng.normal(size=30))
    x = DENSE(matrix, target)
    np.testing.assert_allclose(x, np.linalg.solve(matrix.astype(float), target), rtol=2e-4, atol=2e-5)


def test_conjugate_gradient_of_nothing_is_nothing():
    np.testing.assert_array_equal(DENSE(2 * np.eye(30, dtype=np.float32), np.zeros(30, np.float32)), np.zeros(30))


@SPECS
def test_fisher_product_is_the_hessian_of_the_divergence(spec):
    policy, batch = toy_batch(spec)

    @jax.jit
    def both(policy, batch, vectors):
        flat, rebuild = ravel_pytree(policy)
        hessian = jax.hessian(lambda p: kl_divergence(policy(batch.obs), rebuild(p)(batch.obs)).mean())(flat)
        return jax.vmap(local_model(policy, batch, CONFIG).fisher)(vectors), vectors @ hessian

    count = sum(x.size for x in jax.tree.leaves(policy))
    vectors = np.random.default_rng(0).normal(size=(5, count)).astype(np.float32)
    found, expected = both(policy, batch, vectors)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@SPECS
def test_divergence_is_zero_at_home_and_agrees_with_sampling(spec):
    policy, batch = toy_batch(spec)
    other, _ = toy_batch(spec, seed=7)

    @jax.jit
    def both(policy, other, obs):
        before, after = policy(obs), other(obs)
        sample = before.sample(jax.random.key(1))
        drawn = before.log_prob(sample) - after.log_prob(sample)
        return kl_divergence(before, before), kl_divergence(before, after), drawn

    home, exact, drawn = both(policy, other, np.repeat(batch.obs[:1], 100_000, 0))
    np.testing.assert_allclose(home, 0.0, atol=1e-6)
    assert float(exact[0]) > 0.01
    drawn = np.asarray(drawn)
    assert abs(drawn.mean() - float(exact[0])) < 5 * drawn.std() / np.sqrt(drawn.size) + 1e-3


@SPECS
def test_gradients_are_those_of_the_surrogates_which_vanish_at_the_old_policy(spec):
    policy, batch = toy_batch(spec)

    @jax.jit
    def both(policy, batch):
        model = local_model(policy, batch, CONFIG)
        advantages = jnp.concatenate([batch.reward_advantage[None], batch.cost_advantages.T])
        ours, _ = natural_gradients(model, advantages)
        slopes = jax.jacobian(lambda p: model.evaluate(p))(model.parameters)
        return model.evaluate(model.parameters), ours, slopes

    here, ours, slopes = both(policy, batch)
    np.testing.assert_allclose(ours[0], slopes.reward, atol=1e-5)
    np.testing.assert_allclose(ours[1:], slopes.costs, atol=1e-5)
    np.testing.assert_allclose(slopes.kl, 0.0, atol=1e-5)
    for value in here:
        np.testing.assert_allclose(value, 0.0, atol=1e-6)


@SPECS
def test_natural_step_has_the_divergence_asked_for(spec):
    policy, batch = toy_batch(spec, rows=512)
    config = OnPolicyConfig(damping=1e-3, fisher_rows=10_000, cg_iterations=80)

    @jax.jit
    def divergence(policy, batch, radius):
        model = local_model(policy, batch, config)
        direction = model.solve(model.gradient(batch.reward_advantage))
        step = jnp.sqrt(2 * radius / (direction @ model.fisher(direction))) * direction
        undamped = model.fisher(step) - config.damping * step
        return model.evaluate(model.parameters + step).kl, step @ undamped / 2

    exact, quadratic = divergence(policy, batch, 1e-5)
    assert float(quadratic) <= 1.001e-5
    assert float(exact) == pytest.approx(float(quadratic), rel=0.1)


@jax.jit
def search(policy, batch, size, radius):
    """What backtracking from a step along the gradient finds, and the divergence one reduction earlier."""
    model = local_model(policy, batch, CONFIG)
    step = size * model.gradient(batch.reward_advantage)
    found = backtrack(model, step, lambda s: s.kl <= radius, CONFIG)
    before = model.evaluate(model.parameters + found[1] / CONFIG.shrink * step)
    return *found, before.kl, model.parameters, step


@pytest.mark.parametrize("case", ["accepted", "never", "not finite"])
def test_backtracking_stops_at_the_first_accepted_scale_and_stays_where_there_is_none(case):
    policy, batch = toy_batch()

    size, radius = {"accepted": (10.0, 0.01), "never": (10.0, -1.0), "not finite": (np.nan, 0.01)}[case]
    parameters, scale, surrogate, kl_before, old, step = search(policy, batch, np.float32(size), np.float32(radius))
    if case == "accepted":
        assert float(surrogate.kl) <= 0.01 < float(kl_before)
        np.testing.assert_allclose(parameters, old + scale * step, rtol=1e-6)
    else:
        np.testing.assert_array_equal(parameters, old)
        assert float(scale) == float(surrogate.kl) == 0.0


def test_subsets_are_solved_one_by_one():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 6))
    gram, target = rows @ rows.T, rng.normal(size=3)
    found = jax.jit(solve_subsets)(np.float32(gram), np.float32(target))
    for mask, solution in zip(active_sets(3), found, strict=True):
        expected = np.zeros(3)
        expected[mask] = np.linalg.solve(gram[np.ix_(mask, mask)], target[mask])
        np.testing.assert_allclose(solution, expected, rtol=1e-3, atol=1e-4)


def test_too_many_constraints_are_refused():
    with pytest.raises(ConfigError, match="9 constraints"):
        active_sets(9)
