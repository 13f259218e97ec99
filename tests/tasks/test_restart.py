"""Breaking off some episodes of a host task leaves the others as they are, on whatever runs them."""

import numpy as np
import pytest

from awavo.errors import BrokenEnvironmentError, InputError
from awavo.registry import make_host_task
from awavo.tasks.host import host_env


def gymnasium_task(num_envs):
    return host_env(
        "Pendulum-v1", num_envs=num_envs, cost_limits=(5.0,), cost_fn=lambda obs, action, next_obs: np.zeros(len(obs))
    )


def mujoco_task(name):
    def make(num_envs):
        pytest.importorskip("mujoco")
        return make_host_task(name, num_envs=num_envs)

    return make


MAKERS = {"gymnasium": gymnasium_task, "velocity": mujoco_task("hopper-velocity"), "walker": mujoco_task("walker")}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_restart_touches_only_what_it_names(make):
    with make(3) as kept, make(3) as cut, make(3) as alone:
        space = kept.spec.action_space
        draw = np.random.default_rng(0)
        action = lambda: draw.uniform(space.low, space.high, (3, space.dim)).astype(np.float32)  # noqa: E731
        kept.reset(1), cut.reset(1)
        for _ in range(3):
            moves = action()
            kept.step(moves), cut.step(moves)
        after, fresh = cut.restart([None, 77, None]), alone.start([77, 5, 6])
        np.testing.assert_array_equal(after[1], fresh[0])
        for _ in range(4):
            moves = action()
            expected, found, own = kept.step(moves), cut.step(moves), alone.step(moves[[1, 0, 2]])
            for field in ("obs", "reward", "costs", "truncated"):
                np.testing.assert_array_equal(getattr(found, field)[[0, 2]], getattr(expected, field)[[0, 2]])
            np.testing.assert_array_equal(found.obs[1], own.obs[0])
            assert not np.array_equal(found.obs[1], expected.obs[1])


def test_what_a_restart_shows_is_checked(monkeypatch):
    with gymnasium_task(2) as host:
        host.reset(0)
        monkeypatch.setattr(host._backend, "restart", lambda which, seeds: np.full((len(which), 3), np.nan))
        with pytest.raises(BrokenEnvironmentError, match="not finite"):
            host.restart([None, 5])


def test_a_restart_needs_a_start_and_a_seed_for_each():
    with gymnasium_task(2) as host:
        with pytest.raises(InputError, match="before reset"):
            host.restart([1, None])
        host.reset(0)
        with pytest.raises(InputError, match="3 seeds for 2 environments"):
            host.restart([1, None, 2])
        np.testing.assert_array_equal(host.restart([None, None]), host.restart([None, None]))
