"""TRPO-IPO's barrier: its gradient, its domain, and what replaces it where a limit is violated."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import CONTINUOUS, SPEC, compiled, toy_batch, toy_rollout

from awavo.algorithms.trpo_ipo import TrpoIpoConfig, barrier, objective, trpo_ipo
from awavo.algorithms.trust_region import Surrogate, local_model

CONFIG = TrpoIpoConfig(hidden=(8,), window=4, value_epochs=1, damping=0.0, fisher_rows=10_000)


@functools.cache
def comparison(spec, infeasible):
    """Slopes of the objective along some directions: ours, and by differences, for given slacks."""
    config = dataclasses.replace(CONFIG, infeasible=infeasible)
    policy, batch = toy_batch(spec)

    @jax.jit
    def compare(slack, directions):
        local = barrier(slack, batch.episode_length, config)
        model = local_model(policy, batch, config)
        ours = model.gradient(local.reward_weight * batch.reward_advantage - batch.cost_advantages @ local.cost_weights)
        size = 1e-2

        def difference(d):
            ahead, behind = (model.evaluate(model.parameters + s * size * d) for s in (1, -1))
            return (objective(local, ahead, config) - objective(local, behind, config)) / (2 * size)

        return directions @ ours, jax.vmap(difference)(directions)

    count = sum(x.size for x in jax.tree.leaves(policy))
    directions = np.random.default_rng(0).normal(size=(6, count)).astype(np.float32) / np.sqrt(np.float32(count))
    return lambda slack: compare(np.float32(slack), directions)


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("slack", [(2.0, 1.0), (-3.0, 1.0), (-1.0, -2.0)], ids=["inside", "one out", "both out"])
@pytest.mark.parametrize("infeasible", ["phase1", "penalty"])
def test_barrier_gradient_agrees_with_finite_differences(spec, slack, infeasible):
    ours, differences = comparison(spec, infeasible)(slack)
    np.testing.assert_allclose(ours, differences, rtol=0.02, atol=2e-3)


def test_objective_is_minus_infinity_beyond_a_limit_that_was_kept():
    local = barrier(jnp.asarray([2.0, 1.0]), jnp.asarray(10.0), CONFIG)
    crossing = Surrogate(jnp.asarray(5.0), jnp.asarray([0.0, 0.2]), jnp.asarray(0.0))
    inside = crossing._replace(costs=jnp.asarray([0.0, 0.05]))
    assert float(objective(local, crossing, CONFIG)) == -np.inf
    assert np.isfinite(float(objective(local, inside, CONFIG)))


def test_barrier_grows_towards_the_limit():
    weights = [float(barrier(jnp.asarray([s]), jnp.asarray(10.0), CONFIG).cost_weights[0]) for s in (4.0, 1.0, 0.1)]
    np.testing.assert_allclose(weights, [10 / (20 * s) for s in (4.0, 1.0, 0.1)], rtol=1e-5)


@pytest.mark.parametrize("costs", [(4.0, 4.9), (9.0, 4.9)], ids=["feasible", "violated"])
def test_line_search_leaves_slack(costs):
    config = TrpoIpoConfig(num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1)
    programs = compiled(trpo_ipo, config)
    after, info = programs.learn(jax.random.key(1), programs.state, toy_rollout(costs=costs))
    assert float(info.kl) <= config.max_kl
    assert float(info.feasible) == float(costs[0] < 5.5)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(after))
