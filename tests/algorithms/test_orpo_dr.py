"""What must hold for ORPO-DR to learn at all; each test fails for one known way of not learning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from toys import CONTINUOUS, compiled, toy_rollout

from awavo.algorithms import constraints
from awavo.algorithms.exploration import greedy_environments
from awavo.algorithms.orpo_dr import OrpoDrConfig, entropy_target, orpo_dr, orpo_dr_parts
from awavo.networks.normalizer import TAILS
from awavo.training.compilation import jit_once
from awavo.types import Discrete

SPEC = toys.SPEC._replace(action_space=Discrete(2))
CONFIG = OrpoDrConfig(num_envs=32, rollout_length=8, num_updates=8, batch_size=32, hidden=(16,), num_quantiles=4,
                      num_critics=2, backup_steps=1, replay_capacity=256, warmup_steps=1)  # fmt: skip
HARD = dataclasses.replace(
    CONFIG,
    num_critics=1,
    rectify="hard",
    operator="log",
    tolerance=0.5,
    margin=0.0,
    num_updates=200,
    actor_lr=1e-2,
    critic_lr=1e-2,
    discount=0.0,
)


def moved(before, after):
    return max(toys.moved(before, after))


@pytest.mark.parametrize(
    ("spec", "config"), [(SPEC, CONFIG), (SPEC, HARD), (CONTINUOUS, CONFIG)], ids=["posterior", "hard", "continuous"]
)
@pytest.mark.parametrize("costs", [0.0, 100.0], ids=["feasible", "violated"])
def test_gradient_reaches_every_layer_of_actor_and_critic(spec, config, costs):
    programs = compiled(orpo_dr, config, spec)
    before, after = (
        programs.state.learner,
        programs.learn(jax.random.key(1), programs.state, toy_rollout(spec, costs=costs))[0].learner,
    )
    assert min(toys.moved(before.actor.net, after.actor.net)) > 1e-6
    critics = (getattr(learner.critic, "members", learner.critic).net for learner in (before, after))
    assert min(toys.moved(*critics)) > 1e-6
    assert moved(before.target_critic, after.target_critic) > 0
    assert moved(before.average_actor, after.average_actor) > 0


@pytest.mark.parametrize("branch", ["feasible", "violated"])
def test_actor_prefers_what_the_branch_asks_for(branch):
    """Action 1 earns more and costs more: feasible, it becomes likelier; violated under `hard`, less likely."""
    programs = compiled(orpo_dr, HARD, SPEC)
    rollout = toy_rollout(SPEC, costs=0.0 if branch == "feasible" else 100.0)
    bonus = rollout.action.astype(np.float32)
    cost = bonus if branch == "feasible" else 10 * bonus
    rollout = rollout._replace(reward=bonus, costs=np.stack([cost, cost], -1))
    state, _ = programs.learn(jax.random.key(1), programs.state, rollout)
    logits = np.asarray(jax.jit(lambda actor: actor(jnp.zeros((1, 3))).logits[0])(state.learner.actor))
    assert (logits[1] > logits[0] + 0.5) if branch == "feasible" else (logits[0] > logits[1] + 0.5)


def test_truncation_bootstraps_and_termination_does_not():
    """Reward 1 in a one-state world is worth 1 / (1 - gamma) through time limits, 1 where steps terminate."""
    config = dataclasses.replace(
        CONFIG, num_critics=1, discount=0.9, num_updates=1500, critic_lr=1e-2, polyak=0.05, backup_steps=3
    )
    programs = compiled(orpo_dr, config, SPEC)
    at, action = jnp.zeros((2, 3)), jnp.array([0, 1])
    value = jax.jit(lambda state: programs.algorithm.critics.quantiles(state, at, action)[:, 0].mean())
    values = {}
    for kind in ("terminated", "truncated"):
        rollout = toy_rollout(SPEC)
        obs, flags = np.zeros_like(rollout.obs), np.ones_like(rollout.terminated)
        rollout = rollout._replace(
            obs=obs,
            next_obs=obs,
            reward=np.ones_like(rollout.reward),
            terminated=flags & (kind == "terminated"),
            truncated=flags & (kind == "truncated"),
        )
        state, _ = programs.learn(jax.random.key(1), programs.state, rollout)
        values[kind] = float(value(state))
    assert values["terminated"] == pytest.approx(1.0, abs=0.2)
    assert values["truncated"] == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("kind", ["larger", "small", "hard"])
def test_in_a_larger_task_to_fall_is_no_way_to_keep_a_limit(kind):
    """Where every step earns 1, costs 1 and terminates, the cost is as if it went on, and the reward is not."""
    spec = SPEC if kind == "small" else SPEC._replace(obs_dim=14)
    config = dataclasses.replace(
        CONFIG, num_critics=1, discount=0.9, num_updates=1500, critic_lr=1e-2, polyak=0.05,
        rectify="hard" if kind == "hard" else "posterior",
    )  # fmt: skip
    programs = compiled(orpo_dr, config, spec)
    rollout = toy_rollout(spec, terminated=True)
    obs, ones = np.zeros_like(rollout.obs), np.ones_like(rollout.terminated)
    rollout = rollout._replace(
        obs=obs, next_obs=obs, reward=np.ones_like(rollout.reward), costs=np.ones_like(rollout.costs),
        terminated=ones, truncated=~ones, episode_length=np.ones_like(rollout.episode_length),
    )  # fmt: skip
    state, _ = programs.learn(jax.random.key(1), programs.state, rollout)
    quantiles = jax.jit(programs.algorithm.critics.quantiles)
    earned, *cost = np.asarray(quantiles(state, obs[0, :2], jnp.array([0, 1]))).mean((0, 2))
    assert earned == pytest.approx(1.0, abs=0.2)
    np.testing.assert_allclose(cost, 10.0 if kind == "larger" else 1.0, rtol=0.15)


def test_limit_is_compared_with_the_tolerance_under_hard_rectification():
    _, state, _, learn = compiled(orpo_dr, HARD, SPEC)
    # The toy's episodes end after 8 of 10 steps; the estimate is of whole ones.
    for total, feasible in ((5.4, 1.0), (5.6, 0.0)):
        _, info = learn(jax.random.key(1), state, toy_rollout(SPEC, costs=(0.8 * total, 0.0)))
        assert float(info.feasible) == feasible


def test_weights_answer_the_error_and_only_that_of_the_violated():
    _, state, _, learn = compiled(orpo_dr, CONFIG, SPEC)
    state, info = learn(jax.random.key(1), state, toy_rollout(SPEC, costs=(100.0, 0.0)))
    integral = constraints.INTEGRAL * 8 / SPEC.horizon
    w = integral + constraints.PROPORTIONAL
    np.testing.assert_allclose(state.integral, [integral, 0.0], rtol=1e-5)
    np.testing.assert_allclose(info.cost_weight, [w / (1 + w), 0.0], rtol=1e-5)
    state, info = learn(jax.random.key(1), state, toy_rollout(SPEC, costs=0.0))
    assert float(info.cost_weight[0]) > 0  # the estimate remembers


def test_no_scale_of_rewards_and_costs_matters():
    """Signals and limits times 1,024, which floats hold exactly: the same policy, to the last bit."""
    policies, values = [], []
    for scale in (1.0, 1024.0):
        spec = SPEC._replace(cost_limits=tuple(scale * limit for limit in SPEC.cost_limits))
        programs = compiled(orpo_dr, CONFIG, spec)
        state = programs.state
        for i, costs in enumerate((30.0, 2.0, 30.0)):
            rollout = toy_rollout(SPEC, seed=i, costs=costs)
            scaled = {name: scale * getattr(rollout, name) for name in ("reward", "costs", "episode_costs")}
            state, _ = programs.learn(jax.random.key(i), state, rollout._replace(**scaled))
        policies.append(state.learner.actor)
        quantiles = jax.jit(programs.algorithm.critics.quantiles)
        values.append(np.asarray(quantiles(state, rollout.obs[0], rollout.action[0])) / np.float32(scale))
    assert moved(programs.state.learner.actor, policies[0]) > 0
    assert moved(*policies) == 0.0
    np.testing.assert_array_equal(*values)


def test_hard_rectification_is_the_letter_of_the_algorithm():
    _, state, _, learn = compiled(orpo_dr, HARD, SPEC)
    _, feasible = learn(jax.random.key(1), state, toy_rollout(SPEC, costs=0.0))
    _, violated = learn(jax.random.key(1), state, toy_rollout(SPEC, costs=(0.0, 100.0)))
    np.testing.assert_array_equal(feasible.cost_weight, [0.0, 0.0])
    np.testing.assert_array_equal(violated.cost_weight, [0.0, 1.0])


def test_non_finite_update_keeps_the_old_state_and_is_counted():
    _, state, _, learn = compiled(orpo_dr, CONFIG, SPEC)
    rollout = toy_rollout(SPEC)
    rollout.reward[:] = np.nan
    after, info = learn(jax.random.key(1), state, rollout)
    assert moved(state.learner, after.learner) == 0.0
    assert int(info.skipped_updates) == CONFIG.num_updates


LATE = dataclasses.replace(CONFIG, num_critics=1, warmup_steps=257, operator="log")


def test_no_update_before_the_warm_up_ends():
    _, state, _, learn = compiled(orpo_dr, LATE, SPEC)
    first, _ = learn(jax.random.key(1), state, toy_rollout(SPEC))
    second, _ = learn(jax.random.key(1), first, toy_rollout(SPEC))
    assert moved(state.learner, first.learner) == 0.0
    assert moved(first.learner, second.learner) > 0.0


def wild(state):
    """Critics whose values lie far outside of all returns."""
    critics = {name: jax.device_get(getattr(state.learner, name)) for name in ("critic", "target_critic")}
    far = jax.tree.map(lambda x: x + np.float32(3e4), critics)
    return state._replace(learner=state.learner._replace(**far))


def test_values_beyond_the_range_of_a_bounded_operator_are_clipped_and_counted():
    _, state, _, learn = compiled(orpo_dr, LATE, SPEC)
    for _ in range(2):
        state, info = learn(jax.random.key(1), wild(state), toy_rollout(SPEC))
    assert float(info.clip_rate) > 0.5


@pytest.mark.parametrize("spec", [SPEC, CONTINUOUS], ids=["discrete", "continuous"])
def test_actions_are_legal_and_greedy_ones_repeat(spec):
    _, state, act, _ = compiled(orpo_dr, CONFIG, spec)
    obs = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    action, _ = act(jax.random.key(2), state, obs, False)
    if isinstance(spec.action_space, Discrete):
        assert set(np.unique(action)) == {0, 1}
    else:
        assert np.all(np.abs(action) <= np.array([1.0, 2.0]))
    greedy = [act(jax.random.key(k), state, obs, True)[0] for k in (3, 4)]
    np.testing.assert_array_equal(*greedy)


def test_imagined_transitions_teach_the_critics():
    """Rows that a model adds, all worth 7 and final, pull the critics there."""
    config = dataclasses.replace(CONFIG, num_critics=1, num_updates=60, critic_lr=2e-2)
    parts = orpo_dr_parts(SPEC, config)

    def imagine(key, batch, policy):
        worth = jnp.full_like(batch.signals, 7.0)
        return batch._replace(signals=worth, terminated=jnp.ones_like(batch.terminated))

    rollout = toy_rollout(SPEC)
    state = jit_once(parts.init)(jax.random.key(0))
    mean = jax.jit(lambda state: parts.critics.quantiles(state, rollout.obs[0], rollout.action[0]).mean())
    after, _ = jax.jit(lambda s: parts.learn(jax.random.key(1), s, rollout, imagine))(state)
    assert float(mean(after)) > abs(float(mean(state))) + 1.5  # rewards of the rollout are about 0


def test_targets_stay_within_the_return_bounds():
    """Target critics far outside of what the signals allow add no more to the loss than the bounds are wide."""
    programs = compiled(orpo_dr, CONFIG, SPEC)
    far = wild(programs.state).learner.target_critic
    state = programs.state._replace(learner=programs.state.learner._replace(target_critic=far))
    loss = float(programs.learn(jax.random.key(1), state, toy_rollout(SPEC))[1].critic_loss)
    values = np.abs(jax.jit(lambda critic: critic.all_actions(jnp.zeros((1, 3))))(far)).max()
    assert loss < 0.1 * values


def test_both_cautious_critics_learn_and_the_pessimistic_one_speaks():
    programs = compiled(orpo_dr, CONFIG, CONTINUOUS)
    state, _ = programs.learn(jax.random.key(1), programs.state, toy_rollout(CONTINUOUS, costs=1.0))
    before, after = (s.learner.critic.members.net for s in (programs.state, state))
    for old, new in zip(*(jax.tree.leaves(jax.device_get(net)) for net in (before, after)), strict=True):
        assert np.abs(new - old).reshape(2, -1).max(1).min() > 1e-6
    obs, action = np.zeros((5, 3), np.float32), np.linspace(-1, 1, 5, dtype=np.float32)[:, None].repeat(2, 1)
    both = jax.jit(lambda critic: (critic.every(obs, action).mean(-1), critic(obs, action).mean(-1)))
    every, spoken = map(np.asarray, both(state.learner.critic))
    assert np.abs(every[0] - every[1]).min() > 0
    np.testing.assert_array_equal(spoken[:, 0], every[..., 0].min(0))
    np.testing.assert_array_equal(spoken[:, 1:], every[..., 1:].max(0))


def test_entropy_weight_follows_the_target():
    """One nat per dimension below that of a box of width 2; the weight grows where entropy lacks."""
    target = entropy_target(CONTINUOUS)
    assert target == pytest.approx(-2.0 + np.log(1.0) + np.log(2.0))
    assert entropy_target(SPEC) == pytest.approx(0.25 * np.log(2.0))
    programs = compiled(orpo_dr, CONFIG, CONTINUOUS)
    state, info = programs.learn(jax.random.key(1), programs.state, toy_rollout(CONTINUOUS, costs=0.0))
    expected = 0.1 * np.exp(0.1 * np.clip(target - float(info.entropy), -1, 1))
    np.testing.assert_allclose(state.entropy_weight, expected, rtol=1e-5)
    assert state.entropy_weight != pytest.approx(0.1)


def test_noise_is_the_policys_own_at_every_step():
    """Over many environments that explore each step's action is as drawn anew, whether its noise lasts or not."""
    programs = compiled(orpo_dr, CONFIG, CONTINUOUS)
    algorithm, envs = programs.algorithm, 4_000
    explore = jax.jit(algorithm.explore)
    obs = np.ones((envs, CONTINUOUS.obs_dim), np.float32)
    memory, drawn = algorithm.begin(envs), []
    for t in range(3):
        action, _, memory = explore(jax.random.key(t), programs.state, obs, memory)
        shares = np.clip(np.asarray(action) / np.asarray(CONTINUOUS.action_space.high), -0.99999, 0.99999)
        drawn.append(np.arctanh(shares)[~np.asarray(greedy_environments(envs))])
    dist = jax.device_get(jax.jit(lambda actor: actor(obs[:1]))(programs.state.learner.actor))
    for step in drawn:
        np.testing.assert_allclose(step.mean(0), dist.mean[0], atol=0.06)
        np.testing.assert_allclose(step.std(0), np.exp(dist.log_std[0]), rtol=0.06)
    assert compiled(orpo_dr, CONFIG, SPEC).algorithm.explore is None


