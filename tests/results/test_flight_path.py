"""The path of an episode in the report page, as a picture and as a video."""

import json
import sys

import numpy as np
import pytest

from awavo.cli.main import main
from awavo.errors import InputError, RunFolderError
from awavo.results.flight_path import draw_flight, read_flight
from awavo.results.pictures import film_path, save_picture
from awavo.results.report import render_report
from awavo.results.store import load_run
from awavo.results.video import Totals, find_ffmpeg, save_video

NASTY = "</svg><script>alert(1)</script>"


def record(**changes):
    angles = np.linspace(0, 6, 80)
    path = np.stack([np.cos(angles), np.sin(angles), 1 + 0.1 * angles], 1)
    force = np.zeros((80, 3))
    force[40:] = 1.2
    return {
        "task": "quadrotor",
        "seed": 3,
        "ended": "time limit",
        "step_s": 0.02,
        "return": -4.5,
        "costs": {"clearance": 0.25},
        "limits": {"clearance": 2.0},
        "path": {"position": path.tolist(), "target": (path + 0.1).tolist(), "force": force.tolist()},
        "cylinders": [
            {"x": 0.0, "y": 0.0, "radius": 0.3, "height": 2.0},
            {"x": 50.0, "y": 0.0, "radius": 1, "height": 1},
        ],
        "spheres": [{"centre": [0.5, 0.5, 1.0], "radius": 0.3}],
        "marks": [{"name": "RS 02", "position": [1.0, 0.0, 1.0]}],
        **changes,
    }


def test_the_section_shows_path_marks_and_totals(run_folder):
    assert '<section id="path">' not in render_report([load_run(run_folder)])
    (run_folder / "flight.json").write_text(json.dumps(record()))
    page = render_report([load_run(run_folder)])
    assert '<section id="path">' in page
    assert "RS 02" in page
    assert "clearance 0.25" in page
    assert "return -4.50" in page


def test_what_is_drawn():
    drawing = str(draw_flight(record()))
    # Floor, one cylinder in view (two rings, two edges), the reference, and the path in two widths of force.
    assert drawing.count("<polyline") == 1 + 4 + 1 + 2
    assert drawing.count("<circle") == 2
    numbers = [float(v) for part in drawing.split('points="')[1:] for v in part.split('"')[0].replace(",", " ").split()]
    assert min(numbers) > -200
    assert max(numbers) < 960


def test_texts_of_a_strange_record_are_escaped(run_folder):
    strange = record(task=NASTY, ended=NASTY, costs={NASTY: 1.0}, marks=[{"name": NASTY, "position": [0, 0, 1]}])
    (run_folder / "flight.json").write_text(json.dumps(strange))
    page = render_report([load_run(run_folder)])
    assert NASTY not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"path": {"position": [[1, 2]], "target": [[1, 2]]}}', '{"path": {"position": 3, "target": 4}}'],
)
def test_a_damaged_record_is_refused(tmp_path, text):
    (tmp_path / "flight.json").write_text(text)
    with pytest.raises(RunFolderError, match="run `awavo render` again"):
        read_flight(tmp_path / "flight.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"costs": 3}, {"costs": {"a": "x"}}, {"return": "much"}, {"cylinders": [{}]}, {"cylinders": 7},
        {"spheres": [{"centre": [1], "radius": 1}]}, {"marks": [{"name": "a", "position": "b"}]},
        {"cylinders": [{"x": 0.0, "y": 0.0, "radius": "wide", "height": 1}]}, {"path": []},
        {"path": {"position": [[0, 0, 0]], "target": [[0, 0, 0]], "force": [[0, 0]]}},
        {"path": {"position": [[0, 0, 1e30]], "target": [[0, 0, 0]], "force": [[0, 0, 0]]}},
        {"path": {"position": [], "target": [], "force": []}},
    ],
)  # fmt: skip
def test_a_bent_record_ends_with_one_error(run_folder, changes):
    (run_folder / "flight.json").write_text(json.dumps(record(**changes)))
    with pytest.raises(RunFolderError, match="run `awavo render` again"):
        render_report([load_run(run_folder)])


def test_picture_and_video(tmp_path):
    short = record()
    short["path"] = {name: rows[::8] for name, rows in short["path"].items()}
    totals = Totals.of([-0.5] * 10, [[0.1]] * 10, ["clearance"], [2.0])
    video = save_video(film_path(short), totals, tmp_path / "a.gif", title="short", step_s=0.02)
    picture = save_picture(short, tmp_path / "a.png")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from PIL import Image

    with Image.open(video) as image:
        assert image.format == "GIF"
        assert image.n_frames == 10


def test_mp4_needs_ffmpeg(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"pip install 'awavo\[render\]', or use --video gif"):
        find_ffmpeg()
    assert main(["render", "drone", "--video", "mp4", "--out", str(tmp_path / "x")]) == 2
    assert "ffmpeg" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_command(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["render", "drone", "--steps", "4", "--video", "none", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["task"] == "drone"
    assert len(read_flight(out / "flight.json")["path"]["position"]) == 4
    assert len(read_flight(out / "flight.json")["spheres"]) == 8
    for wrong in (["--policy", "track"], ["--video", "avi"], ["--steps", "0"]):
        assert main(["render", "drone", "--out", str(tmp_path / "x"), *wrong]) == 2
    assert main(["render", "no-such-task", "--out", str(tmp_path / "x")]) == 2
    assert main(["render", str(tmp_path / "nothing")]) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"path": {"position": [], "target": [], "force": []}},
        {"path": {"position": [[0, 0, 0]], "target": [[0, 0, 0]]}},
        {"path": {"position": [[0, 0, 0]], "target": [[0, 0, 0]], "force": [[float("nan"), 0, 0]]}},
        {"cylinders": [{"x": 0}]},
        {"cylinders": 3},
        {"spheres": [{"centre": "here", "radius": 1}]},
        {"marks": [{"position": [0, 0, 0]}]},
        {"costs": [1, 2]},
        {"return": "much"},
    ],
)
def test_malformed_records_get_one_line(run_folder, capsys, change):
    (run_folder / "flight.json").write_text(json.dumps(record(**change)))
    assert main(["report", str(run_folder)]) == 2
    err = capsys.readouterr().err.strip()
    assert "flight.json" in err
    assert len(err.splitlines()) == 1
    assert not (run_folder / "report.html").exists()
