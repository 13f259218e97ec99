"""TRPO-Lagrangian's multipliers: dual ascent, the PID terms, clipping."""

import jax
import numpy as np
from toys import compiled, toy_rollout

from awavo.algorithms.multipliers import initial_controller, update_multipliers
from awavo.algorithms.trpo_lagrangian import TrpoLagrangianConfig, trpo_lagrangian


def run(excesses, **options):
    config = TrpoLagrangianConfig(**options)
    start = initial_controller(1, config)
    follow = jax.jit(lambda rows: jax.lax.scan(lambda c, e: update_multipliers(c, e, config), start, rows)[1])
    return follow(np.float32(excesses)[:, None])[:, 0]


def test_dual_ascent_adds_the_excess_and_stays_non_negative():
    np.testing.assert_allclose(run([1.0, 2.0, -1.0, -5.0], ki=0.1), [0.1, 0.3, 0.2, 0.0], atol=1e-6)


def test_pid_adds_the_excess_itself_and_only_its_rise():
    np.testing.assert_allclose(run([1.0, 3.0, 2.0], ki=0.0, kp=0.5, kd=1.0), [0.5 + 1, 1.5 + 2, 1.0], atol=1e-6)


def test_integral_does_not_wind_up():
    """After a long violation at the largest multiplier, relief is felt at once."""
    rows = run([10.0] * 50 + [-1.0], ki=1.0, multiplier_max=3.0)
    np.testing.assert_allclose(rows[-2:], [3.0, 2.0])


def test_multiplier_rises_where_a_limit_is_violated_only():
    config = TrpoLagrangianConfig(num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1)
    programs = compiled(trpo_lagrangian, config)
    after, info = programs.learn(jax.random.key(1), programs.state, toy_rollout(costs=(10.0, 1.0)))
    np.testing.assert_allclose(info.multiplier, [config.ki, 0.0])
    np.testing.assert_allclose(after.controller.integral, [config.ki, 0.0])


def test_an_excess_is_not_counted_again_until_an_episode_ends():
    config = TrpoLagrangianConfig(
        num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1, multiplier_initial=1.0, kp=0.5
    )
    programs, ended = compiled(trpo_lagrangian, config), toy_rollout(costs=(10.0, 1.0))
    running = ended._replace(truncated=ended.truncated & False)
    before, info = programs.learn(jax.random.key(1), programs.state, running)  # no episode yet: no news at all
    np.testing.assert_array_equal(info.multiplier, [1.0, 1.0])
    first, news = programs.learn(jax.random.key(2), before, ended)
    np.testing.assert_allclose(news.multiplier, [1.01 + 0.5, 0.992 - 0.4], rtol=1e-5)
    second, same = programs.learn(jax.random.key(3), first, running)
    np.testing.assert_array_equal(same.multiplier, news.multiplier)
    np.testing.assert_array_equal(second.controller.integral, first.controller.integral)
