"""What must hold for ORPO-DR to learn at all; each test fails for one known way of not learning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.algorithms.orpo_dr import orpo_dr
from awavo.config import OrpoDrConfig
from awavo.types import Box, Discrete, EnvSpec, Rollout

SPEC = EnvSpec("toy", 3, Discrete(2), 10, ("a", "b"), (5.0, 5.0))
CONTINUOUS = SPEC._replace(action_space=Box((-1.0, -2.0), (1.0, 2.0)))
CONFIG = OrpoDrConfig(num_envs=4, rollout_length=8, num_updates=8, batch_size=32, hidden=(16,), num_quantiles=4,
                      replay_capacity=64, warmup_steps=0, window=4)  # fmt: skip


def toy_rollout(seed=0, spec=SPEC, costs=0.0, terminated=False, truncated=False, steps=8, envs=4):
    """Random transitions; every environment ends an episode in the last step with the given undiscounted cost."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(steps, envs, 3)).astype(np.float32)
    if isinstance(spec.action_space, Discrete):
        action = rng.integers(0, 2, (steps, envs)).astype(np.int32)
    else:
        action = rng.uniform(-1, 1, (steps, envs, 2)).astype(np.float32)
    last = np.zeros((steps, envs), bool)
    last[-1] = True
    flags = np.zeros((steps, envs), bool)
    episode_costs = np.broadcast_to(np.asarray(costs, np.float32), (steps, envs, 2))
    length = np.full((steps, envs), steps, np.int32)
    reward = rng.normal(size=(steps, envs)).astype(np.float32)
    step_costs = rng.uniform(size=(steps, envs, 2)).astype(np.float32)
    return jax.tree.map(jnp.asarray, Rollout(
        obs, action, (), reward, step_costs, last if terminated else flags, last if truncated or not terminated else
        flags, obs + 1, reward, episode_costs, length,
    ))  # fmt: skip


