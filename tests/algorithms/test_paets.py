"""PaETS: the mixture update, MPPI as its special case, relaxed actions, planning with a known answer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from test_protocol import parts
from toys import compiled, toy_rollout

from awavo.algorithms import model_learning
from awavo.algorithms.paets import Mixture, PaetsConfig, execute, paets, refit, sequence_weights
from awavo.types import Box, Discrete, EnvSpec

REFIT = jax.jit(refit, static_argnums=4)
sequence_weights = jax.jit(sequence_weights)  # one program, not one for each operation
log_densities = jax.jit(lambda mixture, sequences: mixture.log_densities(sequences))
CONFIG = parts("paets")[1]  # its programs are those of test_protocol.py


def test_one_component_with_exponential_weights_is_mppi():
    rng = np.random.default_rng(0)
    sequences, returns = rng.normal(size=(50, 4, 2)).astype(np.float32), rng.normal(size=50).astype(np.float32)
    mixture = Mixture(np.ones(1), np.zeros((1, 4, 2)), np.ones((1, 4, 2)))
    densities = np.asarray(log_densities(mixture, sequences))  # of the one component there is
    weights = sequence_weights(returns, densities[:, 0], 0.5, 0.0)
    scale = 0.5 * (returns.std() + 1e-6)
    mppi = np.exp((returns - returns.max()) / scale)
    mppi /= mppi.sum()
    np.testing.assert_allclose(weights, mppi, rtol=1e-4)
    new = jax.device_get(REFIT(mixture, sequences, weights, np.ones((50, 1), np.float32), CONFIG))
    mean = np.einsum("k,kha->ha", mppi, sequences)
    np.testing.assert_allclose(new.mean[0], mean, rtol=1e-3, atol=1e-5)
    spread = np.sqrt(np.einsum("k,kha->ha", mppi, (sequences - mean) ** 2))
    np.testing.assert_allclose(new.std[0], np.maximum(spread, CONFIG.min_std), rtol=1e-3, atol=1e-4)
    assert float(new.weight[0]) == pytest.approx(1.0)


def test_entropy_flattens_what_the_density_favours():
    returns, density = np.zeros(2, np.float32), np.float32([0.0, -1.0])
    plain, flat = (np.asarray(sequence_weights(returns, density, 1.0, kappa)) for kappa in (0.0, 1.0))
    np.testing.assert_allclose(plain, [0.5, 0.5])
    assert float(flat[1]) > float(flat[0])


def test_components_keep_two_solutions_apart():
    rng = np.random.default_rng(1)
    centres = np.where(rng.uniform(size=200) < 0.5, -0.8, 0.8)
    sequences = (centres[:, None, None] + 0.05 * rng.normal(size=(200, 3, 1))).astype(np.float32)
    start = np.float32([-0.3, 0.3])[:, None, None].repeat(3, 1)
    mixture = Mixture(np.full(2, 0.5, np.float32), start, np.full((2, 3, 1), 0.5, np.float32))
    respond = jax.jit(lambda mixture: jax.nn.softmax(mixture.log_densities(sequences)))
    for _ in range(5):
        mixture = REFIT(mixture, sequences, np.full(200, 1 / 200, np.float32), respond(mixture), CONFIG)
    np.testing.assert_allclose(np.asarray(mixture.mean)[:, :, 0], [[-0.8] * 3, [0.8] * 3], atol=0.05)


def test_dead_component_starts_again_at_the_best_sequence():
    sequences = np.random.default_rng(2).normal(size=(20, 3, 1)).astype(np.float32)
    weights = np.exp(np.arange(20.0)) / np.exp(np.arange(20.0)).sum()
    responsibility = np.float32([[1.0, 0.0]] * 20)
    mixture = Mixture(np.full(2, 0.5), np.zeros((2, 3, 1)), np.ones((2, 3, 1)))
    new = jax.device_get(REFIT(mixture, sequences, weights, responsibility, CONFIG))
    np.testing.assert_allclose(new.mean[1], sequences[-1])
    np.testing.assert_allclose(new.std[1], CONFIG.initial_std)
    assert float(new.weight.sum()) == pytest.approx(1.0)


def test_relaxed_actions_cover_the_space():
    relaxed = jnp.asarray([[-1.0], [-0.4], [0.0], [0.9], [1.0]])
    np.testing.assert_array_equal(execute(Discrete(2), relaxed), [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(execute(Discrete(3), relaxed), [0, 0, 1, 2, 2])
    np.testing.assert_allclose(execute(Box((-1.0,), (3.0,)), relaxed)[:, 0], [-1.0, 0.2, 1.0, 2.8, 3.0], rtol=1e-6)


def test_warm_up_acts_at_random_and_plans_after_it():
    programs = compiled(paets, CONFIG)
    obs = np.zeros((50, 3), np.float32)
    assert np.unique(programs.act(jax.random.key(1), programs.state, obs, True)[0]).size == 3
    state, info = programs.learn(jax.random.key(2), programs.state, toy_rollout(costs=(9.0, 0.0)))
    assert int(state.replay.added) == CONFIG.warmup_steps
    before, after = (np.asarray(programs.act(jax.random.key(1), s, obs, True)[0]) for s in (programs.state, state))
    assert np.any(before != after)
    assert float(info.feasible) == 0.0
    np.testing.assert_allclose(info.cost_estimate, [9.0, 0.0])


@pytest.mark.parametrize(("constrained", "steps", "better"), [("off", 10, 1), ("on", 10, 0), ("on", 1, 1)])
def test_plan_takes_the_rewarded_action_unless_it_breaks_a_limit(constrained, steps, better):
    """Action 1 earns 1 and costs 1; the limit's share for the plan is 0.4, or 1 for each of its steps."""
    spec = EnvSpec("toy", 3, Discrete(2), steps, ("a",), (1.0,))
    options = {
        **vars(CONFIG),
        "constrained": constrained,
        "penalty": 5.0,
        "num_updates": 100,
        "model_lr": 1e-2,
        "num_sequences": 64,
    }
    programs = compiled(paets, PaetsConfig(**options), spec)
    rollout = toy_rollout(spec)
    gain = rollout.action.astype(np.float32)
    rollout = rollout._replace(reward=gain, costs=gain[..., None], next_obs=rollout.obs)
    state, _ = programs.learn(jax.random.key(1), programs.state, rollout)
    chosen, _ = programs.act(jax.random.key(2), state, rollout.obs[0], True)
    assert np.mean(np.asarray(chosen) == better) >= 0.75


@pytest.mark.parametrize("members", [1, 2])
def test_a_single_member_learns_from_every_row(members, monkeypatch):
    """Where nobody's bootstrap has any row, only a single member, which asks for none, has a loss."""
    monkeypatch.setattr(model_learning, "bootstrap_weights", lambda rows: jnp.zeros(rows.shape))
    algorithm = paets(toys.SPEC, dataclasses.replace(CONFIG, num_members=members, num_updates=1))
    state = algorithm.init(jax.random.key(0))
    loss = float(jax.jit(algorithm.learn)(jax.random.key(1), state, toy_rollout())[1].model_loss)
    assert (loss != 0) == (members == 1)


def test_a_ring_holds_whole_rollouts_even_where_one_is_larger_than_the_capacity():
    rows = toy_rollout().done.size
    config = dataclasses.replace(CONFIG, num_envs=32, rollout_length=8, replay_capacity=rows - 1)
    state = jax.eval_shape(paets(toys.SPEC, config).init, jax.random.key(0))
    assert state.replay.data.obs.shape[0] == rows
