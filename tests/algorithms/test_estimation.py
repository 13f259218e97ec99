"""Advantages against brute force, value fitting, totals and their units."""

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import SPEC, toy_rollout

from awavo.algorithms.episodes import empty_window, mean_length, push_episodes
from awavo.algorithms.estimation import EstimationConfig, estimator, fit_values, gae
from awavo.networks import mlp

ESTIMATOR = estimator(SPEC, EstimationConfig(hidden=(8,), value_epochs=1), window=4)
UPDATE = jax.jit(ESTIMATOR.update)
JITTED = jax.jit(gae)


def brute_force(signals, values, next_values, terminated, done, discount, decay):
    """Sum over k of (discount * decay)^k delta_{t+k}, up to the end of the episode or of the rollout."""
    steps, envs, _ = signals.shape
    deltas = signals + discount * np.where(terminated[..., None], 0.0, next_values) - values
    out = np.zeros_like(deltas)
    for e in range(envs):
        for t in range(steps):
            for k in range(t, steps):
                out[t, e] += (discount * decay) ** (k - t) * deltas[k, e]
                if done[k, e]:
                    break
    return out


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    discount=st.floats(0.0, 1.0),
    decay=st.floats(0.0, 1.0),
    ends=st.floats(0.0, 0.6),
    truncations=st.floats(0.0, 1.0),
)
def test_gae_agrees_with_brute_force(seed, discount, decay, ends, truncations):
    rng = np.random.default_rng(seed)
    signals, values, next_values = rng.normal(size=(3, 7, 3, 2))
    done = rng.uniform(size=(7, 3)) < ends
    terminated = done & (rng.uniform(size=(7, 3)) >= truncations)
    found = JITTED(
        *(np.float32(x) for x in (signals, values, next_values)),
        terminated,
        done,
        np.float32(discount),
        np.float32(decay),
    )
    np.testing.assert_allclose(
        found, brute_force(signals, values, next_values, terminated, done, discount, decay), atol=1e-4
    )


def test_truncation_bootstraps_from_the_last_observation_and_termination_does_not():
    ones, ends = np.ones((1, 1, 1), np.float32), np.ones((1, 1), bool)
    truncated = JITTED(ones, 0 * ones, 5 * ones, ~ends, ends, 0.9, 0.95)
    terminated = JITTED(ones, 0 * ones, 5 * ones, ends, ends, 0.9, 0.95)
    assert float(truncated[0, 0, 0]) == pytest.approx(1 + 0.9 * 5)
    assert float(terminated[0, 0, 0]) == 1.0


def test_exact_values_give_zero_advantage():
    """One state, reward 1 and cost 2 for ever: V = h / (1 - gamma) leaves nothing to explain, time limits included."""
    signals = np.broadcast_to(np.float32([1.0, 2.0]), (6, 2, 2))
    values = signals / np.float32(0.1)
    done = np.zeros((6, 2), bool)
    done[2, 0] = True
    np.testing.assert_allclose(JITTED(signals, values, values, done & False, done, 0.9, 0.95), 0.0, atol=1e-5)


def test_every_head_is_fitted():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(256, 3)).astype(np.float32)
    targets = np.stack([obs[:, 0], -obs[:, 1], obs[:, 0] * obs[:, 1]], -1)

    @jax.jit
    def fit(obs, targets):
        values, optimizer = mlp(jax.random.key(0), (3, 32, 3), activation="tanh"), optax.adam(1e-2)
        key, start = jax.random.key(1), optimizer.init(values)
        fitted, _, loss = fit_values(key, values, start, optimizer, obs, targets, 200, 64)
        return fitted(obs), loss

    guesses, loss = fit(obs, targets)
    assert float(loss) < 0.01
    assert np.all(np.mean((guesses - targets) ** 2, 0) < 0.02)


def test_batch_has_scaled_rewards_centred_costs_and_undiscounted_totals():
    estimates = jax.jit(ESTIMATOR.init)(jax.random.key(0))
    rollout = toy_rollout(costs=(7.0, 1.0))
    _, batch, _ = UPDATE(jax.random.key(1), estimates, rollout)
    assert float(batch.reward_advantage.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(batch.reward_advantage.std()) == pytest.approx(1.0, rel=1e-4)
    np.testing.assert_allclose(batch.cost_advantages.mean(0), 0.0, atol=1e-5)
    tripled = rollout._replace(costs=3 * rollout.costs, reward=3 * rollout.reward)
    zeroed = estimates._replace(values=jax.tree.map(np.zeros_like, estimates.values))
    _, once, _ = UPDATE(jax.random.key(1), zeroed, rollout)
    _, thrice, _ = UPDATE(jax.random.key(1), zeroed, tripled)
    np.testing.assert_allclose(thrice.cost_advantages, 3 * once.cost_advantages, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(thrice.reward_advantage, once.reward_advantage, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(batch.cost_totals, [7.0, 1.0])
    np.testing.assert_allclose(batch.excess(np.float32(SPEC.cost_limits)), [2.0 / 8, -4.0 / 8])


def test_mean_length_is_of_as_many_episodes_as_the_window_holds():
    length, rollout = jax.jit(mean_length), toy_rollout()
    push = jax.jit(lambda window, rollout: push_episodes(window, rollout))
    window = push(empty_window(64, 2), rollout)  # 32 episodes of 8 steps
    assert float(length(np.float32(3.0), window, rollout)) == 8.0
    running = rollout._replace(truncated=rollout.truncated & False)
    assert float(length(np.float32(3.0), window, running)) == 3.0
    again = push(window, rollout)  # 64 in the window, half of them new
    assert float(length(np.float32(1000.0), again, rollout)) == 504.0
    # One short fall is one of many, not the length that everything is divided by until another episode ends.
    fall = running._replace(terminated=np.arange(rollout.done.size).reshape(rollout.done.shape) == 0)
    assert float(length(np.float32(1000.0), push(again, fall), fall)) == (63 * 1000 + 1) / 64
