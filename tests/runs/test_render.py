"""One episode of a run is played on the run's own task: its limits, its options; and nothing is left open."""

import json

import pytest

import awavo
from awavo.cli.main import main
from awavo.errors import InputError
from awavo.runs import render
from awavo.runs.render import render_run, render_task
from awavo.tasks.goal.walker import WalkerBackend


@pytest.fixture
def walker(walker_job):
    return walker_job[0]


@pytest.fixture
def closed(monkeypatch):
    """Counts the hosts that were closed."""
    calls = []
    real = WalkerBackend.close
    monkeypatch.setattr(WalkerBackend, "close", lambda self: (calls.append(self), real(self))[1])
    return calls


def test_a_run_is_drawn_with_its_own_limits_and_options(walker, closed, tmp_path, capsys):
    arguments = ["--steps", "3", "--video", "none", "--out", str(tmp_path), "--json"]
    assert main(["render", str(walker), *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    record = json.loads((tmp_path / "flight.json").read_text())
    assert list(record["limits"].values()) == [1.5]
    assert len(record["cylinders"]) == 3
    assert len(record["path"]["position"]) == 3
    assert said["written"] == [str(tmp_path / "flight.json"), str(tmp_path / "picture.png")]
    # One was opened to learn the task's shapes, one to play.
    assert len(closed) == 2


def test_the_host_is_closed_when_the_episode_fails(walker, closed, tmp_path, monkeypatch):
    run = awavo.load(walker)
    closed.clear()

    def fail(*_):
        raise RuntimeError("fell over")

    monkeypatch.setattr(render, "play_host", fail)
    with pytest.raises(RuntimeError, match="fell over"):
        render_run(run, tmp_path / "out", steps=1)
    assert len(closed) == 1
    assert not (tmp_path / "out").exists()


def test_from_python_a_request_is_checked_before_anything_is_played(tmp_path):
    with pytest.raises(InputError, match="not one of gif, mp4, none"):
        render_task("drone", tmp_path / "out", video="avi")
    with pytest.raises(InputError, match="must be >= 1"):
        render_task("drone", tmp_path / "out", steps=0)
    assert not (tmp_path / "out").exists()


def test_a_task_takes_options(tmp_path):
    made = render_task("drone", tmp_path, options={"num_hazards": 2}, steps=2, video="none")
    assert len(made.record["spheres"]) == 2
    assert made.record["ended"] == "steps"
