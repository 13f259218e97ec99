"""CRPO's switch: which branch, which constraint, and that the step does what the branch asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onpolicy_data import SPEC, toy_rollout

from awavo.algorithms.crpo import choose_constraint, crpo
from awavo.baseline_configs import CrpoConfig

CONFIG = CrpoConfig(hidden=(8,), window=4, value_epochs=1)


@pytest.fixture(scope="module")
def learner():
    algorithm = crpo(SPEC, CONFIG)
    return algorithm, jax.jit(algorithm.init)(jax.random.key(0)), jax.jit(algorithm.learn)


@pytest.mark.parametrize(("total", "feasible"), [(5.4, 1.0), (5.6, 0.0)])
def test_limit_is_compared_with_the_tolerance_on_undiscounted_totals(learner, total, feasible):
    algorithm, state, learn = learner
    after, info = learn(jax.random.key(1), state, toy_rollout(algorithm, state, costs=(0.0, total), envs=32))
    assert float(info.feasible) == feasible
    assert (int(after.num_reward_updates), int(after.num_rectified_updates)) == (int(feasible), 1 - int(feasible))
    np.testing.assert_allclose(info.cost_estimate, [0.0, total], rtol=1e-6)


@pytest.mark.parametrize("branch", ["feasible", "violated"])
def test_step_follows_the_branch(learner, branch):
    """Action 1 earns more and costs more in the second constraint."""
    algorithm, state, learn = learner
    rollout = toy_rollout(algorithm, state, costs=(0.0, 0.0 if branch == "feasible" else 100.0), steps=8, envs=32)
    bonus = (rollout.action == 1).astype(jnp.float32)
    rollout = rollout._replace(reward=bonus, costs=jnp.stack([0 * bonus, bonus], -1), obs=0 * rollout.obs)
    rollout = rollout._replace(next_obs=rollout.obs)
    before = state.policy(jnp.zeros((1, 3))).log_probs()[0]
    after, info = learn(jax.random.key(1), state, rollout)
    change = float((after.policy(jnp.zeros((1, 3))).log_probs()[0] - before)[1])
    assert change > 0.02 if branch == "feasible" else change < -0.02
    assert 0 < float(info.kl) <= CONFIG.max_kl


def test_choice_among_the_violated():
    totals, limits = jnp.asarray([12.0, 60.0, 99.0]), jnp.asarray([5.0, 50.0, 100.0])
    violated = totals > limits
    key = jax.random.key(0)
    assert int(choose_constraint(key, totals, limits, violated, "largest")) == 0
    assert int(choose_constraint(key, totals, limits, jnp.asarray([False, True, True]), "first")) == 1
    drawn = {int(choose_constraint(k, totals, limits, violated, "random")) for k in jax.random.split(key, 30)}
    assert drawn == {0, 1}
