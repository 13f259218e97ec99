"""How environments explore: what noise they have, which of them decide greedily, when their episodes are cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import CONTINUOUS, SPEC, compiled, toy_rollout

from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.algorithms.exploration import cut_ages, greedy_environments, lasting_noise, start_noise
from awavo.algorithms.orpo_dr import OrpoDrConfig, orpo_dr

LARGE = CONTINUOUS._replace(obs_dim=12, horizon=64)
CONFIG = OrpoDrConfig(num_envs=8, rollout_length=4, num_updates=1, batch_size=8, hidden=(8,), warmup_steps=16)


def test_noise_is_standard_normal_at_every_step_and_lasts_in_one_environment_of_four():
    def step(memory, key):
        noise, memory = lasting_noise(key, memory)
        return memory, noise

    _, noise = jax.lax.scan(step, start_noise(16, 400), jax.random.split(jax.random.key(0), 40))
    noise = np.asarray(noise)  # [steps, environments, draws]
    np.testing.assert_allclose(noise.std((0, 2)), 1.0, atol=0.06)
    np.testing.assert_allclose(noise[0].std(-1), 1.0, atol=0.15)
    kept = (noise[1:] * noise[:-1]).mean((0, 2))
    expected = np.zeros(16)
    expected[1::4] = 1 / 2, 3 / 4, 7 / 8, 15 / 16
    np.testing.assert_allclose(kept, expected, atol=0.06)


def test_one_environment_of_four_decides_greedily():
    algorithm, state, act, _ = compiled(orpo_dr, CONFIG, LARGE)
    obs = jax.random.normal(jax.random.key(1), (8, 12))
    action, _, memory = jax.jit(lambda *a: algorithm.decide(*a, False))(
        jax.random.key(2), state, obs, algorithm.begin(8)
    )
    greedy, _ = act(jax.random.key(3), state, obs, True)
    same = np.isclose(action, greedy, atol=1e-5).all(-1)
    np.testing.assert_array_equal(same, greedy_environments(8))
    np.testing.assert_array_equal(np.flatnonzero(same), [3, 7])
    assert memory.shape == algorithm.begin(8).shape


@pytest.mark.parametrize("spec", [LARGE, CONTINUOUS], ids=["larger", "small"])
def test_half_of_the_environments_of_a_larger_task_begin_at_random(spec):
    """Uniformly over the box until the first gradient step, which the first rollout brings; in small tasks never."""
    algorithm, state, _, learn = compiled(orpo_dr, CONFIG, spec)
    obs = jnp.zeros((8, spec.obs_dim))
    decide = jax.jit(
        jax.vmap(lambda key, state: algorithm.decide(key, state, obs, algorithm.begin(8), False)[0], (0, None))
    )
    keys = jax.random.split(jax.random.key(0), 400)
    begun, _ = learn(jax.random.key(1), state, toy_rollout(spec, steps=4, envs=8))
    shares = [np.asarray(decide(keys, at)) / np.asarray(spec.action_space.high) for at in (state, begun)]
    uniform = [np.abs(np.abs(share).mean((0, 2)) - 0.5) < 0.06 for share in shares]  # the mean size of U(-1, 1)
    spread = [share.std(0).mean(-1) for share in shares]
    np.testing.assert_array_equal(uniform[0], [spec is LARGE, False] * 4)
    assert not uniform[1].any()
    np.testing.assert_allclose(spread[0][::2], 1 / np.sqrt(3) if spec is LARGE else spread[1][::2], rtol=0.1)


def test_what_the_greedy_environments_cost_counts():
    """The same costs are estimated higher where they fall in greedy environments alone, and by those alone."""
    _, state, _, learn = compiled(orpo_dr, CONFIG, LARGE)
    base = toy_rollout(LARGE, steps=4, envs=8)
    quiet = base._replace(costs=np.zeros_like(base.costs), episode_costs=np.zeros_like(base.episode_costs))

    def estimate(environments):
        costs = np.zeros_like(base.costs)
        costs[:, environments] = 1.0
        return np.asarray(learn(jax.random.key(0), state, quiet._replace(costs=costs))[1].cost_estimate)

    spread, greedy = estimate([0, 1]), estimate([3, 7])
    np.testing.assert_allclose(spread, LARGE.horizon / 4, rtol=0.01)  # a quarter of the steps cost 1
    np.testing.assert_allclose(greedy, LARGE.horizon, rtol=0.01)


def test_first_episodes_are_short_in_all_environments():
    """Greedy ones too: a quarter of the data from a body on its back is enough to learn to crawl on it."""
    horizon = 1000
    at = lambda steps: np.asarray(cut_ages(jnp.asarray(steps), 8, horizon))  # noqa: E731
    np.testing.assert_allclose(at(0), np.full(8, horizon / 16))
    np.testing.assert_allclose(at(64_000), np.full(8, horizon * (1 / 16 + 1 / 2)))
    assert np.isinf(at(130_000)).all()


def test_only_exploring_policies_cut_episodes():
    """Not where actions are discrete or planned."""
    assert orpo_dr(LARGE, CONFIG).cut_after is not None
    assert awavo(LARGE, AwavoConfig()).cut_after is not None
    assert orpo_dr(SPEC, OrpoDrConfig()).cut_after is None
    assert orpo_dr(LARGE, OrpoDrConfig(num_envs=3)).cut_after is not None
    planned = awavo(CONTINUOUS, AwavoConfig())
    assert planned.plan is not None
    assert planned.cut_after is None
    assert planned.explore is None