def test_greedy_decisions_and_new_episodes_know_no_noise():
    programs = compiled(orpo_dr, CONFIG, CONTINUOUS)
    obs, fresh_memory = np.ones((3, CONTINUOUS.obs_dim), np.float32), jax.device_get(programs.algorithm.begin(3))
    memory, decide = 5 + fresh_memory, jax.jit(programs.algorithm.decide, static_argnums=4)
    action, _, kept = decide(jax.random.key(0), programs.state, obs, memory, True)
    np.testing.assert_array_equal(action, programs.act(jax.random.key(1), programs.state, obs, True)[0])
    np.testing.assert_array_equal(kept, memory)
    fresh, again = (decide(jax.random.key(3), programs.state, obs, fresh_memory, False)[0] for _ in range(2))
    np.testing.assert_array_equal(fresh, again)


def test_a_larger_task_answers_an_error_with_patience():
    spec = CONTINUOUS._replace(obs_dim=12)
    _, state, _, learn = compiled(orpo_dr, CONFIG, spec)
    # Three times the limit, in episodes that end after 8 of 10 steps; the aim keeps a margin of a tenth.
    state, _ = learn(jax.random.key(1), state, toy_rollout(spec, costs=0.8 * 3 * spec.cost_limits[0]))
    answer = float(state.integral[0]) / (constraints.INTEGRAL * 8 / spec.horizon)
    assert 0.38 < answer < 0.48  # 2 without slower gains, 0.2 if errors stopped at one, 1 without patience


