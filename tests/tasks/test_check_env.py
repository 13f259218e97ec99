"""The checker finds what it should in environments broken on purpose, one fault each, and nothing in a sound one."""

import sys

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from awavo.errors import InputError
from awavo.networks.normalizer import normalize, running_statistics, update_statistics
from awavo.registry import check_option
from awavo.tasks.base import Transition, auto_reset
from awavo.tasks.check_env import Finding, check_env, check_functional
from awavo.types import Discrete, EnvSpec


class Sound(gym.Env):
    """A walk in a box: 20 steps at most, over at once beyond 1; the cost is the distance beyond a half."""

    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1, 2).astype(np.float32)
        self.time, self.total = 0, 0.0
        return self.place.copy(), {"cost": 0.0}

    def step(self, action):
        self.time += 1
        self.place = np.clip(self.place + 0.3 * action, -2, 2).astype(np.float32)
        cost = float(np.maximum(np.abs(self.place) - 0.2, 0).sum())
        over = bool((np.abs(self.place) > 1).any())
        return self.place.copy(), float(self.place[0]), over, self.time >= 20 and not over, {"cost": cost}


def levels(findings):
    return {f.level for f in findings}


def has(findings, level, text):
    return any(f.level == level and text in f.problem for f in findings)


def broken(step=None, reset=None, **attributes):
    """Sound, with the results of `step` or `reset` passed through a function of (env, result)."""

    class Broken(Sound):
        def reset(self, *, seed=None, options=None):
            result = super().reset(seed=seed, options=options)
            return reset(self, result) if reset else result

        def step(self, action):
            result = super().step(action)
            return step(self, result) if step else result

    for name, value in attributes.items():
        setattr(Broken, name, value)
    return Broken


def info(**entries):
    """A step whose info is made by functions of (env, cost)."""
    return lambda env, r: (
        *r[:4],
        {k: f(env, r[4]["cost"]) for k, f in entries.items() if f(env, r[4]["cost"]) is not None},
    )


def running_total(env, result):
    env.total += result[4]["cost"]
    return (*result[:4], {"cost": env.total})


def endless_total(env, result):
    env.sum = getattr(env, "sum", 0.0) + result[4]["cost"]
    return (*result[:4], {"cost": env.sum})


def reset_inside(env, result):
    if result[2] or result[3]:
        return (env.reset()[0], *result[1:])
    return result


def same_array(env, result):
    env.buffer = getattr(env, "buffer", np.zeros(2, np.float32))
    env.buffer[:] = result[0]
    return (env.buffer, *result[1:])


class NoSeed(Sound):
    def reset(self):
        return super().reset()


class NoOptions(Sound):
    def reset(self, *, seed=None):
        return super().reset(seed=seed)


class Crashes(Sound):
    def step(self, action):
        raise RuntimeError("motor on fire")


class Leaves(Sound):
    def step(self, action):
        sys.exit(0)


class Spoken(Sound):
    def reset(self, *, seed=None, options=None):
        return self.consult()

    def consult(self):
        raise ValueError("one line\nand another")


NOISE = np.random.default_rng()

