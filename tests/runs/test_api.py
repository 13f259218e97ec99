"""The Python interface refuses what it cannot work with in one line of its own, before anything is made."""

import dataclasses
import json

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces

import awavo
from awavo.deploy.export import spec_contract
from awavo.errors import AwavoError, InputError
from awavo.runs.problem import build_problem

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, None, "abc", True])
def test_the_time_between_checkpoints_is_a_number_of_seconds(tmp_path, seconds):
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"checkpoint_seconds is .*, expected a finite number of seconds >= 0\.$"):
        next(awavo.train_iter(awavo.configure("cartpole"), out, checkpoint_seconds=seconds))
    assert not out.exists()


REFUSED = {
    "no algorithm": (("cartpole", None), {}, "algo=None is not the name of an algorithm"),
    "no task": ((None,), {}, "task=None is neither a name nor a class or function"),
    "discrete actions": (("cartpole", "sac-lagrangian"), {}, "needs continuous actions, but task 'cartpole'"),
    "limits as text": (("cartpole",), {"cost_limits": "30,10"}, "cost_limits='30,10' is text, expected a number"),
    "one limit for two": (("cartpole",), {"cost_limits": 30}, "1 cost limit given, but the task has 2 costs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_configured(case):
    given, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as caught:
        awavo.configure(*given, **options)
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    limits, options = np.array([30, 10.5], np.float32), {"horizon": np.int64(50), "pole_mass": np.float32(0.25)}
    given = awavo.configure(
        "cartpole", cost_limits=limits, task_options=options, steps=np.int64(1000), seeds=np.int8(2)
    )
    same = {"horizon": 50, "pole_mass": 0.25}
    wanted = awavo.configure("cartpole", cost_limits=(30, 10.5), task_options=same, steps=1000, seeds=2)
    assert json.dumps(dataclasses.asdict(given)) == json.dumps(dataclasses.asdict(wanted))
    assert awavo.configure("navigation", cost_limits=np.array(3)).cost_limits == (3.0,)
    assert awavo.configure("cartpole", actor_lr=np.float32(0.25)).algo_options["actor_lr"] == 0.25


@pytest.fixture(scope="module")
def run(small_run):
    return awavo.load(small_run)


ODD = [("abc", "obs is 'abc', expected numbers"), ({"a": 1}, "obs is {'a': 1}, expected"), ([0, 0], r"shape \(2,\)")]
ODD += [([0, 0, 0, bad], r"are not finite or are beyond 1e\+30") for bad in (float("nan"), float("-inf"), 1e31)]


@pytest.mark.parametrize(("obs", "message"), ODD)
def test_an_observation_that_no_policy_knows_is_refused(run, obs, message):
    with pytest.raises(InputError, match=message):
        run.act(obs)


class Rich(gym.Env):
    """An observation of parts."""

    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2, 2), np.float64)})
    action_space = spaces.Box(-1, 1, (1,))
    horizon, cost_limits = 4, (1.0,)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"a": 2, "b": np.ones((2, 2))}, {}

    def step(self, action):
        return {"a": 1, "b": np.ones((2, 2))}, 0.0, False, False, {"cost": 0.0}


def test_an_observation_of_parts_is_flattened_as_in_training(run):
    problem = build_problem(dataclasses.replace(run.config, task="rich", cost_limits=None, task_options={}), env=Rich)
    assert problem.obs_space is Rich.observation_space
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (1, 2), np.float64)})
    given = awavo.load(run.path)
    given.problem = given.problem._replace(obs_space=space)
    expected = given.act([0.0, 1.0, 0.5, -0.5])
    assert given.act({"a": 1, "b": np.array([[0.5, -0.5]])}) == expected
    with pytest.raises(InputError, match=r"or one of Dict\("):
        given.act({"a": 1})


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2, 3)), spaces.Box(-1, 1, (), float)]
)
def test_actions_are_those_that_the_environment_takes(run, smallest, space):
    class Odd(Rich):
        action_space = space

    config = awavo.configure("odd", steps=64, seeds=1, **smallest)
    problem = build_problem(config, env=Odd)
    given = awavo.load(run.path)
    given.problem, given.seeds, given.states = problem, [0], [problem.algorithm.init(jax.random.key(0))]
    raw = np.arange(3) if isinstance(space, spaces.Discrete) else np.full((3, problem.spec.action_space.dim), 0.5)
    given._decide = lambda *_: (raw,)
    many = given.act(np.zeros((3, problem.spec.obs_dim)))
    assert all(np.asarray(one) in space for one in many)
    assert np.asarray(given.act(np.zeros(problem.spec.obs_dim))) in space
    action = spec_contract(problem.spec, problem.act_space)["action"]
    if isinstance(space, spaces.Discrete):
        assert (many.tolist(), action["start"]) == ([-1, 0, 1], -1)
    else:
        assert action["shape"] == list(space.shape)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed -1 is out of range"),
        ({"seed": 2**32 + 5}, "seed 4294967301 is out of range"),  # jax would take it for 5
        ({"seed": 1.5}, r"seed is 1\.5, expected a whole number"),
        ({"episodes": "ten"}, "episodes is 'ten', expected a whole number"),
        ({"episodes": 2.5}, r"episodes is 2\.5, expected a whole number"),
        ({"episodes": 0}, "episodes 0 is out of range"),
    ],
)
def test_episodes_and_their_seed_are_whole_numbers(run, options, message):
    with pytest.raises(InputError, match=message):
        awavo.evaluate(run, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run, out: awavo.train("cartpole", out), r"'cartpole' is no TrainConfig: give awavo\.configure\("),
        (lambda run, out: awavo.train(Rich, out), r"is no TrainConfig: give awavo\.configure\("),
        (lambda run, out: awavo.train(run.config, None), "no folder to write the run to: pass one, or use train_iter"),
        (lambda run, out: awavo.evaluate(str(run.path)), r"is no Run: give awavo\.load\(folder\)"),
        (lambda run, out: awavo.certify(run.path), r"is no Run: give awavo\.load\(folder\)"),
        (lambda run, out: run.act(np.zeros(4), greedy=False, key=3), "key=3 is no random key: pass key=jax"),
    ],
)
def test_what_was_given_in_the_place_of_something_else_is_named(run, tmp_path, call, message):
    with pytest.raises(InputError, match=message):
        call(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_and_files_of_explanations_may_be_text(tmp_path):
    pytest.importorskip("mcap")
    from awavo.runs.explain_flight import explain_record
    from awavo.runs.explain_ulog import explain_ulog

    for name, explain in (("a.mcap", explain_record), ("a.ulg", explain_ulog)):
        for out in (None, str(tmp_path / "out")):
            with pytest.raises(AwavoError, match=name):
                explain(str(tmp_path / name), out)
