"""Films: which steps are kept, how fast they run, how large the file may be, and what the panel says."""

import numpy as np
import pytest
from PIL import Image

from awavo.results import video
from awavo.results.episode_video import MOST_BYTES, read_media
from awavo.results.report import render_report
from awavo.results.store import load_run
from awavo.results.video import SHOTS, Film, Shot, Totals, compose, save_video

WHITE = np.full((60, 80, 3), 255, np.uint8)


def totals(steps, cost=1.0, limit=5.0):
    return Totals.of([1.0] * steps, [[cost]] * steps, ["fuel"], [limit])


def panel(image):
    return np.asarray(image.convert("RGB")).astype(int)[:, 490:]


def has(pixels, colour):
    return int((np.abs(pixels - colour).sum(-1) < 30).sum())


BLUE, RED = (11, 98, 196), (179, 38, 30)


@pytest.mark.parametrize("length", [1, 7, 2 * SHOTS, 2 * SHOTS + 1, 1000])
def test_a_film_of_any_length_has_its_shots_evenly_from_the_start(length):
    film = Film()
    for step in range(length):
        if film.wants(step):
            film.add(step, WHITE)
    steps = [shot.step for shot in film.shots]
    assert steps[0] == 0
    assert len(set(np.diff(steps))) <= 1
    assert min(length, SHOTS) <= len(steps) <= 2 * SHOTS
    assert length - steps[-1] <= (steps[1] - steps[0] if len(steps) > 1 else 1)


def test_totals_count_up_from_nothing():
    found = Totals.of([1.0, 2.0], [[0.5, 0], [0.25, 3]], ["a", "b"], [1.0, 2.0])
    assert list(found.returns) == [0.0, 1.0, 3.0]
    assert list(found.costs["a"]) == [0.0, 0.5, 0.75]
    assert list(found.costs["b"]) == [0.0, 0.0, 3.0]


def test_the_bar_grows_and_turns_red_above_its_limit():
    found = totals(10)
    shown = [panel(compose(Shot(step, WHITE), found, "t", 0.1)) for step in (0, 2, 5, 8)]
    assert has(shown[0], BLUE) == 0
    assert 0 < has(shown[1], BLUE) < has(shown[2], BLUE)
    assert has(shown[3], BLUE) == 0
    assert has(shown[3], RED) > has(shown[2], RED)


def test_the_panel_says_how_much_faster_it_runs():
    plain, fast = (panel(compose(Shot(3, WHITE), totals(10), "t", 0.1, speed)) for speed in (1.0, 5.0))
    assert (plain != fast).any()


@pytest.mark.parametrize(
    ("count", "seconds", "rate", "speed"), [(60, 4.0, 15, 1.0), (100, 50.0, 8, 4.0), (10, 0.1, 30, 0.3)]
)
def test_the_pace_is_the_tasks_own_between_bounds(count, seconds, rate, speed):
    assert video._pace(count, seconds) == (rate, pytest.approx(speed))


def test_a_gif_that_would_be_too_large_gets_fewer_frames(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    shots = [Shot(i, rng.integers(0, 255, (60, 80, 3), np.uint8)) for i in range(16)]
    whole = save_video(shots, totals(16), tmp_path / "a.gif", title="t", step_s=0.1)
    monkeypatch.setattr(video, "MOST_BYTES", whole.stat().st_size // 2)
    fewer = save_video(shots, totals(16), tmp_path / "b.gif", title="t", step_s=0.1)
    with Image.open(whole) as first, Image.open(fewer) as second:
        assert (first.n_frames, second.n_frames) == (16, 8)
    assert fewer.stat().st_size <= whole.stat().st_size * 0.6


def test_the_last_totals_stay_long_enough_to_be_read(tmp_path):
    save_video([Shot(i, WHITE) for i in range(3)], totals(3), tmp_path / "a.gif", title="t", step_s=0.1)
    with Image.open(tmp_path / "a.gif") as image:
        image.seek(2)
        assert image.info["duration"] == 1500


def test_an_mp4_is_one(tmp_path):
    try:
        video.find_ffmpeg()
    except ValueError as error:
        pytest.skip(str(error))
    path = save_video([Shot(i, WHITE) for i in range(8)], totals(8), tmp_path / "video.mp4", title="t", step_s=0.1)
    assert read_media(tmp_path) == ("video/mp4", path.read_bytes())
    assert [p.name for p in tmp_path.iterdir()] == ["video.mp4"]


def test_the_report_shows_the_video_within_bounds(run_folder):
    assert '<section id="episode">' not in render_report([load_run(run_folder)])
    (run_folder / "video.gif").write_bytes(b"GIF89a" + b"x" * 100)
    page = render_report([load_run(run_folder)])
    assert '<section id="episode">' in page
    assert 'src="data:image/gif;base64,R0lGODlh' in page
    (run_folder / "video.gif").write_bytes(b"GIF89a" + b"x" * MOST_BYTES)
    assert '<section id="episode">' not in render_report([load_run(run_folder)])


def test_what_is_no_video_is_not_shown(run_folder):
    (run_folder / "video.gif").write_bytes(b"<svg onload=alert(1)>")
    (run_folder / "video.mp4").write_bytes(b"<html>")
    (run_folder / "picture.png").write_bytes(b"")
    assert read_media(run_folder) is None
    assert '<section id="episode">' not in render_report([load_run(run_folder)])


def test_a_strange_record_beside_the_video_is_left_out(run_folder):
    (run_folder / "video.gif").write_bytes(b"GIF89a")
    for text in ("{", "[]", '{"costs": 3}', '{"costs": {"a": "x"}, "limits": {"a": 1}, "step_costs": []}'):
        (run_folder / "episode.json").write_text(text)
        assert "Seed" not in render_report([load_run(run_folder)]).split('id="episode"')[1].split("</section>")[0]
