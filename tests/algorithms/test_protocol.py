"""Every registered algorithm keeps the shape: arrays only, legal actions, finite numbers, gradients everywhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import CONTINUOUS, SPEC, compiled, moved, toy_rollout

from awavo.config import TrainConfig, fingerprint
from awavo.registry import ALGORITHMS, resolve
from awavo.runs.problem import resolve_config, settings_class
from awavo.types import Discrete

SMALL = dict(
    num_envs=32, rollout_length=8, hidden=(8,), window=4, value_epochs=1, warmup_steps=256,
    num_updates=4, batch_size=16, replay_capacity=256, num_quantiles=4,
    num_members=3, horizon=4, num_sequences=32, num_rounds=2, num_components=3,
    planning="off", imagined_batch=16, update_ratio=1 / 64, epochs=2,
)  # fmt: skip
ONE = SPEC._replace(cost_names=("a",), cost_limits=(5.0,))
THREE = CONTINUOUS._replace(cost_names=("a", "b", "c"), cost_limits=(5.0, 5.0, 5.0))
SPECS = {
    "discrete": SPEC,
    "continuous": CONTINUOUS,
    "one constraint": ONE,
    "three constraints": THREE,
}  # the last: continuous
OFF_POLICY = ("sac-lagrangian", "cal")  # these refuse discrete actions


def spec_for(name, kind="discrete"):
    """A small task of some kind, with actions that the algorithm takes."""
    space = CONTINUOUS.action_space if name in OFF_POLICY else SPECS[kind].action_space
    return SPECS[kind]._replace(action_space=space)


def parts(name):
    """Factory and small settings of an algorithm; those off policy learn from the second rollout on."""
    kind = settings_class(name)
    names = {f.name for f in dataclasses.fields(kind)}
    sizes = SMALL | (dict(warmup_steps=512, replay_capacity=512) if name in OFF_POLICY else {})
    return resolve(name, ALGORITHMS, "algorithm"), kind(**{k: v for k, v in sizes.items() if k in names})


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_fresh_state_has_the_types_of_a_trained_one(name, kind):
    """A weakly typed number becomes strong in the first update, and every program would be compiled twice."""
    factory, settings = parts(name)
    fresh = jax.eval_shape(factory(spec_for(name, kind), settings).init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(fresh)
    assert not [jax.tree_util.keystr(path) for path, leaf in leaves if leaf.weak_type]


CASES = [(name, "continuous" if name in OFF_POLICY else "discrete") for name in ALGORITHMS] + [("cpo", "continuous")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_protocol(name, kind):
    spec = SPECS[kind]
    programs = compiled(*parts(name), spec)
    start = state = programs.state
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(state))
    for i, total in enumerate((0.0, 100.0)):
        shapes = jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state, info = programs.learn(jax.random.key(i), state, toy_rollout(spec, seed=i, costs=total))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == shapes
        for field, value in zip(info._fields, info, strict=True):
            assert np.all(np.isfinite(np.asarray(value))), field
            assert value.shape in ((), (spec.num_costs,)), field
        assert float(info.feasible) == float(total == 0.0)
    nets = {
        "orpo-dr": lambda s: s.learner.actor.net,
        "awavo": lambda s: s.orpo.learner.actor.net,
        "paets": lambda s: s.model.nets,
        **dict.fromkeys(OFF_POLICY, lambda s: s.learner.actor.net),
    }
    net = nets.get(name, lambda s: s.policy)
    assert min(moved(net(start), net(state))) > 0, "a layer never moved"

    obs = np.random.default_rng(1).normal(size=(50, spec.obs_dim)).astype(np.float32)
    for greedy in (False, True):
        action = np.asarray(programs.act(jax.random.key(3), state, obs, greedy)[0])
        if isinstance(spec.action_space, Discrete):
            assert action.shape == (50,)
            assert set(np.unique(action)) <= set(range(spec.action_space.num))
        else:
            assert action.shape == (50, spec.action_space.dim)
            assert np.all(np.abs(action) <= np.asarray(spec.action_space.high))
    if name != "paets":
        np.testing.assert_array_equal(action, programs.act(jax.random.key(4), state, obs, True)[0])


TRUST_REGION = ("crpo", "cpo", "pcpo", "trpo-ipo", "trpo-lagrangian")


@pytest.mark.parametrize("name", TRUST_REGION)
def test_samples_come_from_the_last_policy_and_greedy_actions_from_the_average(name):
    factory, config = parts(name)
    programs = compiled(factory, config, SPEC)
    start, rate = programs.state, config.polyak
    state, _ = programs.learn(jax.random.key(0), start, toy_rollout())
    blend = jax.jit(lambda new, old: jax.tree.map(lambda n, o: rate * n + (1 - rate) * o, new, old))
    assert 0 < max(moved(state.average, start.average)) < max(moved(state.policy, start.policy))
    assert max(moved(state.average, blend(state.policy, start.average))) < 1e-6
    obs = np.random.default_rng(1).normal(size=(50, SPEC.obs_dim)).astype(np.float32)
    flipped = state._replace(average=jax.tree.map(lambda x: np.float32(-50) * np.asarray(x), state.policy))
    sampled, greedy = (
        [np.asarray(programs.act(jax.random.key(3), s, obs, mode)[0]) for s in (state, flipped)]
        for mode in (False, True)
    )
    np.testing.assert_array_equal(*sampled)
    assert np.any(greedy[0] != greedy[1])


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_policy_says_what_is_done_greedily(name, kind):
    """Its mode is the greedy action and its parts compute the same, for raw observations of any size."""
    spec = SPECS[kind]
    programs = compiled(*parts(name), spec)
    algorithm, state = programs.algorithm, programs.learn(jax.random.key(0), programs.state, toy_rollout(spec))[0]
    obs = 3 + 2 * np.random.default_rng(1).normal(size=(50, spec.obs_dim)).astype(np.float32)
    if name == "paets":
        assert algorithm.policy is algorithm.actor is None
        return
    distribution = jax.jit(algorithm.policy)(state, obs)
    greedy = np.asarray(programs.act(jax.random.key(3), state, obs, True)[0])
    np.testing.assert_allclose(distribution.mode(), greedy, atol=1e-6)
    assert np.all(np.isfinite(distribution.log_prob(distribution.sample(jax.random.key(4)))))

    actor = algorithm.actor(state)
    x = np.clip((obs - actor.mean) / actor.std, -10, 10)
    for weight, bias in zip(actor.weights[:-1], actor.biases[:-1], strict=True):
        x = getattr(jax.nn, actor.activation)(x @ weight + bias)
    x = np.asarray(x @ actor.weights[-1] + actor.biases[-1])
    if isinstance(actor.space, Discrete):
        np.testing.assert_array_equal(x.argmax(-1), greedy)
    else:
        unit = np.tanh(x[:, : actor.space.dim])
        np.testing.assert_allclose(unit * np.asarray(actor.space.high), greedy, atol=1e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_certification_asks_for(name):
    """Critics and slices where the method has them, in the shapes that the protocol promises."""
    factory, config = parts(name)
    on = dataclasses.replace(config, planning="on") if name == "awavo" else config
    spec = spec_for(name)
    algorithm = factory(spec, on)
    state = compiled(factory, config, spec).state
    obs = jnp.zeros((5, spec.obs_dim))
    assert (algorithm.critics is None) == (name not in ("awavo", "orpo-dr"))
    assert (algorithm.slices is None) == (name != "awavo")
    if algorithm.critics is not None:
        quantiles = algorithm.critics.quantiles(state, obs, jnp.zeros(5, int))
        assert quantiles.shape == (5, 1 + SPEC.num_costs, config.num_quantiles)
        low, high = algorithm.critics.signal_bounds(state)
        widest = algorithm.critics.return_bounds(state)
        assert np.all(widest[0] <= low)
        assert np.all(high <= widest[1])
    if algorithm.slices is not None:
        np.testing.assert_allclose(np.linalg.norm(algorithm.slices(state, obs), axis=-1), 1, rtol=1e-4)
        assert factory(SPEC, dataclasses.replace(on, metric="kl")).slices is None


# Resolved configurations by which stored runs are known again: (algorithm, task, preset, options).
FINGERPRINTS = {
    ("awavo", "cartpole", "default", ()): "a460083b1a74be74",
    ("awavo", "acrobot", "paper", (("metric", "kl"), ("horizon", 7))): "657e4caf378b0d05",
    ("orpo-dr", "cartpole", "default", ()): "d9a4e6d898d09154",
    ("crpo", "cartpole", "default", ()): "b245b670c5c3be2c",
    ("pcpo", "cartpole", "default", ()): "c9f4ffcf81ab78a4",
    ("cpo", "cartpole", "default", ()): "48048e56bf08cdf9",
    ("trpo-ipo", "cartpole", "default", ()): "6c291ae85823c8c7",
    ("trpo-lagrangian", "cartpole", "default", ()): "670e4a3cadd47daa",
    ("ppo-lagrangian", "cartpole", "default", ()): "e76fcd274801a07d",
    ("sac-lagrangian", "navigation", "default", ()): "37793d33f46ddfcf",
    ("cal", "navigation", "default", ()): "e6445d8221b06571",
    ("paets", "cartpole", "default", ()): "fa7a07109033f9ea",
}


@pytest.mark.parametrize(("algo", "task", "preset", "options"), FINGERPRINTS)
def test_settings_and_their_defaults_are_those_of_stored_runs(algo, task, preset, options):
    config = TrainConfig(algo=algo, task=task, preset=preset, algo_options=dict(options))
    assert fingerprint(resolve_config(config)) == FINGERPRINTS[algo, task, preset, options]


@pytest.mark.parametrize("kind", ["one constraint", "three constraints"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_shapes_fit_for_every_kind_of_task(name, kind):
    spec = spec_for(name, kind)
    factory, config = parts(name)
    algorithm = factory(spec, config)

    def once(key, rollout):
        state = algorithm.init(key)
        return state, *algorithm.learn(key, state, rollout)

    before, after, info = jax.eval_shape(once, jax.random.key(0), toy_rollout(spec))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), before) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert info.cost_estimate.shape == (spec.num_costs,)


@pytest.mark.parametrize("name", [*TRUST_REGION, "ppo-lagrangian"])
def test_bad_numbers_do_not_reach_the_networks(name):
    programs = compiled(*parts(name), SPEC)
    rollout = toy_rollout()
    rollout.reward[-1] = np.nan
    after, _ = programs.learn(jax.random.key(1), programs.state, rollout)
    assert max(moved(programs.state.policy, after.policy)) == 0.0
    assert max(moved(programs.state.estimates.values, after.estimates.values)) == 0.0
