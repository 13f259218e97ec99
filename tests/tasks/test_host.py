"""Environments from elsewhere: costs from `info` or from a function, none of them lost at the end of an episode."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces

from awavo.errors import BrokenEnvironmentError, InputError, MissingExtraError, UnknownNameError
from awavo.tasks.check_env import check_env
from awavo.tasks.host import FlatEnv, GymnasiumBackend, host_env
from awavo.tasks.host_core import CostSource
from awavo.types import Box, Discrete


class Stairs(gym.Env):
    """Counts up from the start; the cost of step t is t + 0.5, the episode terminates at `ends`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, ends=4, costs="cost", offset=0.5):
        self.ends, self.costs, self.offset = ends, costs, offset

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.start = self.np_random.uniform(0, 0.1)
        return self.observe(), {}

    def observe(self):
        return np.array([self.start + self.time], np.float32)

    def step(self, action):
        assert action in (5, 6, 7)
        self.time += 1
        cost = self.time + self.offset
        info = {
            "cost": {"cost": cost},
            "costs": {"costs": [cost, 2 * cost], "cost": -1.0},
            "named": {"cost_b": cost, "cost_a": 2 * cost, "cost_sum": -1.0},
            "int first": {"cost": 0 if self.np_random.random() < 0.5 else 0.75},
            "sometimes": {"cost": 1.0} if self.time == 1 else {},
            "nan": {"cost": np.nan if self.time == 2 else 0.0},
            "none": {"other": 1},
        }[self.costs]
        return self.observe(), float(action - 6), self.time >= self.ends, False, info


def stairs(**options):
    return lambda: Stairs(**options)


def run(env, steps, action=0):
    return [env.step(np.full(env.num_envs, action)) for _ in range(steps)]


def test_the_last_cost_and_observation_of_an_episode_are_kept():
    env = host_env(stairs(), num_envs=2, cost_limits=(9,), horizon=10)
    assert (env.spec.obs_dim, env.spec.action_space, env.spec.cost_names) == (1, Discrete(3), ("cost",))
    start = env.reset(0)
    outs = run(env, 8, action=2)
    assert [o.costs[0, 0] for o in outs] == [1.5, 2.5, 3.5, 4.5] * 2
    assert [bool(o.terminated[1]) for o in outs] == [False, False, False, True] * 2
    assert not any(o.truncated.any() for o in outs)
    np.testing.assert_allclose(outs[3].final_obs, start + 4, atol=1e-6)
    assert (outs[3].obs <= 0.1).all()
    np.testing.assert_array_equal(outs[2].obs, outs[2].final_obs)
    assert outs[0].reward.tolist() == [1.0, 1.0]
    assert {a.dtype for a in (outs[0].obs, outs[0].reward, outs[0].costs)} == {np.dtype(np.float32)}


def test_bounds_of_float64_are_not_left_by_rounding():
    class Strict(Stairs):
        action_space = spaces.Box(np.array([-0.1, 0.3]), np.array([0.7, 5.1]), dtype=np.float64)

        def step(self, action):
            assert self.action_space.contains(action), action
            return super().step(6)

    with host_env(Strict, num_envs=1, cost_limits=(9,), horizon=9) as env:
        env.reset(0)
        for action in ([-0.1, 0.3], [0.7, 5.1], [-9, 9]):
            env.step(np.array([action], np.float32))


def test_truncated_is_not_terminated():
    env = host_env(stairs(), num_envs=2, cost_limits=(9,), horizon=3)
    env.reset(0)
    outs = run(env, 3)
    assert (outs[2].truncated.all(), outs[2].terminated.any()) == (True, False)
    assert outs[2].costs.tolist() == [[3.5], [3.5]]
    env = host_env(stairs(), num_envs=1, cost_limits=(9,), horizon=4)
    env.reset(0)
    last = run(env, 4)[3]
    assert (last.terminated.item(), last.truncated.item()) == (True, False)


