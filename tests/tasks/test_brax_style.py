"""Brax-style environments: a stand-in with their interface, stepped, checked, trained on, refused where it must be."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.tasks.brax_style import brax_env
from awavo.tasks.check_env import check_env


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict
    info: dict


class Slide:
    """A point pushed along a line; beyond 0.5 it costs, beyond 1 the episode is over."""

    action_size, episode_length = 1, 6

    def reset(self, rng):
        place = 0.1 * jax.random.uniform(jax.random.split(rng)[0], (1,))
        zero = jnp.zeros(())
        return State(place, place, zero, zero, {"cost": zero, "far": zero}, {"rng": rng, "cost": zero})

    def step(self, state, action):
        place = state.pipeline_state + 0.25 * action
        cost = (place[0] > 0.5).astype(float)
        # A weak type and an integer, as such code has them.
        done = jnp.where(place[0] > 1.0, 1.0, 0.0)
        metrics = {"cost": cost, "far": jnp.int32(1)}
        return dataclasses.replace(
            state, pipeline_state=place, obs=place, reward=place[0], done=done, metrics=metrics,
            info={**state.info, "cost": cost},
        )  # fmt: skip


def test_steps_costs_ends_and_the_time_limit():
    env = brax_env(Slide(), cost_limits=(2,))
    assert env.spec[0] == "Slide"
    assert (env.spec.obs_dim, env.spec.horizon, env.spec.cost_names) == (1, 6, ("cost",))
    step = jax.jit(env.step)
    state, obs = jax.jit(env.reset)(jax.random.key(0), env.params)
    start, rows = float(obs[0]), []
    for i in range(8):
        state, out = step(jax.random.key(i), state, jnp.ones(1), env.params)
        rows.append([float(x) for x in (out.final_obs[0], out.costs[0], out.terminated, out.truncated, out.obs[0])])
    place, cost, over, late, obs = np.array(rows).T
    np.testing.assert_allclose(place[:4], start + 0.25 * np.arange(1, 5), atol=1e-6)
    np.testing.assert_array_equal(cost[:4], place[:4] > 0.5)
    assert over.tolist() == [0, 0, 0, 1, 0, 0, 0, 1]
    assert late.sum() == 0
    assert 0 <= obs[3] <= 0.1
    still, _ = jax.lax.scan(
        lambda s, key: env.step(key, s, jnp.zeros(1), ()), state, jax.random.split(jax.random.key(1), 5)
    )
    _, out = step(jax.random.key(9), still, jnp.zeros(1), env.params)
    assert bool(out.truncated)


def test_the_checker_has_nothing_to_say():
    assert check_env(brax_env(Slide(), cost_limits=(2,), cost_names=("far",), horizon=4)) == []


class Nested(Slide):
    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, obs={"state": state.obs})


class Wrapped(Slide):
    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, info={**state.info, "truncation": jnp.zeros(())})


class Grows(Slide):
    def step(self, state, action):
        state = super().step(state, action)
        return dataclasses.replace(state, info={**state.info, "new": state.reward})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Nested, {}, "observation is a dictionary"),
        (Wrapped, {}, "has training wrappers"),
        (Grows, {}, r"differs in \.info\['new'\]"),
        (Slide, {"cost_names": ("speed",)}, r"no cost 'speed' in info or metrics, only \['cost', 'rng', 'far'\]"),
        (Slide, {"cost_limits": (1, 2)}, "2 cost limits"),
        (Slide, {"horizon": -1}, "horizon=-1"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(kind, options, message):
    with pytest.raises(InputError, match=message) as error:
        brax_env(kind(), **{"cost_limits": (2,), **options})
    assert "\n" not in str(error.value)
