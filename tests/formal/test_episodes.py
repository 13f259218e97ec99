"""Returns of fresh episodes, beside which a critic's word is put."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.formal.episodes import critic_samples
from awavo.types import Algorithm, Critics, Discrete, Env, EnvSpec, Timestep

SPEC = EnvSpec("toy", 1, Discrete(2), 100, ("cost",), (1.0,))


def steps_until_they_fall(last: int) -> Env:
    """Every step earns 1 and costs 2; an episode terminates after `last` of them."""

    def step(key, age, action, params):
        fell = age + 1 >= last
        obs = jnp.ones(1)
        out = Timestep(obs, jnp.float32(1.0), jnp.full(1, 2.0), fell, jnp.zeros((), bool), obs)
        return jnp.where(fell, 0, age + 1), out

    return Env(SPEC, None, lambda key, params: (jnp.int32(0), jnp.ones(1)), step)


@pytest.mark.parametrize("told", [None, 5.0])
def test_what_critics_were_told_of_an_end_is_in_the_return_beside_them(told):
    algorithm = Algorithm(None, lambda key, state, obs, greedy: (jnp.zeros(len(obs), jnp.int32), ()), None)
    critics = Critics(
        lambda state, obs, action: jnp.zeros((len(obs), 2, 3)), None, None,
        None if told is None else lambda state: jnp.array([0.0, told]),
    )  # fmt: skip
    run = critic_samples(steps_until_they_fall(2), algorithm, critics, num=64, latest_start=10, discount=0.9)
    samples = jax.jit(run)(jax.random.key(0), ())
    earned, cost = np.asarray(samples.returns).T
    # Asked in the first step of an episode or in its last.
    np.testing.assert_allclose(np.unique(earned.round(4)), [1.0, 1.9])
    np.testing.assert_allclose(np.unique((cost - 2 * earned).round(3)), [0.81 * 5, 0.9 * 5] if told else [0.0])
    assert not np.any(samples.cut)