def test_critics_of_a_larger_task_see_the_tails_of_its_own_data():
    spec = CONTINUOUS._replace(obs_dim=12)
    programs = compiled(orpo_dr, CONFIG, spec)
    learner, num_seen = programs.state.learner, 12 * (1 + len(TAILS))
    assert learner.actor.net.weights[0].shape[0] == 12
    first = np.asarray(learner.critic.members.net.weights[0])  # of the components, their tails, the actions
    assert first.shape[1] == num_seen + spec.action_space.dim
    assert not first[:, 12:num_seen].any()  # unheard at first
    assert (np.abs(first[:, :12]).max((0, 2)) > 0).all()
    assert (np.abs(first[:, num_seen:]).max((0, 2)) > 0).all()
    rollout = toy_rollout(spec)
    after, _ = programs.learn(jax.random.key(1), programs.state, rollout)
    drawn = np.percentile(rollout.obs.reshape(-1, 12), TAILS, axis=0)
    spread = np.std(rollout.obs.reshape(-1, 12), 0)
    assert np.abs(np.asarray(after.obs_stats.thresholds) - drawn)[2:4].max() < 0.3 * spread.max()
    assert min(toys.moved(programs.state.learner.actor.net, after.learner.actor.net)) > 1e-6
    assert np.abs(after.learner.critic.members.net.weights[0][:, 12:num_seen]).max() > 1e-6
