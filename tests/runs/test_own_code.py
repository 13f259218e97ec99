"""A user's own environment and cost function: found in the current folder, passed as they are, trusted once."""

import dataclasses
import json
import os
import sys

import gymnasium as gym
import numpy as np
import pytest

import awavo
from awavo.config import fingerprint
from awavo.errors import InputError, RunFolderError, UnknownNameError
from awavo.registry import import_named, name_of
from awavo.results.store import FORMAT, write_sealed
from awavo.runs.problem import build_problem
from awavo.runs.trust import is_trusted, remember, trust_file

MINE = """
import gymnasium as gym
import numpy as np
from beside import LIMITS

class Point(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    cost_names, cost_limits, horizon = ("speed", "zone"), LIMITS, 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        return self.place.astype(np.float32), {"costs": np.zeros(2, np.float32)}

    def step(self, action):
        self.place = self.place + action
        costs = [np.abs(action).max() > 0.5, np.abs(self.place).max() < 0.3]
        return self.place.astype(np.float32), -1.0, False, False, {"costs": np.array(costs, np.float32)}

def fast(obs, action, next_obs):
    return np.abs(next_obs[:, 0]) > 1
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with mine.py and what it imports, as the current one; nothing of it on the path, nothing trusted."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside.py").write_text("LIMITS = (4, 2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", os.getcwd())])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in ("mine", "beside"):
        sys.modules.pop(name, None)


@pytest.fixture
def forget():
    """Forget the modules, as a new process would."""

    def forget_modules():
        for name in ("mine", "beside"):
            sys.modules.pop(name, None)

    return forget_modules


def test_the_current_folder_is_searched_last_and_named(mine):
    assert import_named("mine:fast", "cost_fn")(0, 0, np.array([[2.0]]))[0]
    assert sys.path[-1] == str(mine)
    (mine / "json.py").write_text("raise RuntimeError('the wrong json')")
    assert import_named("json:loads", "cost_fn") is json.loads
    with pytest.raises(InputError, match=rf"No module named 'nine'.*\({mine}\)"):
        import_named("nine:fast", "cost_fn")
    with pytest.raises(InputError, match=r"mine.py has no 'fats'. Did you mean 'fast'"):
        import_named("mine:fats", "cost_fn")


def test_names_limits_and_horizon_are_attributes_of_the_environment(mine, small):
    spec = build_problem(awavo.configure("mine:Point", steps=64, seeds=1, **small)).spec
    assert (spec.cost_names, spec.cost_limits, spec.horizon) == (("speed", "zone"), (4.0, 2.0), 10)
    options = {"horizon": 7, "cost_names": ("a", "b")}
    spec = build_problem(awavo.configure("mine:Point", cost_limits=(1, 1), task_options=options, **small)).spec
    assert (spec.cost_names, spec.cost_limits, spec.horizon) == (("a", "b"), (1.0, 1.0), 7)


def test_episodes_end_at_the_horizon_of_the_class(mine):
    from awavo.tasks.check_env import check_env
    from awavo.tasks.host import host_env
    from awavo.tasks.making import find_source

    host = host_env(find_source("mine:Point"), num_envs=1)
    host.reset(0)
    ends = [bool(host.step(np.zeros((1, 2), np.float32)).truncated[0]) for _ in range(20)]
    host.close()
    assert np.flatnonzero(ends).tolist() == [9, 19]
    assert [f.level for f in check_env("mine:Point") if f.level != "info"] == []


def test_a_module_may_register_an_id_instead(mine):
    from awavo.tasks.making import find_source, make_gymnasium

    with (mine / "mine.py").open("a") as file:
        file.write("\ngym.register('Mine-v0', entry_point=Point, max_episode_steps=5)\n")
    try:
        assert make_gymnasium(find_source("mine:Mine-v0"), {}, None).spec.max_episode_steps == 5
        with pytest.raises(UnknownNameError, match=r"has no 'Pont' and registers no such id. Did you mean 'Point'"):
            find_source("mine:Pont")
    finally:
        gym.registry.pop("Mine-v0", None)


def test_a_class_and_a_function_go_straight_to_configure(mine):
    point, fast = import_named("mine:Point", "task"), import_named("mine:fast", "cost_fn")
    config = awavo.configure(point, cost_fn=fast, cost_limits=30)
    assert (config.task, config.cost_fn, config.cost_limits) == ("mine:Point", "mine:fast", (30.0,))
    for nameless in (lambda: point(), type("Local", (point,), {})):
        with pytest.raises(InputError, match=r"define it at the top of a file, .* train\(config, out, env=...\)"):
            awavo.configure(nameless)


def test_an_option_of_neither_is_suggested_from_both():
    with pytest.raises(UnknownNameError, match=r"has an option 'step'. Did you mean 'steps'"):
        awavo.configure("cartpole", step=5)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'discount'"):
        awavo.configure("cartpole", discont=0.9)


def test_a_factory_without_a_name_goes_to_train(mine, smallest, tmp_path):
    point = import_named("mine:Point", "task")
    config = awavo.configure("a point", steps=64, seeds=1, **smallest)
    run = awavo.train(config, tmp_path / "run", env=lambda: point())
    assert run.problem.spec.cost_names == ("speed", "zone")
    with pytest.raises(awavo.errors.AwavoError):
        awavo.load(tmp_path / "run")
    assert awavo.load(tmp_path / "run", env=point).env_steps == 64


def test_what_was_trained_here_opens_without_being_trusted_again(mine, smallest, forget):
    awavo.train(awavo.configure(import_named("mine:Point", "task"), steps=64, seeds=1, **smallest), mine / "run")
    forget()
    assert awavo.load(mine / "run").env_steps == 64
    assert trust_file().stat().st_mode & 0o077 == 0
    assert trust_file().parent.stat().st_mode & 0o077 == 0
    assert not any("trust" in path.name for path in (mine / "run").rglob("*"))


@pytest.fixture
def trained(mine, small):
    """As if trained here: opening a folder asks for trust before it misses the checkpoint."""
    config = awavo.configure("mine:Point", steps=64, seeds=1, **small)
    stored = dataclasses.asdict(config)
    meta = {
        "format": FORMAT,
        "fingerprint": fingerprint(config),
        "config": stored,
        "spec": {"cost_names": [], "cost_limits": []},
    }
    (mine / "run").mkdir()
    write_sealed(mine / "run" / "config.json", meta)
    import_named("mine:Point", "task")
    remember(stored, ["mine:Point"])
    return mine / "run"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "mine.py").write_text(MINE + "\n# edited"),
        lambda folder: (folder / "beside.py").write_text("LIMITS = (5, 2)\n"),
        lambda folder: os.environ.update(XDG_STATE_HOME=str(folder / "elsewhere")),
        lambda folder: trust_file().chmod(0o666),
    ],
    ids=["the file", "what it imports", "another user", "a list that others can write"],
)
def test_changed_code_is_asked_for_again_and_not_run(trained, mine, forget, change, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", os.environ["XDG_STATE_HOME"])
    change(mine)
    forget()
    with pytest.raises(RunFolderError, match=r"names code to run .* add --trust once"):
        awavo.load(trained)
    assert "mine" not in sys.modules
    with pytest.raises(RunFolderError, match="no usable checkpoint"):
        awavo.load(trained, trust=True)
    if trust_file().stat().st_mode & 0o022 == 0:
        forget()
        with pytest.raises(RunFolderError, match="no usable checkpoint"):
            awavo.load(trained)


def test_code_that_is_not_found_from_here_is_not_said_to_have_changed(trained, mine, forget, monkeypatch):
    forget()
    monkeypatch.chdir(trained)  # in the run folder itself
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(mine)])
    with pytest.raises(RunFolderError, match=rf"'mine' is not found from here .*: run this in {mine}, where it was"):
        awavo.load(trained)
    trust_file().unlink()
    with pytest.raises(RunFolderError, match="run this in the folder that has it, or put that folder on PYTHONPATH"):
        awavo.load(trained)


def test_another_configuration_with_the_same_code_is_asked_for(trained, mine, small):
    stored = json.loads((trained / "config.json").read_text())["config"]
    assert is_trusted(stored, ["mine:Point"])
    assert not is_trusted({**stored, "task": "mine:fast"}, ["mine:fast"])
    assert not is_trusted({**stored, "seeds": 2}, ["mine:Point"])
    (mine / "shadow").mkdir()
    (mine / "shadow" / "mine.py").write_text(MINE)
    sys.path.insert(0, str(mine / "shadow"))  # the same text elsewhere imports who knows what beside it
    assert not is_trusted(stored, ["mine:Point"])


def test_code_of_the_main_program_is_named_when_it_is_gone(small, tmp_path):
    with pytest.raises(InputError, match="was defined in the program that trained it"):
        import_named("__main__:Point", "task")
    with pytest.raises(InputError, match="no name that can be imported"):
        name_of(lambda: None, "task")


def test_names_of_the_class_go_with_its_limits_whatever_the_entries_are_called():
    from awavo.tasks.host_core import find_costs

    known = ("zone", "speed")
    assert find_costs({"cost_speed": 1.0, "cost_zone": 0.0}, None, known).keys == ("cost_zone", "cost_speed")
    assert find_costs({"cost_speed": 1.0, "cost_zone": 0.0}, None, None).names == ("speed", "zone")
    assert find_costs({"cost": 1.0}, None, ("speed",)).names == ("speed",)
    assert find_costs({"cost": 1.0}, None, known).names == ("cost",)


@pytest.mark.parametrize("algo", ["orpo-dr", "awavo", "crpo", "paets", "ppo-lagrangian", "cal"])
def test_names_of_options_are_read_from_the_source_as_they_are(algo):
    from awavo.registry import ALGORITHMS
    from awavo.runs.problem import _field_names, settings_class

    assert _field_names(*ALGORITHMS[algo].config.split(":")) == {
        f.name for f in dataclasses.fields(settings_class(algo))
    }


def test_an_environment_of_a_program_that_ended_is_said_to_be_gone_with_it():
    from awavo.tasks.making import find_source

    with pytest.raises(InputError, match="task='__main__:Point' was defined in the program that trained it: move it"):
        find_source("__main__:Point")