@pytest.mark.parametrize(
    ("costs", "names", "found", "first"),
    [
        ("cost", None, ("cost",), [1.5]),
        ("costs", None, ("g1", "g2"), [1.5, 3.0]),
        ("costs", ("x", "y"), ("x", "y"), [1.5, 3.0]),
        ("named", None, ("a", "b"), [3.0, 1.5]),
        ("named", ("b",), ("b",), [1.5]),
    ],
)
def test_where_costs_are_found(costs, names, found, first):
    limits = (9,) * len(found)
    env = host_env(stairs(costs=costs), num_envs=1, cost_names=names, cost_limits=limits, horizon=9)
    env.reset(0)
    assert env.spec.cost_names == found
    assert run(env, 1)[0].costs.tolist() == [first]


def test_an_integer_cost_of_one_environment_does_not_round_the_others():
    env = host_env(stairs(costs="int first", ends=99), num_envs=8, cost_limits=(9,), horizon=99)
    env.reset(0)
    costs = np.array([o.costs for o in run(env, 20)])
    assert set(np.unique(costs)) == {0.0, 0.75}


@pytest.mark.parametrize(
    ("costs", "message"), [("sometimes", "info has no 'cost'"), ("nan", "the cost of .* is not finite")]
)
def test_a_cost_that_fails_later_is_an_error(costs, message):
    env = host_env(stairs(costs=costs), num_envs=2, cost_limits=(9,), horizon=9)
    env.reset(0)
    with pytest.raises(BrokenEnvironmentError, match=message):
        run(env, 2)


def speeding(obs, action, next_obs):
    return np.abs(next_obs[:, 2]) > 4


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_pendulum_with_a_cost_function(vectorization):
    env = host_env("Pendulum-v1", num_envs=2, cost_fn=speeding, cost_limits=(30,), vectorization=vectorization)
    with env:
        assert env.spec.action_space == Box((-2.0,), (2.0,))
        assert (env.spec.horizon, env.spec.obs_dim, env.spec.num_costs) == (200, 3, 1)
        obs = env.reset(0)
        rng = np.random.default_rng(0)
        seen = 0
        for t in range(400):
            out = env.step(2 * np.sign(obs[:, 2:] + rng.normal(size=(2, 1))).astype(np.float32))
            np.testing.assert_array_equal(out.costs[:, 0], np.abs(out.final_obs[:, 2]) > 4)
            assert out.truncated.all() == (t in (199, 399))
            assert not out.terminated.any()
            seen += out.costs.sum()
            obs = out.obs
        assert seen > 50


def test_actions_in_units_of_the_environment():
    seen = []

    def cost_fn(obs, action, next_obs):
        seen.append(action.copy())
        return np.stack([action[:, 0], obs[:, 0]], -1) if action.ndim == 2 else action

    env = host_env("Pendulum-v1", num_envs=2, cost_fn=cost_fn, cost_limits=(1, 1))
    env.reset(0)
    out = env.step(np.array([[1.5], [-7.0]], np.float32))
    assert seen[-1].tolist() == [[1.5], [-2.0]]
    assert out.costs[:, 0].tolist() == [1.5, -2.0]
    env = host_env(stairs(), num_envs=2, cost_fn=cost_fn, cost_limits=(1,), horizon=9)
    env.reset(0)
    assert run(env, 1, action=2)[0].costs.tolist() == [[7.0], [7.0]]


def test_a_cost_function_sees_both_ends_of_every_step():
    env = host_env(
        stairs(), num_envs=2, cost_fn=lambda obs, action, next_obs: next_obs - obs, cost_limits=(1,), horizon=9
    )
    env.reset(0)
    np.testing.assert_allclose([o.costs for o in run(env, 9)], 1, atol=1e-6)


def test_our_own_task_as_a_host_environment():
    env = host_env("awavo/CartPole-v0", num_envs=3)
    assert (env.spec.cost_names, env.spec.cost_limits, env.spec.horizon) == (("position", "angle"), (30.0, 10.0), 200)
    env.reset(0)
    ended = 0
    for _ in range(30):
        out = env.step(np.ones(3, np.int64))
        x, theta = out.final_obs[:, 0], out.final_obs[:, 2]
        np.testing.assert_array_equal(out.costs, np.stack([np.abs(x) <= 0.1, np.abs(theta) > np.radians(6)], -1))
        ended += out.terminated.sum()
    assert ended >= 6


