"""Soft actor-critic with costs: targets by hand, every part learns, warm-up, prices that turn the actor round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_protocol import parts
from toys import CONTINUOUS, SPEC, compiled, moved, toy_rollout

from awavo.algorithms.cal import CalConfig, cal
from awavo.algorithms.sac_lagrangian import SacLagrangianConfig, pid_prices, sac_lagrangian
from awavo.algorithms.soft_actor_critic import soft_targets
from awavo.cli.main import main
from awavo.errors import ConfigError
from awavo.types import Box, EnvSpec

SMALL = dict(num_envs=32, rollout_length=8, hidden=(8,), batch_size=32, replay_capacity=512, warmup_steps=256, window=4)
METHODS = {"sac-lagrangian": (sac_lagrangian, SacLagrangianConfig), "cal": (cal, CalConfig)}
BANDIT = EnvSpec("bandit", 3, Box((-1.0,), (1.0,)), 1, ("a",), (0.5,))


def small(name, **options):
    factory, kind = METHODS[name]
    return factory, kind(**{**SMALL, "update_ratio": 16 / 256, **options})


def test_soft_targets_by_hand():
    """The lower twin less the entropy's share, nothing after an end, and for each cost's critic its own."""
    rng = np.random.default_rng(0)
    signals, ended = rng.normal(size=(5, 3)), np.array([False, True, False, False, True])
    values, costs, log_prob = rng.normal(size=(2, 5)), rng.normal(size=(4, 5, 2)), rng.normal(size=5)
    arrays = [np.float32(x) for x in (signals, values, costs, log_prob)]
    reward, found = soft_targets(arrays[0], ended, arrays[1], arrays[2], arrays[3], np.float32(0.3), 0.9)
    for row in range(5):
        later = 0.0 if ended[row] else 0.9
        wanted = signals[row, 0] + later * (min(values[0, row], values[1, row]) - 0.3 * log_prob[row])
        assert float(reward[row]) == pytest.approx(wanted, abs=1e-5)
        for member in range(4):
            own = signals[row, 1:] + later * costs[member, row]
            np.testing.assert_allclose(found[member, row], own, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_every_head_learns_after_the_warm_up_and_nothing_before(name):
    programs = compiled(*parts(name), CONTINUOUS)  # those of test_protocol.py
    start = programs.state
    waiting, _ = programs.learn(jax.random.key(0), start, toy_rollout(CONTINUOUS, costs=9.0))
    assert max(moved(start.learner, waiting.learner)) == 0
    after, _ = programs.learn(jax.random.key(1), waiting, toy_rollout(CONTINUOUS, seed=1, costs=9.0))
    old, new = start.learner, after.learner
    for part in ("actor", "critic", "cost_critic", "target_critic", "target_cost_critic", "log_alpha", "dual"):
        assert min(moved(getattr(old, part), getattr(new, part))) > 0, part
    # Each twin, each member and each cost has numbers of its own.
    for critic in (new.critic, new.cost_critic):
        weight = np.asarray(jax.tree.leaves(critic)[-1])
        assert len({float(x) for x in weight.reshape(-1)}) == weight.size
    bad = toy_rollout(CONTINUOUS, seed=2)
    bad.reward[-1] = np.nan
    broken, info = programs.learn(jax.random.key(2), after, bad)
    assert float(info.skipped_updates) == 4
    assert max(moved(new, broken.learner)) == 0


def test_targets_are_averaged_once_in_so_many_gradient_steps_however_few_a_rollout_has():
    factory, config = small("cal", update_ratio=1 / 256, warmup_steps=0, target_every=3)
    programs = compiled(factory, config, BANDIT)
    state, averaged = programs.state, []
    for seed in range(6):
        before = state.learner.target_critic
        state, _ = programs.learn(jax.random.key(seed), state, toy_rollout(BANDIT, seed=seed))
        averaged.append(max(moved(before, state.learner.target_critic)) > 0)
    assert averaged == [True, False, False, True, False, False]


def test_actions_are_random_before_the_warm_up_ends():
    programs = compiled(*parts("sac-lagrangian"), CONTINUOUS)
    obs = np.zeros((2000, 3), np.float32)
    action = np.asarray(programs.act(jax.random.key(3), programs.state, obs, False)[0])
    # Uniform in the box, whose second side is [-2, 2].
    np.testing.assert_allclose(action.std(0), np.array([2, 4]) / np.sqrt(12), rtol=0.05)
    np.testing.assert_allclose(np.abs(action).max(0), [1, 2], rtol=0.02)
    state = programs.state._replace(replay=programs.state.replay._replace(added=jnp.int32(512)))
    later = np.asarray(programs.act(jax.random.key(3), state, obs, False)[0])
    assert np.abs(later.std(0) - action.std(0)).min() > 0.05


def test_pid_multipliers_count_episodes_and_wait_for_them():
    prices = pid_prices(SPEC, SacLagrangianConfig(ki=0.1, kp=0.5, kd=0.2))
    start = prices.init()
    waited = prices.observe(start, jnp.float32([50.0, 50.0]), jnp.int32(0), jnp.int32(0))
    np.testing.assert_array_equal(waited.multipliers, [0.0, 0.0])
    # e = (10 - 5) / 5 = 1 and -0.2, three episodes at once; then e = 0.6 falls: no derivative part.
    dual = prices.observe(waited, jnp.float32([10.0, 4.0]), jnp.int32(3), jnp.int32(0))
    np.testing.assert_allclose(dual.multipliers, [0.3 + 0.5 + 0.2, 0.0], atol=1e-6)
    dual = prices.observe(dual, jnp.float32([8.0, 4.0]), jnp.int32(1), jnp.int32(0))
    np.testing.assert_allclose(dual.multipliers, [0.36 + 0.3, 0.0], atol=1e-6)
    _, price, divisor = prices.prices(dual, jnp.zeros((3, 2)))
    np.testing.assert_allclose([*price, divisor], [0.66, 0.0, 1.66], atol=1e-6)


def test_multipliers_wait_for_their_warm_up():
    prices = pid_prices(SPEC, SacLagrangianConfig(ki=0.1, kp=0.5, kd=0.0, multiplier_warmup=1000))
    excess, ended = jnp.float32([10.0, 4.0]), jnp.int32(3)
    waiting = prices.observe(prices.init(), excess, ended, jnp.int32(999))
    np.testing.assert_array_equal([*waiting.multipliers, *waiting.controller.integral], np.zeros(4))
    np.testing.assert_allclose(
        prices.observe(waiting, excess, ended, jnp.int32(1000)).multipliers, [0.8, 0.0], atol=1e-6
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_price_turns_the_actor_round(name):
    """One step an episode: the reward is the action and its cost grows with it."""
    options = {"ki": 0.0, "kp": 0.0, "kd": 0.0} if name == "sac-lagrangian" else {"penalty": 0.0, "multiplier_lr": 0.0}
    factory, config = small(name, update_ratio=1.0, actor_lr=0.01, critic_lr=0.01, cost_critic_lr=0.01, **options)
    programs = compiled(factory, config, BANDIT)
    rollout = toy_rollout(BANDIT, terminated=True)
    push = rollout.action[..., 0]
    rollout = rollout._replace(reward=push, costs=rollout.action + 1, terminated=np.ones_like(rollout.terminated))
    chosen = []
    for price in (1e-6, 20.0):
        dual = programs.state.learner.dual
        if name == "cal":
            dual = dual._replace(log_multipliers=jnp.log(jnp.full(1, price)))
        else:
            dual = dual._replace(controller=dual.controller._replace(integral=jnp.full(1, price)))
        state = programs.state._replace(learner=programs.state.learner._replace(dual=dual))
        after, info = programs.learn(jax.random.key(0), state, rollout)
        np.testing.assert_allclose(info.multiplier, price, rtol=1e-5)
        chosen.append(float(np.mean(programs.act(jax.random.key(1), after, rollout.obs.reshape(-1, 3), True)[0])))
    assert chosen[1] < -0.3 < 0.3 < chosen[0]


@pytest.mark.parametrize("name", METHODS)
def test_discrete_actions_are_refused_in_one_line(name, tmp_path, capsys):
    factory, config = small(name)
    with pytest.raises(ConfigError, match=f"{name} needs continuous actions, but task 'toy' has 3 discrete ones"):
        factory(SPEC, config)
    assert main(["train", "cartpole", "--algo", name, "--steps", "256", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "use ppo-lagrangian" in line
    assert not list(tmp_path.iterdir())
