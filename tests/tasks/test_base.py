"""Time limits, auto-reset, physics as data, and finite CMDPs against their exact values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from task_rollouts import simulate

from awavo.checks import check_limits
from awavo.errors import InputError
from awavo.tasks.base import auto_reset, sum_costs
from awavo.tasks.cartpole import CartPoleParams, cartpole, cartpole_dynamics
from awavo.tasks.tabular import garnet, garnet_cmdp, hazard_grid_cmdp, policy_values, tabular
from awavo.types import Discrete, EnvSpec


def counter(horizon, ends_at):
    """Counts steps; terminates at `ends_at`. The observation is the count, reward and cost are the count as well."""
    from awavo.tasks.base import Transition

    def reset(key, params):
        return jnp.zeros(()), jnp.zeros((1,))

    def step(key, state, action, params):
        state = state + 1
        return state, Transition(state[None], state, jnp.stack([state, 2 * state]), state >= ends_at)

    return auto_reset(EnvSpec("counter", 1, Discrete(2), horizon, ("a", "b"), (1.0, 1.0)), None, reset, step)


@pytest.mark.parametrize(
    ("horizon", "ends_at", "terminated", "truncated"),
    [(3, 9, [0, 0, 0], [0, 0, 1]), (9, 3, [0, 0, 1], [0, 0, 0]), (3, 3, [0, 0, 1], [0, 0, 0])],
    ids=["time is up", "task ended", "both at once"],
)
def test_terminated_truncated_and_final_obs(horizon, ends_at, terminated, truncated):
    _, out = simulate(counter(horizon, ends_at), np.zeros((6, 2), np.int32))
    assert out.terminated[:, 0].tolist() == [bool(x) for x in terminated * 2]
    assert out.truncated[:, 0].tolist() == [bool(x) for x in truncated * 2]
    assert out.final_obs[:, 0, 0].tolist() == [1, 2, 3, 1, 2, 3]
    assert out.obs[:, 0, 0].tolist() == [1, 2, 0, 1, 2, 0]
    assert out.costs[:, 1, 1].tolist() == [2, 4, 6, 2, 4, 6]


def test_cartpole_ends_and_starts_again(random_cartpole):
    _, obs, out = random_cartpole
    done = out.terminated | out.truncated
    fallen = (np.abs(out.final_obs[..., 0]) > 2.4) | (np.abs(out.final_obs[..., 2]) > np.float32(np.radians(12)))
    np.testing.assert_array_equal(out.terminated, fallen)
    assert np.abs(out.obs[done]).max() <= 0.05
    np.testing.assert_array_equal(out.obs[~done], out.final_obs[~done])
    np.testing.assert_array_equal(obs[1:], out.obs[:-1])
    starts = out.obs[done]
    assert len(np.unique(starts, axis=0)) == len(starts)
    np.testing.assert_allclose(starts.std(0), 0.05 / np.sqrt(3), rtol=0.05)


def test_physics_are_data():
    masses = jnp.array([0.05, 0.1, 0.5])
    state = jnp.array([0.0, 0.0, 0.1, 0.0])
    axes = CartPoleParams(*(None,) * 2, 0, *(None,) * 6)
    batch = jax.jit(jax.vmap(cartpole_dynamics, (None, None, axes)))(
        state, jnp.int32(1), CartPoleParams(pole_mass=masses)
    )
    one = [jax.jit(cartpole_dynamics)(state, jnp.int32(1), CartPoleParams(pole_mass=m)) for m in masses]
    np.testing.assert_allclose(batch, one, rtol=1e-6)
    assert len(np.unique(batch[:, 3])) == 3
    assert cartpole(pole_mass=0.5).params.pole_mass == 0.5


def test_sum_costs():
    env = sum_costs(counter(3, 9), 25)
    assert (env.spec.cost_names, env.spec.cost_limits) == (("total",), (25.0,))
    _, out = simulate(env, np.zeros((4, 2), np.int32))
    assert out.costs[:, 0].tolist() == [[3], [6], [9], [3]]


@pytest.mark.parametrize("limits", [(1,), (1, 2, 3), (1, -2), (1, float("nan"))])
def test_limits_must_fit(limits):
    with pytest.raises(InputError, match="cost"):
        check_limits(limits, ("a", "b"))


def test_monte_carlo_meets_the_exact_values():
    cmdp = garnet_cmdp(8, 3, 2)
    horizon, number = 10, 5_000
    states, actions = cmdp.signals.shape[1:]
    policy = np.random.default_rng(0).dirichlet(np.ones(actions), states).astype(np.float32)
    env = tabular(cmdp, name="exact", cost_limits=(1, 1), horizon=horizon)
    noise = np.random.default_rng(1).gumbel(size=(horizon, number, actions)).astype(np.float32)
    log_policy = jnp.log(jnp.asarray(policy))
    _, out = simulate(env, noise, policy=lambda obs, g: jnp.argmax(log_policy[jnp.argmax(obs)] + g))
    assert out.truncated[-1].all()
    totals = np.concatenate([out.reward.sum(0)[:, None], out.costs.sum(0)], -1)
    exact = np.asarray(policy_values(cmdp, jnp.asarray(policy), horizon))
    error = totals.std(0) / np.sqrt(number)
    assert (np.abs(totals.mean(0) - exact) <= 4 * error + 1e-6).all()


def test_exact_values_by_hand():
    cmdp = hazard_grid_cmdp(3, slip=0.0)
    east = jnp.zeros((9, 4)).at[:, 0].set(1)
    north_then_stay = jnp.zeros((9, 4)).at[:, 1].set(1)
    np.testing.assert_allclose(policy_values(cmdp, east, 4), [0, 0, 0])
    np.testing.assert_allclose(policy_values(cmdp, north_then_stay, 5), [0, 0, 1.0], rtol=1e-6)


def test_default_garnet_limits_are_ninety_percent_of_the_uniform_policy():
    env = garnet(horizon=7)
    uniform = jnp.full((20, 4), 0.25)
    np.testing.assert_allclose(env.spec.cost_limits, 0.9 * policy_values(env.params, uniform, 7)[1:], rtol=1e-6)
