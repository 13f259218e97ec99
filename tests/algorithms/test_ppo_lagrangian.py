"""PPO-Lagrangian: the clip, the multipliers by Adam, and when passes end."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from toys import compiled, moved, toy_rollout

from awavo.algorithms.ppo_lagrangian import (
    PpoLagrangianConfig,
    adam_multipliers,
    clipped_surrogate,
    ppo_lagrangian,
)
from awavo.config import TrainConfig, config_from_mapping
from awavo.runs.problem import resolve_config

SMALL = dict(num_envs=32, rollout_length=8, hidden=(8,), window=4, value_epochs=1, epochs=3, batch_size=32)


def test_beyond_the_clip_there_is_no_gradient_and_behind_it_there_is():
    """A gain counts up to the clip only; a loss counts wherever it is."""
    ratio = np.float32([1.3, 1.1, 0.5, 0.7, 1.5, 0.9])
    advantage = np.float32([2.0, 2.0, 2.0, -3.0, -3.0, -3.0])
    value, slope = jax.value_and_grad(lambda r: clipped_surrogate(r, advantage, 0.2).sum())(ratio)
    np.testing.assert_allclose(slope, [0.0, 2.0, 2.0, 0.0, -3.0, -3.0])
    np.testing.assert_allclose(value, 2 * (1.2 + 1.1 + 0.5) - 3 * (0.8 + 1.5 + 0.9), rtol=1e-6)


def test_adam_moves_multipliers_by_hand_and_never_below_zero():
    rate, optimizer = 0.035, optax.adam(0.035)
    multipliers = jnp.float32([0.001, 0.001])
    opt = optimizer.init(multipliers)
    mean, square, wanted = np.zeros(2), np.zeros(2), np.full(2, 0.001)
    for step, excess in enumerate(np.float32([[10.0, -5.0], [2.0, 4.0], [-30.0, 1.0]]), 1):
        multipliers, opt = adam_multipliers(optimizer, opt, multipliers, jnp.asarray(excess))
        mean, square = 0.9 * mean + 0.1 * excess, 0.999 * square + 0.001 * excess**2
        step_size = rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        wanted = np.maximum(wanted + step_size, 0.0)
        np.testing.assert_allclose(multipliers, wanted, rtol=1e-4, atol=1e-7)
    assert wanted[1] > 0


def test_multipliers_move_where_an_episode_ended_and_passes_stop_at_the_divergence():
    programs = compiled(ppo_lagrangian, PpoLagrangianConfig(**SMALL, policy_lr=0.05, target_kl=0.0))
    start, rollout = programs.state, toy_rollout(costs=(10.0, 1.0))
    after, info = programs.learn(jax.random.key(1), start, rollout)
    np.testing.assert_allclose(info.multiplier, [0.036, 0.0], atol=1e-6)
    np.testing.assert_allclose(info.step_scale, 1 / 3)
    assert float(info.kl) > 0
    assert min(moved(start.policy, after.policy)) > 0

    running = rollout._replace(truncated=rollout.truncated & False)
    again, info = programs.learn(jax.random.key(2), after, running)
    np.testing.assert_array_equal(info.multiplier, after.multipliers)
    assert max(moved(after.multiplier_opt, again.multiplier_opt)) == 0


def test_the_policy_takes_up_what_pays_unless_its_cost_is_too_dear():
    """Action 0 pays and costs: it becomes likelier without a multiplier, and less likely under a large one."""
    config = PpoLagrangianConfig(**{**SMALL, "epochs": 10}, policy_lr=0.01, multiplier="pid", ki=0.0)
    programs = compiled(ppo_lagrangian, config)
    rollout = toy_rollout(costs=0.0)
    first = (rollout.action == 0).astype(np.float32)
    rollout = rollout._replace(reward=first, costs=np.stack([first, 0 * first], -1))
    chance = {}
    for dear in (0.0, 50.0):
        controller = programs.state.controller._replace(integral=jnp.full(2, dear))
        after, info = programs.learn(jax.random.key(1), programs.state._replace(controller=controller), rollout)
        np.testing.assert_allclose(info.multiplier, dear)
        chance[dear] = float(jnp.exp(after.policy(rollout.obs.reshape(-1, 3)).log_probs())[:, 0].mean())
    assert chance[50.0] < 0.3 < 0.37 < chance[0.0]


def test_omnisafe_preset_has_its_first_spread():
    """Its actor's log standard deviation begins at 0, which no file of its settings says."""
    train = TrainConfig(task="navigation", algo="ppo-lagrangian", preset="omnisafe")
    options = resolve_config(train).algo_options
    assert config_from_mapping(PpoLagrangianConfig, options, "ppo-lagrangian").log_std == 0.0