def test_seeds_share_no_environment():
    env = host_env("Pendulum-v1", num_envs=3, cost_fn=speeding, cost_limits=(1,))
    starts = np.concatenate([env.reset(seed) for seed in range(4)])
    assert len(np.unique(starts, axis=0)) == 12
    np.testing.assert_array_equal(env.reset(0), starts[:3])


class Rich(gym.Env):
    """Dict observation, matrix of actions, six values."""

    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2, 2), np.float64)})
    action_space = spaces.Box(-1, 1, (2, 2), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"a": 2, "b": np.zeros((2, 2))}, {}

    def step(self, action):
        assert action.shape == (2, 2)
        return {"a": 1, "b": action}, 0.0, 0.25, False, False, {}


def test_structured_observations_and_six_tuples():
    env = host_env(Rich, num_envs=2, cost_limits=(1,), horizon=3)
    assert env.reset(0).tolist() == [[0, 0, 1, 0, 0, 0, 0]] * 2
    out = env.step(np.array([[0, 0.5, -0.5, 1]] * 2, np.float32))
    assert out.obs.tolist() == [[0, 1, 0, 0, 0.5, -0.5, 1]] * 2
    assert out.costs.tolist() == [[0.25]] * 2


def space(**changed):
    return type("Changed", (Stairs,), changed)


def returns(**changed):
    """Stairs whose steps return something else in the places named."""

    def step(self, action):
        values = dict(zip(("obs", "reward", "terminated", "truncated", "info"), Stairs.step(self, action), strict=True))
        return tuple((values | changed).values())

    return space(step=step)


