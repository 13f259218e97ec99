"""The probabilistic ensemble: it fits, it disagrees where it has no data, and its members are separate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.inference.ensemble import ModelBatch, bootstrap_weights, encode_action, ensemble
from awavo.types import Box, Discrete, EnvSpec

SPEC = EnvSpec("toy", 2, Discrete(2), 10, ("a",), (5.0,))
MEMBERS = 4


def world(rng, rows, noise=0.1):
    """A noisy linear world: action 1 moves right; the reward is the position; right of 1 costs; right of 1.5 ends."""
    obs = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    action = rng.integers(0, 2, rows).astype(np.int32)
    next_obs = obs + np.stack([action - 0.5, 0.5 * obs[:, 0]], -1) + noise * rng.normal(size=obs.shape)
    return obs, action, next_obs[:, 0], (next_obs[:, :1] > 0.5), next_obs, next_obs[:, 0] > 1.0


def batch_of(data, rows):
    obs, action, reward, costs, next_obs, terminated = (jnp.asarray(x)[rows] for x in data)
    as_float = [x.astype(jnp.float32) for x in (obs, reward, costs, next_obs)]
    return ModelBatch(as_float[0], action, as_float[1], as_float[2], as_float[3], terminated, bootstrap_weights(rows))


def observed(model, state, data):
    obs, _, reward, costs, next_obs, _ = (jnp.asarray(x, jnp.float32) for x in data)
    return model.observe(state, obs, reward, costs, next_obs)


@pytest.fixture(scope="module")
def trained():
    data = world(np.random.default_rng(0), 1024)
    model = ensemble(SPEC, MEMBERS, (32, 32), 3e-3, 0.0)

    @jax.jit
    def fit(key):
        state = observed(model, model.init(key), data)

        def step(state, key):
            return model.train_step(state, batch_of(data, jax.random.randint(key, (MEMBERS, 128), 0, 1024)))

        return jax.lax.scan(step, state, jax.random.split(key, 400))

    state, losses = fit(jax.random.key(0))
    return model, state, np.asarray(losses), jax.jit(model.predict)


def test_training_fits_every_head(trained):
    _, state, losses, predict = trained
    assert np.all(losses[-50:].mean(0) < losses[:10].mean(0) - 0.5)
    obs, action, reward, costs, next_obs, terminated = world(np.random.default_rng(1), 200)
    guess = jax.device_get(predict(state, np.broadcast_to(obs, (MEMBERS, 200, 2)), action))
    assert np.abs(guess.next_obs.mean(0) - next_obs).mean() < 0.12
    assert np.abs(guess.reward.mean(0) - reward).mean() < 0.15
    assert np.mean((guess.costs.mean(0)[:, 0] > 0.5) == costs[:, 0]) > 0.85
    assert np.mean((guess.terminated.mean(0) > 0.5) == terminated) > 0.9


def test_spread_is_the_noise_of_the_world(trained):
    _, state, _, predict = trained
    obs, action, *_ = world(np.random.default_rng(2), 200)
    guess = predict(state, np.broadcast_to(obs, (MEMBERS, 200, 2)), action)
    np.testing.assert_allclose(np.asarray(guess.std).mean((0, 1)), 0.1, rtol=0.35)


def test_members_disagree_more_away_from_the_data(trained):
    _, state, _, predict = trained
    action = np.zeros(200, np.int32)
    near = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    disagreement = [
        np.asarray(predict(state, np.broadcast_to(x, (MEMBERS, 200, 2)), action).next_obs).std(0).mean()
        for x in (near, 4 * near)
    ]
    assert disagreement[1] > 3 * disagreement[0]


def test_each_member_learns_from_its_own_rows():
    model = ensemble(SPEC, 2, (8,), 1e-2, 0.0)
    data = world(np.random.default_rng(0), 32)

    @jax.jit
    def once(key):
        state = observed(model, model.init(key), data)
        batch = batch_of(data, jnp.tile(jnp.arange(32), (2, 1)))
        weight = jnp.stack([jnp.ones(32), jnp.zeros(32)])
        return state.nets, model.train_step(state, batch._replace(weight=weight))[0].nets

    for before, new in zip(*(jax.tree.leaves(x) for x in jax.device_get(once(jax.random.key(0)))), strict=True):
        assert np.abs(new[0] - before[0]).max() > 1e-3
        np.testing.assert_allclose(new[1], before[1], rtol=0, atol=1e-6)


def test_bootstrap_is_fixed_fair_and_different_between_members():
    rows = np.tile(np.arange(4000), (3, 1))
    draw = jax.jit(bootstrap_weights)
    weights = np.asarray(draw(rows))
    np.testing.assert_array_equal(weights, draw(rows))
    assert set(np.unique(weights)) == {0.0, 2.0}
    np.testing.assert_allclose(weights.mean(1), 1.0, atol=0.06)
    assert abs(np.corrcoef(weights)[0, 1]) < 0.06


def test_actions_are_encoded_in_their_space():
    np.testing.assert_array_equal(encode_action(Discrete(3), jnp.asarray([0, 2])), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(encode_action(Box((0.0,), (4.0,)), jnp.asarray([[0.0], [3.0]])), [[-1.0], [0.5]])


def test_costs_and_states_are_learnt_by_networks_of_their_own():
    """A cost that changes must leave the dynamics alone, and a state that changes their likelihood alone."""
    model = ensemble(SPEC, 2, (8,), 1e-2, 0.0)
    data = world(np.random.default_rng(0), 32)

    @jax.jit
    def once(bonus):
        state = observed(model, model.init(jax.random.key(0)), data)
        batch = batch_of(data, jnp.tile(jnp.arange(32), (2, 1)))
        return model.train_step(state, batch._replace(costs=batch.costs + bonus))[0].nets

    plain, more = jax.device_get((once(0.0), once(5.0)))
    for a, b in zip(jax.tree.leaves(plain.dynamics), jax.tree.leaves(more.dynamics), strict=True):
        np.testing.assert_array_equal(a, b)
    changed = [
        np.abs(a - b).max() for a, b in zip(jax.tree.leaves(plain.signals), jax.tree.leaves(more.signals), strict=True)
    ]
    assert max(changed) > 1e-3


def test_telling_can_wait_until_the_states_are_known():
    model = ensemble(SPEC, 2, (8,), 1e-2, 0.0, prior_scale=0.3)
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(2, 7, SPEC.obs_dim)), jnp.float32)
    data = world(rng, 7)

    @jax.jit
    def both(key):
        state = model.init(key)
        whole = model.predict(state, obs, jnp.asarray(data[1]))
        next_obs, std = model.advance(state, obs, jnp.asarray(data[1]))
        return whole, (next_obs, std, *model.outcomes(state, obs, jnp.asarray(data[1]), next_obs))

    for a, b in zip(*both(jax.random.key(0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(("hidden", "activation"), [((8,), "relu"), ((8, 6), "relu"), ((8, 8), "silu")])
def test_folded_priors_change_no_prediction(hidden, activation):
    model = ensemble(SPEC, 2, hidden, 1e-2, 0.0, prior_scale=0.7, activation=activation)
    rng = np.random.default_rng(1)
    obs, action = rng.normal(size=(2, 50, 2)).astype(np.float32), rng.integers(0, 2, 50)

    @jax.jit
    def predictions(key):
        state = model.init(key)
        folded = model.fold(state)
        return folded, [model.predict(s, obs, action) for s in (state, folded, state._replace(priors=()))]

    folded, (plain, joined, bare) = jax.device_get(predictions(jax.random.key(0)))
    assert (folded.priors == ()) == (activation == "relu")
    assert np.abs(plain.reward - bare.reward).max() > 0.01
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), plain, joined)


def test_signals_of_any_size_are_learnt_alike():
    """Rewards of a hundredth, smaller than what the priors add, are predicted as well as rewards of 1."""
    data = list(world(np.random.default_rng(0), 1024))
    data[2] = 0.01 * data[2]
    model = ensemble(SPEC, 2, (32, 32), 3e-3, 0.0, prior_scale=0.1)

    @jax.jit
    def fit(key):
        def step(state, key):
            return model.train_step(state, batch_of(data, jax.random.randint(key, (2, 128), 0, 1024)))

        return jax.lax.scan(step, observed(model, model.init(key), data), jax.random.split(key, 400))[0]

    obs, action, reward, _, next_obs, _ = world(np.random.default_rng(1), 500)
    every = [np.broadcast_to(np.float32(x), (2, 500, 2)) for x in (obs, next_obs)]
    tell = jax.jit(lambda state: model.outcomes(state, every[0], action, every[1])[0].mean(0))
    found = np.asarray(tell(fit(jax.random.key(0))))
    assert np.abs(found - 0.01 * reward).mean() < 0.001


def test_a_constant_reward_and_a_cost_not_met_are_predicted_alike_in_any_unit():
    """They have no spread to be scaled by: times 1,024 or less they are learnt to the last bit as they were."""
    obs, action, reward, costs, next_obs, ended = world(np.random.default_rng(0), 64)
    rows = jnp.broadcast_to(jnp.arange(64), (2, 64))
    found = []
    for factor in (1.0, 2.0**-10, 2.0**10):
        spec = SPEC._replace(cost_limits=(factor * 5.0,))
        model = ensemble(spec, 2, (8,), 3e-3, 0.0, prior_scale=0.1)
        data = (obs, action, factor * np.ones_like(reward), np.zeros(costs.shape), next_obs, ended)

        @jax.jit
        def learn(key, data, every, model=model):
            state, _ = model.train_step(observed(model, model.init(key), data), batch_of(data, rows))
            return model.predict(state, every, data[1])

        told = learn(jax.random.key(0), data, np.broadcast_to(np.float32(obs), (2, 64, 2)))
        found.append([np.asarray(x) / factor for x in (told.reward, told.costs)])
    assert np.abs(found[0][0] - 1).max() < 0.5
    assert found[0][1].std() > 0
    for scaled in found[1:]:
        jax.tree.map(np.testing.assert_array_equal, found[0], scaled)
