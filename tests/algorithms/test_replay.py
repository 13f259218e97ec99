import jax
import numpy as np

from awavo.algorithms.replay import add, empty_replay, sample
from awavo.types import Box, Discrete, EnvSpec, Rollout

add = jax.jit(add, static_argnums=(2, 3))
SPEC = EnvSpec("t", 2, Discrete(2), 10, ("g",), (1.0,))


def rollout(start, steps=2, envs=2):
    number = np.arange(start, start + steps * envs, dtype=np.float32).reshape(steps, envs)
    obs = np.stack([number, -number], -1)
    flags = np.zeros((steps, envs), bool)
    return Rollout(
        obs,
        number.astype(np.int32),
        (),
        number,
        number[..., None] * 2,
        flags,
        flags,
        obs + 0.5,
        number,
        number[..., None],
        number,
    )


def test_rows_keep_together_and_the_oldest_goes_first():
    memory = empty_replay(SPEC, 8)
    for start in (0, 4, 8):
        memory = add(memory, rollout(start))
    memory = jax.device_get(memory)
    assert int(memory.added) == 12
    assert sorted(np.asarray(memory.data.action).tolist()) == list(range(4, 12))
    for row in range(8):
        number = float(memory.data.action[row])
        np.testing.assert_allclose(memory.data.obs[row], [number, -number])
        np.testing.assert_allclose(memory.data.next_obs[row], [number + 0.5, -number + 0.5])
        np.testing.assert_allclose(memory.data.signals[row], [number, 2 * number])


def test_only_stored_rows_are_drawn():
    memory = add(empty_replay(SPEC, 1024), rollout(1))
    drawn = jax.jit(sample, static_argnums=2)(jax.random.key(0), memory, 500).action
    assert set(np.asarray(drawn).tolist()) == {1, 2, 3, 4}


def test_continuous_actions():
    spec = SPEC._replace(action_space=Box((-1.0,) * 3, (1.0,) * 3))
    assert empty_replay(spec, 8).data.action.shape == (8, 3)


def test_looking_ahead_stops_at_the_end_of_episode_and_rollout():
    """Against a loop over single rows, with terminations and truncations at random places."""
    steps, envs, n, gamma = 9, 4, 4, 0.9
    rng = np.random.default_rng(0)
    terminated, truncated = rng.random((2, steps, envs)) < 0.15
    made = rollout(0, steps, envs)._replace(terminated=terminated, truncated=truncated)
    ahead = jax.device_get(add(empty_replay(SPEC, steps * envs, n), made, gamma, n).data.ahead)
    reached = set()
    for t in range(steps):
        for e in range(envs):
            total, k = np.zeros(2), t
            for k in range(t, min(t + n, steps)):
                total += gamma ** (k - t) * np.array([made.reward[k, e], made.costs[k, e, 0]])
                if terminated[k, e] or truncated[k, e]:
                    break
            row = t * envs + e
            reached.add(k - t)
            np.testing.assert_allclose(ahead.signals[row], total, rtol=1e-5)
            np.testing.assert_array_equal(ahead.obs[row], made.next_obs[k, e])
            assert bool(ahead.terminated[row]) == terminated[k, e]
            np.testing.assert_allclose(ahead.discount[row], gamma ** (k - t + 1), rtol=1e-6)
    assert reached == {0, 1, 2, 3}