FAULTS = {
    "seven values": (broken(lambda e, r: (*r[:2], 0.0, 0.0, *r[2:])), "error", "expected 5 values"),
    "four values": (broken(lambda e, r: (*r[:2], r[2] or r[3], r[4])), "error", "saw 4"),
    "reset without info": (broken(reset=lambda e, r: r[0]), "error", "reset(): expected (obs, info)"),
    "reset without seed": (NoSeed, "error", "keyword seed"),
    "reset without options": (NoOptions, "error", "expected the keyword options, saw the parameters ['seed']"),
    "no cost": (broken(info()), "error", "expected costs in info"),
    "cost sometimes": (broken(info(cost=lambda e, c: c or None)), "error", "on every step, saw []"),
    "integer cost": (broken(info(cost=lambda e, c: int(c > 0))), "warning", "expected floats in info['cost'], saw int"),
    "cost is an array": (broken(info(cost=lambda e, c: np.array([c, c]))), "error", "saw shape (2,)"),
    "a named cost is an array": (broken(info(cost_a=lambda e, c: np.array([c]))), "error", "saw shape (1,)"),
    "cost is a number as text": (broken(info(cost=lambda e, c: "1.0")), "error", "expected numbers in info['cost']"),
    "too many limits": (broken(cost_limits=(1, 2)), "error", "2 cost limits given, but the task has 1 cost"),
    "a negative limit": (broken(cost_limits=-1), "error", "the limit of cost 'cost' is -1.0, expected"),
    "too few names": (
        broken(info(costs=lambda e, c: np.full(2, c, np.float32)), cost_names=("a",)),
        "error",
        "for 2 costs in info",
    ),
    "no horizon": (broken(horizon=-5), "error", "horizon=-5"),
    "cost is text": (broken(info(cost=lambda e, c: "much")), "error", "expected numbers in info['cost']"),
    "costs as float64 list": (broken(info(costs=lambda e, c: [c, c])), "warning", "saw list"),
    "costs too many": (broken(info(costs=lambda e, c: np.full(3, c)), num_costs=2), "error", "shape (2,), saw (3,)"),
    "costs change length": (broken(info(costs=lambda e, c: np.full(1 + e.time % 2, c))), "error", "saw (1,)"),
    "costs are a matrix": (broken(info(costs=lambda e, c: np.full((1, 2), c))), "error", "saw (1, 2)"),
    "sum differs": (
        broken(info(costs=lambda e, c: np.full(2, c, np.float32), cost=lambda e, c: c + 1.0)),
        "warning",
        "to be the sum of info['costs']",
    ),
    "negative cost": (broken(info(cost=lambda e, c: c - 1.0)), "warning", "expected costs >= 0"),
    "nan cost": (broken(info(cost=lambda e, c: float("nan"))), "error", "expected finite costs"),
    "cost never positive": (broken(info(cost=lambda e, c: 0.0)), "info", "all costs were 0"),
    "cost so far": (broken(running_total), "warning", "only rises in an episode"),
    "cost for ever": (broken(endless_total), "error", "runs on through resets"),
    "no cost on reset": (broken(reset=lambda e, r: (r[0], {})), "warning", "reset(): expected ['cost'] in info"),
    "cost on reset": (broken(reset=lambda e, r: (r[0], {"cost": 3.0})), "error", "reset(): expected costs of 0"),
    "both flags": (broken(lambda e, r: (*r[:3], r[2] or r[3], r[4])), "warning", "saw both"),
    "flags are integers": (broken(lambda e, r: (*r[:2], int(r[2]), int(r[3]), r[4])), "error", "to be a bool, saw int"),
    "time limit as termination": (
        broken(lambda e, r: (*r[:2], e.time >= 5, False, r[4])),
        "warning",
        "saw terminated=True after 5 steps",
    ),
    "never ends": (broken(lambda e, r: (*r[:2], False, False, r[4])), "error", "expected an episode to end"),
    "resets itself": (broken(reset_inside), "warning", "saw one like those of reset()"),
    "final_obs in info": (
        broken(lambda e, r: (*r[:4], r[4] | ({"final_obs": r[0]} if r[2] else {}))),
        "error",
        "no reset inside a single environment",
    ),
    "reward is an array": (broken(lambda e, r: (r[0], np.array([1.0]), *r[2:])), "error", "finite float reward"),
    "reward is nan": (broken(lambda e, r: (r[0], float("nan"), *r[2:])), "error", "finite float reward"),
    "info is a list": (broken(lambda e, r: (*r[:4], [])), "error", "info to be a dictionary"),
    "float64 observation": (broken(lambda e, r: (r[0].astype(float), *r[1:])), "warning", "dtype float32, saw"),
    "wrong shape": (broken(lambda e, r: (r[0][:1], *r[1:])), "error", "of shape (2,), saw (1,)"),
    "nan observation": (broken(lambda e, r: (r[0] * np.float32("nan"), *r[1:])), "error", "finite observations"),
    "out of bounds": (broken(lambda e, r: (r[0] + np.float32(9), *r[1:])), "warning", "component 0 of the observation"),
    "same array": (broken(same_array), "error", "saw the same array again"),
    "own noise": (broken(lambda e, r: (r[0], NOISE.normal(), *r[2:])), "error", "the same rewards twice"),
    "own noise on reset": (
        broken(reset=lambda e, r: ((r[0] + NOISE.normal(size=2) / 99).astype(np.float32), r[1])),
        "error",
        "the same starts twice",
    ),
    "always the same start": (broken(reset=lambda e, r: (r[0] * 0, r[1])), "info", "the same first observation"),
    "unbounded actions": (broken(action_space=spaces.Box(-np.inf, np.inf, (2,))), "error", "infinite bounds"),
    "actions off centre": (broken(action_space=spaces.Box(0, 1, (2,))), "warning", "symmetric around 0"),
    "binary actions": (broken(action_space=spaces.MultiBinary(2)), "error", "expected Discrete or a Box"),
    "image": (broken(observation_space=spaces.Box(0, 255, (9, 9, 3), np.uint8)), "error", "holds an image"),
    "no space": (broken(observation_space=None), "error", "observation_space: expected a gymnasium.spaces.Space"),
    "leaves": (Leaves, "error", "step() called sys.exit(0)."),
    "two lines": (Spoken, "error", "reset() raised ValueError: one line and another."),
    "crash": (Crashes, "error", "step() raised RuntimeError: motor on fire"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named(name):
    factory, level, text = FAULTS[name]
    findings = check_env(factory, steps=400 if name == "resets itself" else 100)
    assert has(findings, level, text), findings
    assert all(isinstance(f, Finding) and f.remedy.endswith(".") and "\n" not in f.problem for f in findings)


@pytest.mark.parametrize(("factory", "call"), [(Crashes, "step()"), (Spoken, "reset()")])
def test_the_remedy_names_the_call_that_failed(factory, call):
    (finding,) = check_env(factory, steps=20)
    assert finding.remedy.startswith(f"Make {call} run")


def test_a_sound_environment_has_no_findings(capsys):
    assert check_env(Sound) == []
    assert check_env(Sound()) == []
    assert capsys.readouterr() == ("", "")


def test_a_cost_function_is_checked_too():
    fine = {"cost_fn": lambda obs, action, next_obs: np.abs(next_obs[:, 2]), "steps": 300}
    assert check_env("Pendulum-v1", **fine) == []
    assert has(check_env("Pendulum-v1", steps=300), "error", "expected costs in info")
    for wrong, text in (
        (lambda obs, action, next_obs: abs(next_obs[2]), "cost_fn"),
        (lambda obs, action, next_obs: next_obs[:, 7], "IndexError"),
        (lambda obs, action, next_obs: next_obs[:, 2] - next_obs[:, 2].mean(), "whatever stands beside it"),
    ):
        assert has(check_env("Pendulum-v1", cost_fn=wrong, steps=300), "error", text)


def test_a_cost_function_may_ask_for_info():
    class Told(Sound):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {"far": info["cost"], "words": "none"}

    assert check_env(Told, cost_fn=lambda obs, action, next_obs, info: info["far"], steps=200) == []
    found = check_env(Told, cost_fn=lambda obs, action, next_obs, info: info["near"], steps=200)
    assert has(found, "error", "KeyError")


def test_a_cost_function_gets_the_actions_that_training_gives_it():
    class Square(Sound):
        action_space = spaces.Box(-1, 1, (2, 2), np.float32)

        def step(self, action):
            assert action.shape == (2, 2)
            return super().step(action[0, :1])

    seen = []

    def fast(obs, action, next_obs):
        seen.append(action.shape[1:])
        return np.abs(action[:, 3])

    assert check_env(Square, cost_fn=fast, steps=200) == []
    assert set(seen) == {(4,)}


def test_what_a_cost_function_raised_is_said_in_one_sentence():
    found = check_env(Sound, cost_fn=lambda obs, action, next_obs: ["a"] * len(obs), steps=200)
    (problem,) = [f.problem for f in found if f.level == "error"]
    assert problem.startswith("cost_fn: raised ValueError: could not convert")
    assert not problem.endswith("..")


@pytest.mark.parametrize(("size", "lost"), [(1e-3, False), (1e-5, True), (0.0, False)])
def test_components_that_networks_take_for_constants_are_named(size, lost):
    def shrink(env, result):
        obs = result[0].copy()
        obs[-1] *= size
        return obs, *result[1:]

    found = check_env(broken(step=shrink, reset=shrink), steps=200)
    assert has(found, "warning", "1 component with a standard deviation of at most 0.0001") is lost
    # What is said of networks is what they do.
    rows = np.float32(np.random.default_rng(0).normal(0, size or 1e-5, (100, 1)))
    scaled = normalize(update_statistics(running_statistics(1), rows), rows)
    assert bool(np.abs(scaled).max() < 0.1) is (size < 1e-4)


def test_limits_are_compared_with_what_random_actions_cost():
    assert check_env(Sound, cost_limits=(1,), steps=200) == []
    assert has(check_env(Sound, cost_limits=(50,), steps=200), "info", "within the limits 50")
    assert has(check_env(Sound, cost_limits=(1, 2), steps=200), "error", "expected 1 limit, one for each cost, saw 2")
    both = {"cost_fn": lambda obs, action, next_obs: np.abs(next_obs), "cost_limits": (1, 2), "steps": 200}
    assert check_env(Sound, **both) == []


def test_a_cost_of_one_entry_is_a_number():
    assert check_env(broken(info(cost=lambda e, c: np.array([c]))), steps=200) == []


def test_attributes_are_read_by_the_rules_of_training():
    assert check_env(broken(cost_limits=[1.0], cost_names="far", horizon=25), steps=200) == []
    assert check_env(broken(cost_limits=(1, 2)), cost_limits=(1,), steps=200) == []  # as --limits in training


def test_a_horizon_may_be_a_whole_number_of_numpys():
    assert check_env(broken(horizon=np.int64(25)), steps=200) == []
    assert type(check_option("horizon", np.int64(25), 1)) is int
    assert has(check_env(broken(horizon=np.float32(25.5)), steps=200), "error", "horizon")
    with pytest.raises(InputError, match="is not a whole number"):
        check_option("horizon", np.bool_(True), 1)


def test_what_cannot_be_made_is_a_finding_in_one_line():
    def factory():
        raise ValueError("no\nmotor")

    (finding,) = check_env(factory)
    assert finding.problem == (
        "the environment cannot be made: factory cannot be made with {}: it raised ValueError: no motor."
    )


def test_our_tasks_are_sound():
    assert check_env("awavo/CartPole-v0", steps=300) == []


def functional(step=None, reset=None, horizon=5, limits=(1.0,), out=None):
    """A counter as a functional environment, broken by functions."""

    def plain_reset(key, params):
        return {"n": jnp.zeros(()), "k": jnp.zeros((), jnp.int32)}, jnp.zeros(2)

    def plain_step(key, state, action, params):
        state = {"n": state["n"] + 1, "k": state["k"] + action}
        return state, Transition(jnp.full(2, state["n"]), state["n"], state["n"][None], jnp.zeros((), bool))

    spec = EnvSpec("counter", 2, Discrete(2), horizon, ("a",), limits)
    env = auto_reset(spec, None, reset or plain_reset, step or plain_step)
    if out is None:
        return env

    def changed(key, state, action, params):
        return out(*env.step(key, state, action, params))

    return env._replace(step=changed)


FUNCTIONAL = {
    "limits": (functional(limits=(1.0, 2.0)), "one limit for each"),
    "horizon": (functional(horizon=0), "horizon >= 1"),
    "state dtype": (
        functional(out=lambda s, o: (s._replace(time=s.time * 1.0), o)),
        "state.time as in reset(), int32[]",
    ),
    "state leaf": (functional(out=lambda s, o: (s._replace(inner={"n": s.inner["n"]}), o)), "state.inner['k']"),
    "reward shape": (functional(out=lambda s, o: (s, o._replace(reward=o.reward[None]))), "reward: expected float32[]"),
    "costs shape": (functional(out=lambda s, o: (s, o._replace(costs=o.reward))), "costs: expected float32[1]"),
    "flag dtype": (functional(out=lambda s, o: (s, o._replace(truncated=o.reward))), "truncated: expected bool[]"),
    "no timestep": (functional(out=lambda s, o: (s, tuple(o))), "expected a Timestep"),
    "one value": (functional(out=lambda s, o: o), "expected (state, Timestep)"),
    "python if": (
        functional(out=lambda s, o: (s, o if o.reward > 1 else o._replace(reward=o.costs[0]))),
        "that jax can trace",
    ),
    "nan": (functional(out=lambda s, o: (s, o._replace(reward=o.reward * jnp.nan))), "reward: expected finite"),
    "both flags": (functional(out=lambda s, o: (s, o._replace(terminated=o.truncated))), "saw both"),
    "no end": (functional(out=lambda s, o: (s, o._replace(truncated=o.terminated))), "expected an episode to end"),
    "lost final_obs": (functional(out=lambda s, o: (s, o._replace(final_obs=o.obs * 2))), "final_obs equal to obs"),
    "no reset": (functional(out=lambda s, o: (s, o._replace(obs=o.final_obs))), "obs of the next episode"),
    "negative": (functional(out=lambda s, o: (s, o._replace(costs=-o.costs))), "expected costs >= 0"),
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional_faults_are_named(name):
    env, text = FUNCTIONAL[name]
    findings = check_functional(env, steps=50)
    assert any(text in f.problem for f in findings), findings


def test_a_sound_functional_environment_has_no_findings():
    assert check_functional(functional(), steps=50) == []
