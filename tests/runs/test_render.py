"""One episode of a run is played on the run's own task, whatever it is: its limits, its options; nothing stays open."""

import json
import os
import shutil
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import awavo
from awavo.cli.main import main
from awavo.errors import InputError
from awavo.registry import HOST_TASKS, TASKS
from awavo.runs import render
from awavo.runs.display import Display
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


def test_it_says_how_far_the_episode_is_and_that_it_draws(tmp_path, monkeypatch):
    monkeypatch.delenv("AWAVO_QUIET", raising=False)
    works, push = [], Display.push
    monkeypatch.setattr(Display, "push", lambda display, work: (works.append(work), push(display, work))[1])
    render_task("cartpole", tmp_path, steps=3)
    assert [(work.what, work.done, work.total) for work in works] == [
        ("playing the episode", 3, 3),
        ("drawing the video (3 pictures)", 0, None),
    ]


def test_a_run_becomes_a_video_whose_panel_counts_the_costs(small_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    made = awavo.load(folder).render()
    assert [path.name for path in made.written] == ["episode.json", "picture.png", "video.gif"]
    record = json.loads((folder / "episode.json").read_text())
    assert record["limits"] == {"position": 150.0, "angle": 150.0}
    assert record["costs"]["position"] == pytest.approx(np.sum(record["step_costs"], 0)[0])
    assert record["video"] == "video.gif"
    with Image.open(folder / "video.gif") as video:
        assert video.n_frames == len(record["step_rewards"]) <= 30
        first, last = (np.asarray((video.seek(i), video.convert("RGB"))[1], int) for i in (0, video.n_frames - 1))
    # The cart's picture moves, and so do the numbers on the panel at its right.
    moved = np.abs(first - last).sum(-1) > 60
    assert moved[:, :480].sum() > 50
    assert moved[:, 490:].sum() > 50
    assert "data:image/gif;base64," in made._repr_html_()


@pytest.mark.parametrize("name", sorted({*TASKS, *HOST_TASKS} - {"walker-mjx", "drone", "quadrotor", "walker"}))
def test_every_built_in_task_is_drawn(name, tmp_path):
    made = render_task(name, tmp_path, steps=2, video="none")
    assert made.notes == []
    with Image.open(tmp_path / "picture.png") as picture:
        left = np.asarray(picture.convert("RGB"))[:, :480].reshape(-1, 3)
    assert len(np.unique(left, axis=0)) > 3


class Drawn(gym.Env):
    """Goes up by one a step, and shows a red square where it is told to draw."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(2, self.time, np.float32), 1.0, False, False, {"cost": float(self.time > 2)}

    def render(self):
        picture = np.full((40, 40, 3), 255, np.uint8)
        picture[10:30, 10:30] = (200, 0, 0)
        return picture


class Silent(Drawn):
    """Takes no render mode, as most environments that people write."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self):
        super().__init__()

    render = gym.Env.render  # which raises


@pytest.mark.parametrize(("kind", "red"), [(Drawn, True), (Silent, False)])
def test_an_own_environment_shows_its_rgb_array_or_its_observation(kind, red, tmp_path, smallest, monkeypatch):
    name = f"awavo-tests/{kind.__name__}-v0"
    gym.register(name, kind, max_episode_steps=6)
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    seen, reset = set(), kind.reset
    try:
        run = awavo.train(awavo.configure(name, steps=64, cost_limits=(2.0,), seeds=1, **smallest), tmp_path / "run")
        monkeypatch.setattr(
            kind, "reset", lambda *args, **kw: (seen.add(os.environ.get("SDL_VIDEODRIVER")), reset(*args, **kw))[1]
        )
        made = run.render(video="gif")
    finally:
        del gym.registry[name]
    assert made.record["costs"] == {"cost": 4.0}
    assert made.record["step_s"] == pytest.approx(0.1 if red else 0.05)
    assert bool(made.notes) != red
    with Image.open(tmp_path / "run" / "picture.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    left = pixels[:, :360]
    assert (np.abs(left - (200, 0, 0)).sum(-1) < 40).any() == red
    # The cost is above its limit: its bar is red.
    assert (np.abs(pixels[:, 490:] - (179, 38, 30)).sum(-1) < 40).sum() > 500
    assert red or "no picture of" in made.notes[0]
    assert red or "(its class has no render())" in made.notes[0]
    assert seen == {"dummy"}
    assert "SDL_VIDEODRIVER" not in os.environ


def test_a_mujoco_body_is_drawn_without_graphics(monkeypatch):
    pytest.importorskip("mujoco")
    import mujoco

    from awavo.tasks.mujoco_drawing import Painter
    from awavo.tasks.velocity.bodies import BODIES
    from awavo.tasks.velocity.task import load_body

    monkeypatch.setenv("MUJOCO_GL", "none-such")
    for name in ("halfcheetah", "swimmer", "ant"):
        model = load_body(BODIES[name], "v4")
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        painter = Painter(model)
        assert not painter.by_mujoco
        picture = painter.paint(data)
        data.qpos[2] += 0.5  # turned or lifted
        mujoco.mj_forward(model, data)
        changed = np.abs(picture.astype(int) - painter.paint(data)).sum(-1) > 30
        assert 100 < changed.sum() < 0.5 * changed.size
