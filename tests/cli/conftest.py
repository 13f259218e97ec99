"""A tiny run that the tests of the commands share, and how they call a command."""

import contextlib
import io
import json

import pytest

from awavo.cli.main import main

# The words for what the fixture `small_config` says: its programs are compiled already.
SETTINGS = ("num_envs=4", "rollout_length=16", "num_updates=4", "batch_size=16", "hidden=16", "num_quantiles=8")
TINY = ["--steps", "256", "--seeds", "2", "--limits", "150", "150", "--task-option", "horizon=30"]
TINY += [word for setting in (*SETTINGS, "warmup_steps=64") for word in ("--option", setting)]


@pytest.fixture
def tiny():
    """Options of `awavo train` that compile and run in a moment."""
    return TINY


@pytest.fixture
def run(capsys):
    """Run a command: exit code, stdout, stderr."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def trained(once):
    """A run folder made by the command, and the JSON line that it printed."""

    def make(folder):
        folder.mkdir()
        arguments = ["train", "cartpole", *TINY, "--out", str(folder / "run"), "--json"]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert main(arguments) == 0
        (folder / "said.json").write_text(said.getvalue().strip().splitlines()[-1])

    folder = once("cli-trained", make)
    return folder / "run", json.loads((folder / "said.json").read_text())