@pytest.mark.parametrize(
    ("id", "options", "kind", "message"),
    [
        ("Pendulm-v1", {}, UnknownNameError, "Did you mean"),
        ("CartPole-v1", {"env_options": {"wheels": 3}}, InputError, "wheels"),
        ("CartPole-v1", {}, BrokenEnvironmentError, r"no cost.*cost_fn"),
        ("CartPole-v1", {"cost_fn": lambda o, a, n: n[:, 0]}, InputError, "cost_limits is missing"),
        ("CartPole-v1", {"cost_fn": lambda o, a, n: 0.0}, InputError, r"expected \(1,\) or \(1, C\)"),
        ("Pendulum-v1", {"vectorization": "magic"}, InputError, "'sync', 'async'"),
        ("Pendulum-v1", {"num_envs": 0}, InputError, "num_envs=0"),
        ("awavo/HazardGrid-v0", {"horizon": 99}, InputError, "ends itself after 50"),
        (stairs(), {"horizon": None}, InputError, "horizon=N"),
        (stairs(costs="costs"), {"cost_names": ("x",)}, InputError, "name each one"),
        (stairs(), {"cost_limits": (1, 2)}, InputError, "2 cost limits"),
        (stairs(costs="none"), {}, BrokenEnvironmentError, "only \\['other'\\]"),
        (space(action_space=spaces.Box(-np.inf, 1, (1,))), {}, InputError, "infinite bounds"),
        (space(action_space=spaces.MultiBinary(2)), {}, InputError, "expected Discrete or a Box"),
        (space(observation_space=spaces.Box(0, 255, (8, 8, 3), np.uint8)), {}, InputError, "image"),
        (space(observation_space=spaces.Sequence(spaces.Discrete(2))), {}, InputError, "cannot be flattened"),
        (lambda: 3, {}, InputError, "expected a gymnasium.Env"),
        (space(observation_space=None), {}, BrokenEnvironmentError, "^observation_space: .* saw none: set self.obs"),
        (space(action_space=3), {}, BrokenEnvironmentError, "^action_space: .* saw int: set self.action_space in"),
        (space(reset=lambda self: None), {}, BrokenEnvironmentError, r"keyword seed, saw the parameters \[\]: define"),
        (
            space(reset=lambda self, **_: 3),
            {},
            BrokenEnvironmentError,
            r"reset\(\) returned int, expected \(obs",
        ),
        (space(horizon=None), {"horizon": None}, InputError, "has no time limit: give the environment an attribute"),
        (returns(obs=np.zeros(3)), {}, BrokenEnvironmentError, r"step\(\): .* of shape \(1,\), saw \(3,\): return"),
        (returns(obs="high"), {}, BrokenEnvironmentError, r"step\(\): .* of Box\(.*\), saw 'high': return"),
        (returns(reward=np.ones(1)), {}, BrokenEnvironmentError, r"as reward, saw array\(\[1.\]\): return float"),
        (returns(reward=None), {}, BrokenEnvironmentError, "as reward, saw None: return float"),
        (returns(info={"cost": "1.0"}), {}, BrokenEnvironmentError, r"is no number \(\['1.0'\]\)"),
    ],
)
def test_what_cannot_be_hosted_is_refused(id, options, kind, message):
    given = {"cost_limits": (1,), "horizon": 9} if not isinstance(id, str) else {}
    if options.get("vectorization") or options.get("num_envs") is not None:
        given = {"cost_limits": (1,), "cost_fn": speeding}
    with pytest.raises(kind, match=message) as caught:
        host_env(id, **given | options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action", [[0], [0, 3], [-1, 0], [0.0, 1.0], [[0], [1]]])
def test_wrong_actions_are_refused(action):
    env = host_env(stairs(), num_envs=2, cost_limits=(9,), horizon=10)
    with pytest.raises(InputError, match="reset"):
        env.step(np.zeros(2, int))
    env.reset(0)
    with pytest.raises(InputError, match="actions"):
        env.step(np.array(action))


def test_hosting_loads_no_jax():
    code = (
        "import sys; from awavo.tasks.host import host_env; import awavo.tasks.bridge\nassert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Spoilt(gym.Env):
    """Counts steps; an observation is spoilt at the reset with the number given, counted from 0."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, value, reset):
        self._value, self._bad, self._resets = value, reset, 0

    def reset(self, *, seed=None, options=None):
        self._time = 0
        spoilt = self._resets == self._bad
        self._resets += 1
        return np.array([self._value if spoilt else 0.0, 1.0], np.float32), {}

    def step(self, action):
        self._time += 1
        return np.full(2, self._time, np.float32), 1.0, False, self._time >= 4, {"cost": 0.5}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_observations_of_resets_are_checked_like_those_of_steps(value):
    env = host_env(lambda: Spoilt(value, reset=0), num_envs=2, cost_limits=(9,), horizon=9)
    with pytest.raises(BrokenEnvironmentError, match=r"reset\(\): the observation of .* is not finite or is beyond"):
        env.reset(0)
    env = host_env(lambda: Spoilt(value, reset=1), num_envs=2, cost_limits=(9,), horizon=9)
    env.reset(0)
    with pytest.raises(BrokenEnvironmentError, match=r"reset\(\) after an episode: the observation"):
        run(env, 4)


def test_training_stops_at_a_spoilt_reset_and_keeps_the_checkpoint_before(tmp_path):
    """Normaliser and replay ended up NaN in a checkpoint that said the run had finished."""
    import awavo
    from awavo.runs.problem import build_problem
    from awavo.runs.train import Training
    from tests.conftest import SMALL

    gym.register("Spoilt-v0", lambda: Spoilt(np.nan, reset=12), max_episode_steps=9)
    try:
        config = awavo.configure("Spoilt-v0", steps=256, seeds=1, cost_limits=(9,), **{**SMALL, "rollout_length": 8})
        training = Training(config, build_problem(config), tmp_path)
        with pytest.raises(BrokenEnvironmentError, match="reset"):
            for _ in training.advance(checkpoint_seconds=0.0):
                pass
        run = awavo.load(tmp_path)
        assert 0 < run.env_steps < 256
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.states[0].obs_stats))
    finally:
        gym.registry.pop("Spoilt-v0")


class Stubborn(Stairs):
    """Breaks at its third step, in the way it is told."""

    def __init__(self, how="raise", **options):
        super().__init__(**options)
        self.how, self.steps = how, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and self.how == "raise":
            raise ZeroDivisionError("out of stairs")
        if self.steps == 3 and self.how == "hang":
            time.sleep(60)
        return super().step(action)


def stubborn(**options):
    return Stubborn(**options)


def test_an_environment_that_raises_is_named_with_the_place():
    env = host_env(stubborn, num_envs=2, cost_limits=(1,), horizon=9)
    env.reset(0)
    run(env, 2)
    with pytest.raises(
        BrokenEnvironmentError, match=r"step\(\) raised ZeroDivisionError: out of stairs \(in step, .*py:"
    ):
        run(env, 1)
    env.close()


def test_an_observation_that_changes_its_shape_is_named():
    """NumPy's "Output array is the wrong shape" told nobody what to mend."""
    env = host_env(stairs(), num_envs=2, cost_limits=(1,), horizon=9)
    Stairs.observe, kept = (lambda self: np.zeros(2)), Stairs.observe
    try:
        with pytest.raises(BrokenEnvironmentError, match=r"^reset\(\): .* shape \(1,\), saw \(2,\): return what"):
            env.reset(0)
    finally:
        Stairs.observe = kept


class Leaving(Stairs):
    """Ends the program at its first reset or step."""

    def __init__(self, call="step", **options):
        super().__init__(**options)
        self.call = call

    def reset(self, *, seed=None, options=None):
        return sys.exit() if self.call == "reset" else super().reset(seed=seed)

    def step(self, action):
        return sys.exit(0)


LEFT = [("step", r"^step\(\) called sys.exit\(0\) \(in step"), ("reset", r"^reset\(\) called sys.exit\(\)")]


@pytest.mark.parametrize(("call", "message"), LEFT)
def test_an_environment_that_ends_the_program_is_broken(call, message):
    """The command ended with exit code 0 and had trained nothing."""
    with pytest.raises(BrokenEnvironmentError, match=message):
        host_env(lambda: Leaving(call), num_envs=1, cost_limits=(1,), horizon=9)
    # In a process of its own nobody else is there to tell.
    single = FlatEnv(Leaving(call), CostSource(("cost",), ("cost",)))
    with pytest.raises(BrokenEnvironmentError, match=message):
        single.reset(seed=0) if call == "reset" else single.step(5)


def test_a_factory_that_ends_the_program_is_refused():
    with pytest.raises(InputError, match=r"exit cannot be made with {}: it called sys.exit\(\)"):
        host_env(sys.exit, num_envs=1, cost_limits=(1,))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_environment_that_hangs_is_given_up(vectorization):
    timeout = 0.3 if vectorization == "sync" else 30.0
    options = {"cost_limits": (1,), "horizon": 9, "timeout": timeout, "env_options": {"how": "hang"}}
    env = host_env(stubborn, num_envs=1, vectorization=vectorization, **options)
    env.reset(0)
    run(env, 2)
    env._backend._timeout = 0.3  # a process may need seconds to start
    before, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(BrokenEnvironmentError, match=r"step\(\) did not return within 0.3 s \(task option timeout"):
        run(env, 1)
    env.close()
    assert time.monotonic() - began < 10
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_process_that_ends_while_it_starts_is_told_in_one_line():
    def factory():
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return stubborn()

    with pytest.raises(BrokenEnvironmentError, match=r"ended while it started.*vectorization=sync"):
        GymnasiumBackend([factory], "async")


def test_a_cost_that_is_no_number_is_refused():
    source = CostSource(("cost",), ("cost",))
    for value in ({"a": 1}, "x", [[1.0], [1.0, 2.0]], 10**400):
        with pytest.raises(BrokenEnvironmentError, match="is no number"):
            source.read({"cost": value})


def test_a_cost_function_that_raises_is_named():
    def costs(obs, action, next_obs):
        raise KeyError("where")

    with pytest.raises(BrokenEnvironmentError, match="cost_fn raised KeyError: 'where'"):
        host_env("Pendulum-v1", num_envs=1, cost_fn=costs, cost_limits=(1,))


@pytest.mark.bad_input
@pytest.mark.parametrize("timeout", [0, np.nan, np.inf, "soon"])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(InputError, match="timeout="):
        host_env(stairs, num_envs=1, cost_limits=(1,), timeout=timeout)


class Told(Stairs):
    """Says in `info`, not in the observation, how high it stands: a number, an array and some words."""

    def step(self, action):
        *rest, _ = super().step(action)
        info = {"height": self.time, "pair": np.array([self.time, -1.0]), "words": "up", "late": {"no": "number"}}
        return *rest, info | ({} if self.costs == "cost" or self.time < 3 else {"height": "high"})


def too_high(obs, action, next_obs, info):
    assert info.keys() == {"height", "pair"}
    assert info["pair"].shape == (len(obs), 2)
    return np.stack([info["height"], info["pair"][:, 0] + info["pair"][:, 1]], 1)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_cost_function_may_ask_for_info(vectorization):
    """Of every step, the last of an episode too, whose info Gymnasium keeps apart."""
    with host_env(
        Told, num_envs=2, cost_fn=too_high, cost_limits=(1, 1), horizon=9, vectorization=vectorization
    ) as env:
        env.reset(0)
        np.testing.assert_array_equal(
            [out.costs for out in run(env, 9)], [[[t, t - 1.0]] * 2 for t in (1, 2, 3, 4, 1, 2, 3, 4, 1)]
        )


def test_an_info_that_is_not_there_is_no_silent_zero():
    with host_env(
        lambda: Told(costs="none"),
        num_envs=1,
        cost_fn=lambda o, a, n, info: info["height"],
        cost_limits=(1,),
        horizon=9,
    ) as env:
        env.reset(0)
        run(env, 2)
        with pytest.raises(BrokenEnvironmentError, match=r"the cost of .* is not finite"):
            run(env, 1)


def test_a_fourth_parameter_of_another_name_keeps_its_default():
    def cost_fn(obs, action, next_obs, factor=3.0):
        return factor * np.ones(len(obs))

    with host_env(stairs(), num_envs=1, cost_fn=cost_fn, cost_limits=(1,), horizon=9) as env:
        env.reset(0)
        assert run(env, 1)[0].costs.tolist() == [[3.0]]


def test_the_velocity_of_gymnasiums_cheetah_is_one_line(gymnasium_mujoco):
    with host_env(
        "HalfCheetah-v5", num_envs=2, cost_fn=lambda o, a, n, info: info["x_velocity"] > 3.2096, cost_limits=(25,)
    ) as env:
        env.reset(0)
        env._backend._envs.envs[1].unwrapped.data.qvel[0] = 9.0
        assert env.step(np.zeros((2, 6), np.float32)).costs.tolist() == [[0.0], [1.0]]


def test_gymnasiums_mujoco_environments_name_the_extra_they_need(monkeypatch):
    pytest.importorskip("mujoco")
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "imageio", None)
    with pytest.raises(MissingExtraError, match=r"'HalfCheetah-v5' needs imageio.*pip install 'awavo\[mujoco\]'"):
        host_env("HalfCheetah-v5", num_envs=1, cost_limits=(25,))


class Priced(gym.Wrapper):
    """A wrapper that brings the costs of an environment, with their names and limits."""

    cost_names, cost_limits, horizon = ("size", "time"), (7, 8), 3

    def __init__(self):
        super().__init__(Stairs(ends=99))

    def step(self, action):
        *rest, _ = self.env.step(action)
        return *rest, {"costs": np.array([0.5, 1.0], np.float32)}


def test_attributes_of_a_wrapper_are_those_of_the_environment():
    for make in (Priced, lambda: gym.wrappers.TransformReward(Priced(), lambda reward: reward)):
        with host_env(make, num_envs=1) as env:
            assert env.spec[-3:] == (3, ("size", "time"), (7.0, 8.0))
            env.reset(0)
            assert [bool(o.truncated[0]) for o in run(env, 4)] == [False, False, True, False]
    assert not [found for found in check_env(Priced, steps=20) if "attributes" in found.problem]


def test_a_time_limit_that_a_factory_wraps_around_is_one():
    with host_env(lambda: gym.wrappers.TimeLimit(Stairs(ends=99), 4), num_envs=1, cost_limits=(9,)) as env:
        assert env.spec.horizon == 4
        env.reset(0)
        assert [bool(o.truncated[0]) for o in run(env, 5)] == [False] * 3 + [True, False]
