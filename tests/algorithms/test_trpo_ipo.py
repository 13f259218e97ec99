"""TRPO-IPO's barrier: its gradient, its domain, and what replaces it where a limit is violated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onpolicy_data import CONTINUOUS, SPEC, toy_batch, toy_rollout

from awavo.algorithms.trpo_ipo import barrier, objective, trpo_ipo
from awavo.algorithms.trust_region import Surrogate, local_model
from awavo.baseline_configs import TrpoIpoConfig

CONFIG = TrpoIpoConfig(hidden=(8,), window=4, value_epochs=1, damping=0.0, fisher_rows=10_000)


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("slack", [(2.0, 1.0), (-3.0, 1.0), (-1.0, -2.0)], ids=["inside", "one out", "both out"])
@pytest.mark.parametrize("infeasible", ["phase1", "penalty"])
def test_barrier_gradient_agrees_with_finite_differences(spec, slack, infeasible):
    config = dataclasses.replace(CONFIG, infeasible=infeasible)
    policy, batch = toy_batch(spec)

    @jax.jit
    def compare(policy, batch, directions):
        local = barrier(jnp.asarray(slack), batch.episode_length, config)
        model = local_model(policy, batch, config)
        ours = model.gradient(local.reward_weight * batch.reward_advantage - batch.cost_advantages @ local.cost_weights)
        size = 1e-2

        def difference(d):
            ahead, behind = (model.evaluate(model.parameters + s * size * d) for s in (1, -1))
            return (objective(local, ahead, config) - objective(local, behind, config)) / (2 * size)

        return directions @ ours, jax.vmap(difference)(directions)

    count = sum(x.size for x in jax.tree.leaves(policy))
    directions = jax.random.normal(jax.random.key(0), (6, count)) / np.sqrt(count)
    ours, differences = compare(policy, batch, directions)
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
    algorithm = trpo_ipo(SPEC, dataclasses.replace(CONFIG, damping=0.01, max_kl=0.05))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    rollout = toy_rollout(algorithm, state, costs=costs, envs=16)
    after, info = jax.jit(algorithm.learn)(jax.random.key(1), state, rollout)
    assert float(info.kl) <= 0.05
    assert float(info.feasible) == float(costs[0] < 5.5)
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(after))
