"""TRPO-Lagrangian's multipliers: dual ascent, the PID terms, clipping."""

import jax
import jax.numpy as jnp
import numpy as np
from onpolicy_data import SPEC, toy_rollout

from awavo.algorithms.trpo_lagrangian import Controller, trpo_lagrangian, update_multipliers
from awavo.baseline_configs import TrpoLagrangianConfig


def run(excesses, **options):
    config = TrpoLagrangianConfig(**options)
    controller, rows = Controller(jnp.full(1, config.multiplier_initial), jnp.zeros(1)), []
    for excess in excesses:
        controller, multipliers = update_multipliers(controller, jnp.asarray([excess]), config)
        rows.append(float(multipliers[0]))
    return rows


def test_dual_ascent_adds_the_excess_and_stays_non_negative():
    np.testing.assert_allclose(run([1.0, 2.0, -1.0, -5.0], ki=0.1), [0.1, 0.3, 0.2, 0.0], atol=1e-6)


def test_pid_adds_the_excess_itself_and_only_its_rise():
    np.testing.assert_allclose(run([1.0, 3.0, 2.0], ki=0.0, kp=0.5, kd=1.0), [0.5 + 1, 1.5 + 2, 1.0], atol=1e-6)


def test_integral_does_not_wind_up():
    """After a long violation at the largest multiplier, relief is felt at once."""
    rows = run([10.0] * 50 + [-1.0], ki=1.0, multiplier_max=3.0)
    np.testing.assert_allclose(rows[-2:], [3.0, 2.0])


def test_multiplier_rises_where_a_limit_is_violated_only():
    algorithm = trpo_lagrangian(SPEC, TrpoLagrangianConfig(hidden=(8,), window=4, value_epochs=1, ki=0.5))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    rollout = toy_rollout(algorithm, state, costs=(10.0, 1.0))
    after, info = jax.jit(algorithm.learn)(jax.random.key(1), state, rollout)
    np.testing.assert_allclose(info.multiplier, [0.5, 0.0])
    np.testing.assert_allclose(after.controller.integral, [0.5, 0.0])
