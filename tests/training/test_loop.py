"""The training loop: the same numbers whatever the chunks, the interruptions and the company of other seeds."""

import jax
import numpy as np
import pytest

from awavo.algorithms.crpo import CrpoConfig, crpo
from awavo.algorithms.orpo_dr import OrpoDrConfig, orpo_dr
from awavo.registry import make_task
from awavo.training.checkpoint import flatten
from awavo.training.loop import CompiledRunner, chunk_fn, init_fn
from awavo.training.rollout import collect, start_envs
from awavo.types import Algorithm


@pytest.fixture(scope="module")
def make():
    from tests.conftest import SMALL

    env = make_task("cartpole")
    config = OrpoDrConfig(**SMALL, replay_capacity=1024)
    algorithm = orpo_dr(env.spec, config)
    init, chunk = init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length)

    def build(seeds, axis="map"):
        return CompiledRunner(seeds, init, chunk, axis)

    return build


def same(a, b):
    left, right = flatten(a), flatten(b)
    return all(np.array_equal(left[k], right[k], equal_nan=True) for k in left)


def test_chunk_boundaries_change_nothing(make):
    whole, parts = make([3]), make([3])
    whole.run(12)
    for count in (1, 4, 7):
        parts.run(count)
    assert same(whole.states[0], parts.states[0])


def test_a_seed_is_bit_equal_alone_and_in_company(make):
    alone, company = make([5]), make([4, 5, 6])
    alone.run(8)
    company.run(8)
    assert same(alone.states[0], company.states[1])


def test_vmap_agrees_with_map_up_to_rounding(smallest):
    """The method does not matter: CRPO, of whose programs two compile in the time of one."""
    env = make_task("cartpole")
    config = CrpoConfig(**{name: value for name, value in smallest.items() if name != "algo"})
    algorithm = crpo(env.spec, config)
    parts = init_fn(env, algorithm, config.num_envs), chunk_fn(env, algorithm, config.rollout_length)
    mapped, batched = (CompiledRunner([1, 2], *parts, axis) for axis in ("map", "vmap"))
    first = [flatten(state.algorithm.policy) for state in mapped.states]
    mapped.run(4)
    batched.run(4)
    for start, a, b in zip(first, mapped.states, batched.states, strict=True):
        for name, x in flatten(a.algorithm.policy).items():
            np.testing.assert_allclose(x, flatten(b.algorithm.policy)[name], rtol=1e-3, atol=1e-4)
            assert not np.allclose(x, start[name])


def test_seeds_share_no_randomness(make):
    runner = make([0, 1])
    first, second = runner.run(2)
    assert not np.array_equal(first.episode_return, second.episode_return)
    actors = [flatten(s.algorithm.learner.actor) for s in runner.states]
    assert not any(np.array_equal(actors[0][k], actors[1][k]) for k in actors[0] if "weights" in k)


def test_states_survive_leaving_and_coming_back(make):
    straight, broken = make([7, 8]), make([7, 8])
    straight.run(6)
    broken.run(3)
    saved = [
        jax.tree.map(np.array, jax.tree.map(lambda x: x, s._replace(key=jax.random.key_data(s.key))))
        for s in broken.states
    ]
    fresh = make([7, 8])
    fresh.states = [s._replace(key=jax.random.wrap_key_data(s.key)) for s in saved]
    fresh.run(3)
    assert all(same(a, b) for a, b in zip(straight.states, fresh.states, strict=True))


def test_golden_numbers(make):
    """Guards against silent changes of the algorithm; rounding may differ between machines, the digits here do not."""
    runner = make([0])
    outputs = runner.run(6)[0]
    learner = runner.states[0].algorithm.learner
    norm = float(np.sqrt(sum(np.square(v).sum() for v in flatten(learner.critic).values())))
    assert float(outputs.episode_length[outputs.done].mean()) == pytest.approx(GOLDEN["length"], rel=1e-3)
    assert norm == pytest.approx(GOLDEN["norm"], rel=1e-3)


GOLDEN = {"length": 27.0, "norm": 8.01381}


def scripted(actions):
    """An algorithm that always pushes one way and never learns."""
    return Algorithm(
        lambda key: (),
        lambda key, state, obs, greedy: (np.full(obs.shape[0], actions, np.int32) + 0 * obs[:, 0].astype(int), ()),
        lambda *a: a,
    )


def test_rollout_counts_undiscounted_totals_and_keeps_the_last_observation():
    env = make_task("cartpole")
    worker = start_envs(jax.random.key(0), env, 3)
    worker, rollout = jax.jit(lambda w: collect(jax.random.key(1), env, scripted(1), (), w, 40))(worker)
    rollout = jax.device_get(rollout)
    done = np.asarray(rollout.done)
    assert done.any()
    for e in range(3):
        start = 0
        for t in np.flatnonzero(done[:, e]):
            assert float(rollout.episode_return[t, e]) == t + 1 - start
            np.testing.assert_allclose(rollout.episode_costs[t, e], rollout.costs[start : t + 1, e].sum(0), rtol=1e-6)
            assert int(rollout.episode_length[t, e]) == t + 1 - start
            start = t + 1
    fell = np.asarray(rollout.terminated)
    last = np.asarray(rollout.next_obs)[fell]
    assert np.all((np.abs(last[:, 2]) > 0.2094) | (np.abs(last[:, 0]) > 2.4))
    assert np.all(np.abs(np.asarray(rollout.obs)[1:][fell[:-1]]) <= 0.05)


def test_time_limit_truncates_without_terminating():
    env = make_task("cartpole", horizon=5)
    worker = start_envs(jax.random.key(0), env, 2)
    _, rollout = collect(jax.random.key(1), env, scripted(0), (), worker, 5)
    assert np.asarray(rollout.truncated)[-1].all()
    assert not np.asarray(rollout.terminated).any()
