"""Environments of six values: through a Gymnasium id with its time limit, as OmniSafe writes them, and checked."""

import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from awavo.errors import InputError
from awavo.tasks.check_env import check_env
from awavo.tasks.host import host_env


class Walk(gym.Env):
    """One number that actions add to; a cost for leaving half of its range, after the reward."""

    observation_space = spaces.Box(-2, 2, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1, 1).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.3 * action, -2, 2).astype(np.float32)
        over = bool(abs(self.place[0]) > 1.5)
        return self.place.copy(), float(action[0]), float(np.maximum(abs(self.place[0]) - 0.2, 0)), over, False, {}


class Tensor:
    """As much of a tensor as is needed here."""

    __module__ = "torch"

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __float__(self):
        return float(self.values)

    def __bool__(self):
        return bool(self.values)


class Cmdp:
    """What OmniSafe asks of an environment: no Gymnasium class, and tensors both ways."""

    observation_space = spaces.Box(-2, 2, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    max_episode_steps, cost_limits = 7, (3.0,)

    def reset(self, seed=None, options=None):
        self.place = np.random.default_rng(seed).uniform(-0.1, 0.1, 1)
        return Tensor(self.place.astype(np.float32)), {}

    def step(self, action):
        assert isinstance(action, Tensor)
        self.place = np.clip(self.place + 0.3 * np.asarray(action), -2, 2)
        values = (self.place.astype(np.float32), 1.0, abs(self.place[0]), False, False)
        return (*map(Tensor, values), {"speed": Tensor(0.5)})


@pytest.fixture
def registered():
    gym.register("Six-v0", Walk, max_episode_steps=5)
    yield "Six-v0"
    del gym.registry["Six-v0"]


def test_an_id_with_a_time_limit(registered):
    env = host_env(registered, num_envs=2, cost_limits=(1,))
    env.reset(0)
    assert env.spec.horizon == 5
    outs = [env.step(np.ones((2, 1), np.float32)) for _ in range(5)]
    places = np.stack([out.final_obs[:, 0] for out in outs])
    np.testing.assert_allclose(np.stack([out.costs[:, 0] for out in outs]), np.maximum(places - 0.2, 0), atol=1e-6)
    assert outs[4].truncated.all() or outs[4].terminated.all()
    assert not outs[3].truncated.any()


def test_the_checker_takes_six_values(registered):
    assert check_env(registered) == []
    assert [f for f in check_env(registered, cost_limits=(1, 2)) if f.level == "error"]


def test_several_costs_in_place_of_one():
    class Two(Walk):
        horizon = 5

        def step(self, action):
            obs, reward, cost, *rest = super().step(action)
            return (obs, reward, np.array([cost, 1.0]), *rest)

    env = host_env(Two, num_envs=1, cost_limits=(1, 2))
    env.reset(0)
    out = env.step(np.ones((1, 1), np.float32))
    np.testing.assert_allclose(out.costs, [[out.final_obs[0, 0] - 0.2, 1.0]], atol=1e-6)


def test_an_environment_written_for_omnisafe(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(as_tensor=Tensor))
    env = host_env(Cmdp, num_envs=2)
    assert (env.spec.horizon, env.spec.cost_limits, env.spec.cost_names) == (7, (3.0,), ("cost",))
    obs = env.reset(0)
    out = env.step(np.full((2, 1), 0.5, np.float32))
    np.testing.assert_allclose(out.obs, obs + 0.15, atol=1e-6)
    np.testing.assert_allclose(out.costs, np.abs(out.obs), atol=1e-6)
    assert env.step(np.zeros((2, 1), np.float32)).truncated.tolist() == [False, False]
    assert check_env(Cmdp, steps=50) == []


def test_something_else_is_refused():
    with pytest.raises(InputError, match=r"expected a gymnasium\.Env"):
        host_env(dict, num_envs=1)
