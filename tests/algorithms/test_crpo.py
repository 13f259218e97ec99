"""CRPO's switch: which branch, which constraint, and that the step does what the branch asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SPEC, compiled, toy_rollout

from awavo.algorithms.crpo import CrpoConfig, choose_constraint, crpo

CONFIG = CrpoConfig(num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1)


@pytest.mark.parametrize(("total", "feasible"), [(5.4, 1.0), (5.6, 0.0)])
def test_limit_is_compared_with_the_tolerance_on_undiscounted_totals(total, feasible):
    _, state, _, learn = compiled(crpo, CONFIG)
    after, info = learn(jax.random.key(1), state, toy_rollout(costs=(0.0, total)))
    assert float(info.feasible) == feasible
    assert (int(after.num_reward_updates), int(after.num_rectified_updates)) == (int(feasible), 1 - int(feasible))
    np.testing.assert_allclose(info.cost_estimate, [0.0, total], rtol=1e-6)


@pytest.mark.parametrize("branch", ["feasible", "violated"])
def test_step_follows_the_branch(branch):
    """Action 1 earns more and costs more in the second constraint."""
    _, state, _, learn = compiled(crpo, CONFIG)
    rollout = toy_rollout(costs=(0.0, 0.0 if branch == "feasible" else 100.0))
    bonus = (rollout.action == 1).astype(np.float32)
    rollout = rollout._replace(reward=bonus, costs=np.stack([0 * bonus, bonus], -1), obs=0 * rollout.obs)
    rollout = rollout._replace(next_obs=rollout.obs)
    log_probs = jax.jit(lambda policy: policy(jnp.zeros((1, SPEC.obs_dim))).log_probs()[0])
    after, info = learn(jax.random.key(1), state, rollout)
    change = float(log_probs(after.policy)[1]) - float(log_probs(state.policy)[1])
    assert change > 0.02 if branch == "feasible" else change < -0.02
    assert 0 < float(info.kl) <= CONFIG.max_kl


def test_choice_among_the_violated():
    totals, limits = jnp.asarray([12.0, 60.0, 99.0]), jnp.asarray([5.0, 50.0, 100.0])
    violated = totals > limits
    key = jax.random.key(0)
    choose = jax.jit(choose_constraint, static_argnums=4)
    assert int(choose(key, totals, limits, violated, "largest")) == 0
    assert int(choose(key, totals, limits, jnp.asarray([False, True, True]), "first")) == 1
    drawn = {int(choose(jax.random.key(seed), totals, limits, violated, "random")) for seed in range(30)}
    assert drawn == {0, 1}