def moved(before, after):
    return max(
        float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("rectify", ["posterior", "hard"])
@pytest.mark.parametrize("costs", [0.0, 100.0], ids=["feasible", "violated"])
def test_gradient_reaches_every_layer_of_actor_and_critic(spec, rectify, costs):
    config = dataclasses.replace(CONFIG, rectify=rectify, entropy=0.0)
    algorithm = orpo_dr(spec, config)
    state = algorithm.init(jax.random.key(0))
    after, _ = algorithm.learn(jax.random.key(1), state, toy_rollout(spec=spec, costs=costs))
    for name in ("actor", "critic"):
        before_net, after_net = getattr(state.learner, name).net, getattr(after.learner, name).net
        for b, a in zip(jax.tree.leaves(before_net), jax.tree.leaves(after_net), strict=True):
            assert float(jnp.abs(a - b).max()) > 1e-6, name
    assert moved(state.learner.target_critic, after.learner.target_critic) > 0
    assert moved(state.learner.average_actor, after.learner.average_actor) > 0


@pytest.mark.parametrize("branch", ["feasible", "violated"])
def test_actor_prefers_what_the_branch_asks_for(branch):
    """Action 1 earns more and costs more: feasible, it becomes likelier; violated under `hard`, less likely."""
    algorithm = orpo_dr(
        SPEC, dataclasses.replace(CONFIG, rectify="hard", num_updates=200, actor_lr=1e-2, critic_lr=1e-2, discount=0.0)
    )
    state = algorithm.init(jax.random.key(0))
    rollout = toy_rollout(costs=0.0 if branch == "feasible" else 100.0)
    bonus = rollout.action.astype(jnp.float32)
    rollout = rollout._replace(reward=bonus, costs=jnp.stack([bonus, bonus], -1))
    state, _ = algorithm.learn(jax.random.key(1), state, rollout)
    logits = state.learner.actor(jnp.zeros((1, 3))).logits[0]
    assert (logits[1] > logits[0] + 0.5) if branch == "feasible" else (logits[0] > logits[1] + 0.5)


def test_truncation_bootstraps_and_termination_does_not():
    """Reward 1 in a one-state world is worth 1 / (1 - gamma) through time limits, 1 where steps terminate."""
    config = dataclasses.replace(CONFIG, discount=0.9, num_updates=1500, critic_lr=3e-3, polyak=0.05, value_scale=5.0)
    values = {}
    for kind in ("terminated", "truncated"):
        algorithm = orpo_dr(SPEC, config)
        rollout = toy_rollout()
        obs, ones = jnp.zeros_like(rollout.obs), jnp.ones_like(rollout.reward)
        flags = jnp.ones_like(rollout.terminated)
        rollout = rollout._replace(
            obs=obs,
            next_obs=obs,
            reward=ones,
            terminated=flags & (kind == "terminated"),
            truncated=flags & (kind == "truncated"),
        )
        state, _ = algorithm.learn(jax.random.key(1), algorithm.init(jax.random.key(0)), rollout)
        critic = state.learner.critic
        values[kind] = float(critic.all_actions(jnp.zeros((1, 3)))[..., 0, :].mean())
    assert values["terminated"] == pytest.approx(1.0, abs=0.2)
    assert values["truncated"] == pytest.approx(10.0, rel=0.15)


def test_constraint_estimate_is_the_mean_undiscounted_total_of_the_last_episodes():
    algorithm = orpo_dr(SPEC, CONFIG)
    state = algorithm.init(jax.random.key(0))
    for total in (1.0, 3.0):
        state, info = algorithm.learn(jax.random.key(1), state, toy_rollout(costs=(total, 10 * total)))
    # The window holds four episodes: those of the second rollout alone.
    np.testing.assert_allclose(info.cost_estimate, [3.0, 30.0])
    assert float(info.feasible) == 0.0
    assert int(info.num_rectified_updates) == 2 * CONFIG.num_updates


def test_limit_is_compared_with_the_tolerance():
    for total, feasible in ((5.4, 1.0), (5.6, 0.0)):
        algorithm = orpo_dr(SPEC, CONFIG)
        _, info = algorithm.learn(jax.random.key(1), algorithm.init(jax.random.key(0)), toy_rollout(costs=(total, 0.0)))
        assert float(info.feasible) == feasible


def test_posterior_weights_rise_when_violated_and_sink_slower_when_not():
    algorithm = orpo_dr(SPEC, dataclasses.replace(CONFIG, weight_growth=0.1, weight_decay=0.02))
    state = algorithm.init(jax.random.key(0))
    state, _ = algorithm.learn(jax.random.key(1), state, toy_rollout(costs=(100.0, 0.0)))
    np.testing.assert_allclose(state.cost_weights, [0.2 * 1.1, 0.2 / 1.02], rtol=1e-5)


def test_hard_rectification_is_the_letter_of_the_algorithm():
    algorithm = orpo_dr(SPEC, dataclasses.replace(CONFIG, rectify="hard"))
    state = algorithm.init(jax.random.key(0))
    _, feasible = algorithm.learn(jax.random.key(1), state, toy_rollout(costs=0.0))
    _, violated = algorithm.learn(jax.random.key(1), state, toy_rollout(costs=(0.0, 100.0)))
    np.testing.assert_array_equal(feasible.cost_weight, [0.0, 0.0])
    np.testing.assert_array_equal(violated.cost_weight, [0.0, 1.0])


def test_non_finite_update_keeps_the_old_state_and_is_counted():
    algorithm = orpo_dr(SPEC, CONFIG)
    state = algorithm.init(jax.random.key(0))
    rollout = toy_rollout()
    rollout = rollout._replace(reward=rollout.reward.at[:, :].set(jnp.nan))
    after, info = algorithm.learn(jax.random.key(1), state, rollout)
    assert moved(state.learner, after.learner) == 0.0
    assert int(info.skipped_updates) == CONFIG.num_updates


def test_no_update_before_the_warm_up_ends():
    algorithm = orpo_dr(SPEC, dataclasses.replace(CONFIG, warmup_steps=33))
    state = algorithm.init(jax.random.key(0))
    first, _ = algorithm.learn(jax.random.key(1), state, toy_rollout())
    second, _ = algorithm.learn(jax.random.key(1), first, toy_rollout())
    assert moved(state.learner, first.learner) == 0.0
    assert moved(first.learner, second.learner) > 0.0


def test_values_beyond_the_bounds_are_clipped_and_counted():
    algorithm = orpo_dr(SPEC, dataclasses.replace(CONFIG, discount=0.5, value_scale=1e4))
    state = algorithm.init(jax.random.key(0))
    _, info = algorithm.learn(jax.random.key(1), state, toy_rollout())
    assert float(info.clip_rate) > 0.5


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])
def test_actions_are_legal_and_greedy_ones_repeat(spec):
    algorithm = orpo_dr(spec, CONFIG)
    state = algorithm.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (50, 3))
    action, _ = algorithm.act(jax.random.key(2), state, obs, False)
    if isinstance(spec.action_space, Discrete):
        assert set(np.unique(action)) == {0, 1}
    else:
        assert np.all(np.abs(action) <= np.array([1.0, 2.0]))
    greedy = [algorithm.act(jax.random.key(k), state, obs, True)[0] for k in (3, 4)]
    np.testing.assert_array_equal(*greedy)
