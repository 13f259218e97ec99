"""`awavo bridge install`: an interpreter is found, made ready whole or not at all, and found again."""

import sys

import pytest

from awavo.errors import InputError
from awavo.runs.budget import default_budget, default_episodes, guess_time
from awavo.runs.configure import configure
from awavo.tasks import bridge_install
from awavo.tasks.bridge_install import MARK, PACKAGES, Package, find_interpreter, install, installed_python

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user with nothing installed, for whom a package of the standard library stands for Safety-Gymnasium."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setitem(PACKAGES, "safety-gymnasium", Package("nothing==1", "json", (HERE,), "X-v0"))
    return tmp_path


def without_pip(monkeypatch, failure=""):
    """Let pip install nothing, or fail with a line."""
    run = bridge_install._run

    def act(command, about):
        if "pip" not in command:
            command = [*command[:3], "--without-pip", *command[3:]] if "venv" in command else command
            return run(command, about)
        return run([sys.executable, "-c", f"import sys; sys.exit({failure!r} or 0)"], about)

    monkeypatch.setattr(bridge_install, "_run", act)


def test_it_is_made_once_and_found_by_the_bridge(home, monkeypatch):
    without_pip(monkeypatch)
    assert installed_python() is None
    python = install("safety-gymnasium", python=sys.executable)
    assert python == installed_python()
    assert python.is_file()
    monkeypatch.setattr(bridge_install, "_run", lambda *_: pytest.fail("it was ready"))
    assert install("safety-gymnasium") == python


def test_a_failure_is_one_line_and_leaves_nothing(home, monkeypatch):
    without_pip(monkeypatch, "ERROR: No matching distribution found for pygame==2.1.0")
    with pytest.raises(
        InputError, match=r"cannot be installed with .*: No matching distribution found for pygame"
    ) as told:
        install("safety-gymnasium", python=sys.executable)
    assert "\n" not in str(told.value)
    assert installed_python() is None
    assert not (home / "data" / "awavo" / "bridges" / "safety-gymnasium").exists()


def test_folders_in_use_and_wrong_interpreters_are_refused(home, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(InputError, match="is not empty"):
        install("safety-gymnasium", tmp_path / "used", sys.executable)
    with pytest.raises(InputError, match=r"no package is named 'safety_gymnasium'.*safety-gymnasium"):
        install("safety_gymnasium")
    with pytest.raises(InputError, match="cannot be started"):
        find_interpreter("safety-gymnasium", "/no/python")
    assert (tmp_path / "used" / "file").exists()
    assert not (tmp_path / "used" / MARK).exists()


def test_no_fitting_interpreter_is_said_in_one_line(home, monkeypatch):
    monkeypatch.setitem(PACKAGES, "safety-gymnasium", Package("nothing==1", "json", ("3.1",), "X-v0"))
    with pytest.raises(InputError, match=r"needs Python 3\.1, and none was found"):
        find_interpreter("safety-gymnasium")
    with pytest.raises(InputError, match=r"has wheels for 3\.1 alone"):
        find_interpreter("safety-gymnasium", sys.executable)


def test_bridged_tasks_have_budgets_that_fit(home):
    assert default_budget("orpo-dr", "cpu", "bridge:X-v0") == (20_000, 1)
    assert default_budget("orpo-dr", "cpu", "cartpole").seeds == 10
    assert (default_episodes("bridge:X-v0"), default_episodes("cartpole")) == (10, 100)
    config = configure("bridge:X-v0", num_envs=3, seeds=2, task_options={"python": sys.executable})
    assert config.steps == 20_000
    assert "6 processes" in guess_time(config, "cpu")
