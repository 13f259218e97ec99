"""Every registered algorithm keeps the shape: arrays only, legal actions, finite numbers, gradients everywhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onpolicy_data import CONTINUOUS, SPEC, moved, toy_rollout

from awavo.experiment import settings_class
from awavo.registry import ALGORITHMS, resolve
from awavo.types import Discrete

SMALL = dict(
    num_envs=4, rollout_length=8, hidden=(8, 8), window=4, value_epochs=2, value_batch=16, warmup_steps=0,
    num_updates=4, batch_size=16, replay_capacity=64, num_quantiles=4,
    num_members=2, horizon=3, num_sequences=16, num_rounds=2, num_components=2,
)  # fmt: skip
ONE = SPEC._replace(cost_names=("a",), cost_limits=(5.0,))
THREE = SPEC._replace(cost_names=("a", "b", "c"), cost_limits=(5.0, 5.0, 5.0))
SPECS = {"discrete": SPEC, "continuous": CONTINUOUS, "one constraint": ONE, "three constraints": THREE}


def build(name, spec):
    kind = settings_class(name)
    names = {f.name for f in dataclasses.fields(kind)}
    config = kind(**{k: v for k, v in SMALL.items() if k in names})
    return resolve(name, ALGORITHMS, "algorithm")(spec, config), config


CASES = [(name, "discrete") for name in ALGORITHMS] + [(name, "continuous") for name in ("crpo", "cpo", "paets")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_protocol(name, kind):
    spec = SPECS[kind]
    algorithm, config = build(name, spec)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(state))
    learn = jax.jit(algorithm.learn)
    start = state
    for i, total in enumerate((0.0, 100.0)):
        rollout = toy_rollout(algorithm, state, spec, seed=i, costs=(total,) * spec.num_costs)
        action = np.asarray(rollout.action)
        if isinstance(spec.action_space, Discrete):
            assert np.issubdtype(action.dtype, np.integer)
            assert action.min() >= 0
            assert action.max() < spec.action_space.num
        else:
            assert action.shape[-1] == spec.action_space.dim
            assert np.all(np.abs(action) <= np.asarray(spec.action_space.high))
        shapes = jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state, info = learn(jax.random.key(i), state, rollout)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == shapes
        for field, value in zip(info._fields, info, strict=True):
            assert np.all(np.isfinite(np.asarray(value))), field
            assert value.shape in ((), (spec.num_costs,)), field
        assert float(info.feasible) == float(total == 0.0)
    assert hasattr(config, "tolerance")
    net = {"orpo-dr": lambda s: s.learner.actor.net, "paets": lambda s: s.model.nets}.get(name, lambda s: s.policy)
    assert min(moved(net(start), net(state))) > 0, "a layer never moved"
    obs = jax.random.normal(jax.random.key(1), (5, spec.obs_dim))
    act = jax.jit(algorithm.act, static_argnums=3)
    greedy, _ = act(jax.random.key(3), state, obs, True)
    assert greedy.shape[0] == 5
    if name != "paets":
        np.testing.assert_array_equal(greedy, act(jax.random.key(4), state, obs, True)[0])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_shapes_fit_for_every_kind_of_task(name, spec):
    algorithm, _ = build(name, spec)

    def once(key):
        state = algorithm.init(key)
        return state, *algorithm.learn(key, state, toy_rollout(algorithm, state, spec, costs=(0.0,) * spec.num_costs))

    before, after, info = jax.eval_shape(once, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), before) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert info.cost_estimate.shape == (spec.num_costs,)


TRUST_REGION = ("crpo", "cpo")


@pytest.mark.parametrize("name", TRUST_REGION)
def test_bad_numbers_do_not_reach_the_networks(name):
    algorithm, _ = build(name, SPEC)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    rollout = toy_rollout(algorithm, state)
    rollout = rollout._replace(reward=rollout.reward.at[0, 0].set(jnp.nan))
    after, _ = jax.jit(algorithm.learn)(jax.random.key(1), state, rollout)
    assert max(moved(state.policy, after.policy)) == 0.0
    assert max(moved(state.estimates.values, after.estimates.values)) == 0.0
