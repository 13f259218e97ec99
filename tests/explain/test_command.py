"""`awavo explain` on a record: text, JSON, CSV, page; and the page in a real browser."""

import csv
import json
import os
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.cli.main import main
from awavo.control.flight_model import motor_pwm
from awavo.control.flight_planner import flight_planner
from awavo.tasks.quadrotor.references import lissajous

pytest.importorskip("mcap")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def explained(record, once):
    def make(folder):
        code = main(["explain", str(record), "--out", str(folder / "out"), "--every", "4", "--threshold", "0.02"])
        (folder / "code").write_text(str(code))

    folder = once("explained", make)
    return int((folder / "code").read_text()), folder / "out"


def test_the_record_is_explained(explained):
    code, out = explained
    assert code == 0
    found = json.loads((out / "explanation.json").read_text())
    assert found["replay"] == {"decisions": 40, "differing": [], "of": 40}
    assert found["largest_shapley_error"] < 1e-6
    assert found["factors"] == ["wind", "obstacles"]
    assert found["temperature"] > 0
    assert found["effective_size"] > 1
    assert found["calibrated"] is False
    assert any("not calibrated" in note for note in found["not_judged"])
    for name in ("command", "commit", "versions", "device"):
        assert name in found
    for segment in found["segments"]:
        assert segment["start"] < segment["end"]
        assert 0 <= segment["low"] <= segment["high"] <= 1
        for size in (*segment["magnitude"].values(), segment["necessity"]):
            assert 0 <= size["low"] <= size["value"] <= size["high"]
    for name in found["factors"]:
        assert set(found["mean_magnitude"][name]) == {"N", "rad/s", "us"}
        assert 0 < found["mean_necessity"][name]["high"] <= 1
    assert found["necessity"].startswith("Necessity is the least probability")
    assert found["segments"] == sorted(found["segments"], key=lambda s: -s["influence"])


def test_the_table_holds_every_explained_decision(explained):
    _, out = explained
    with (out / "explanation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(r["decision"]) for r in rows] == list(range(0, 40, 4))
    for row in rows:
        bands = [("wind_low", "wind_influence", "wind_high")]
        bands += [(f"wind_{k}_low", f"wind_{k}", f"wind_{k}_high") for k in ("necessity", "N", "rad_s", "us")]
        for low, value, high in bands:
            assert float(row[low]) <= float(row[value]) + 1e-6 <= float(row[high]) + 2e-6, value


def test_the_ranking_agrees_with_the_table(explained):
    _, out = explained
    found = json.loads((out / "explanation.json").read_text())
    with (out / "explanation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert found["segments"]
    for segment in found["segments"]:
        part = [r for r in rows if segment["start"] - 1e-4 <= float(r["time_s"]) <= segment["end"] + 1e-4]
        name = segment["factor"]
        columns = {f"{name}_motor{m + 1}_us": value for m, value in enumerate(segment["motors"])}
        columns |= {f"{name}_influence": segment["influence"], f"{name}_us_high": segment["magnitude"]["us"]["high"]}
        columns |= {f"{name}_rad_s_high": segment["magnitude"]["rad/s"]["high"]}
        for column, value in columns.items():
            assert np.mean([float(r[column]) for r in part]) == pytest.approx(value, rel=1e-3, abs=1e-3), column


def test_decisions_asked_far_apart_still_make_a_ranking(record):
    """Asked once in 0.4 s, influences used to fall between the stretches, and none was said to pass the threshold."""
    from awavo.explain.flight_report import explain_log
    from awavo.explain.record import read_log
    from awavo.explain.summary import find_segments

    log = read_log(record)
    found = explain_log(log, every=20)
    high = np.asarray(found.influence.value) >= 0.02
    assert high.any()
    assert {s.factor for s in find_segments(found, log, 0.02)} == {found.names[i] for i in np.flatnonzero(high.any(0))}


def test_a_force_known_less_well_gives_wider_intervals(record):
    from awavo.explain.flight_report import explain_log
    from awavo.explain.magnitude import debiased_magnitude
    from awavo.explain.record import read_log
    from awavo.explain.recording import decide_compiled

    def unsure(decision):
        belief = decision.inputs.belief
        covariance = belief.covariance.copy()
        covariance[:3, :3] += 0.3 * np.eye(3, dtype=np.float32)
        return decision._replace(inputs=decision.inputs._replace(belief=belief._replace(covariance=covariance)))

    log = read_log(record)
    some = log.decisions[12:28:4]
    decision = some[0]
    sure, wider = (explain_log(log._replace(decisions=ds), every=1) for ds in (some, list(map(unsure, some))))
    for a, b in (
        (sure.influence, wider.influence),
        *zip(sure.magnitude.values(), wider.magnitude.values(), strict=True),
    ):
        assert (b.high - b.low)[:, 0].mean() > 1.3 * (a.high - a.low)[:, 0].mean() > 0
    # The units are what they say: N of thrust added to plain tracking, rad/s and us of the candidates' commands.
    params = jax.tree.map(jnp.asarray, log.params)
    choice = decide_compiled(log.config)(jax.tree.map(jnp.asarray, decision.inputs), params)
    pwm = motor_pwm(choice.commands, decision.inputs.body.rates[:, None], params).T
    thrust = flight_planner(params, lissajous, log.config).model.added_thrust(choice.candidates)
    key = jax.random.fold_in(decision.inputs.key, 3)
    for unit, points in (("N", thrust), ("rad/s", choice.commands[1:].T), ("us", pwm)):
        padded = jnp.pad(points, ((0, 0), (0, 4 - points.shape[1])))
        for i, mask in enumerate((2, 1)):
            size = float(debiased_magnitude(key, padded, choice.weights[3], choice.weights[mask])[0])
            assert sure.magnitude[unit].value[0, i] == pytest.approx(size, rel=2e-3, abs=2e-3), unit
    # The motors' parts sum to the mean signal that was flown.
    np.testing.assert_allclose(sure.motors[0].sum(0), choice.weights[3] @ pwm, rtol=1e-4)
    np.testing.assert_allclose(sure.motors[0, 0], choice.weights[0] @ pwm, rtol=1e-4)


def test_a_torn_record_says_what_is_missing(record, tmp_path, capsys):
    data = record.read_bytes()
    (tmp_path / "torn.mcap").write_bytes(data[: int(0.6 * len(data))])
    assert main(["explain", str(tmp_path / "torn.mcap"), "--every", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["decisions"] < 40
    assert any("are missing" in note for note in found["not_judged"])


def test_bad_input_is_one_line_and_leaves_nothing(record, tmp_path, capsys):
    (tmp_path / "junk.mcap").write_bytes(b"junk" * 100)
    (tmp_path / "note.txt").write_text("hello")
    cases = [
        [str(tmp_path / "absent.mcap")], [str(tmp_path / "junk.mcap")], [str(tmp_path / "note.txt")],
        [str(record), "--factor", "wnd", "--out", str(tmp_path / "o")], [str(tmp_path)],
        [str(record), "--factor", "obstacle:30", "--out", str(tmp_path / "o")],
        [str(record), "--factor", "obstacle:3", "--factor", "obstacle:03", "--out", str(tmp_path / "o")],
        [str(record), "--every", "0", "--out", str(tmp_path / "o")],
        [str(record), "--threshold", "7", "--out", str(tmp_path / "o")], ["FT9"],
        [str(record), "--mass", "3", "--out", str(tmp_path / "o")],
        [str(record), "--steps", "9", "--out", str(tmp_path / "o")],
    ]  # fmt: skip
    before = sorted(p.name for p in tmp_path.iterdir())
    for case in cases:
        assert main(["explain", *case]) == 2
        error = capsys.readouterr().err
        assert error.startswith("awavo: ")
        assert error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")
def test_the_page_works_in_a_browser(explained, tmp_path):
    _, out = explained
    page = (out / "explanation.html").read_text()
    # A click on another instant, factor and motor, as a person would; the policy lets only the page's own script run.
    act = (
        "addEventListener('load', () => { const s = document.getElementById('instant'); s.value = 2;"
        "s.dispatchEvent(new Event('input')); const f = document.getElementById('removed'); f.selectedIndex = 1;"
        "f.dispatchEvent(new Event('change')); const u = document.getElementById('unit'); u.value = 'rad/s';"
        "u.dispatchEvent(new Event('change')); const a = document.getElementById('again'); a.value = 'without wind';"
        "a.dispatchEvent(new Event('change'));"
        "document.body.dataset.done = document.getElementById('shown').textContent; });"
    )
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    (tmp_path / "page.html").write_text(free.replace("</body>", f"<script>{act}</script></body>"))
    log = tmp_path / "net.json"
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
        "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0",
        "--virtual-time-budget=3000", f"--user-data-dir={tmp_path}/browser", f"--log-net-log={log}", "--dump-dom",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    for name in ("page.html", "original.html"):
        if name == "original.html":
            (tmp_path / name).write_text(page)
        done = subprocess.run(
            [*command, f"file://{tmp_path / name}"],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=True,
        )
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        dom = done.stdout
        for view in (
            "influence",
            "error",
            "tilt",
            "necessity",
            "force",
            "shares",
            "magnitude",
            "space",
            "motors",
            "fan",
        ):
            figure = re.search(rf'<figure[^>]*data-view="{view}".*?</figure>', dom, re.DOTALL)
            assert figure is not None
            assert "<svg" in figure[0], view
            assert "NaN" not in figure[0], view
        assert dom.count('class="seed before"') == 12
        assert dom.count('class="seed after"') == 12
        assert dom.count('class="series flown"') == 9
        assert "they sum to" in dom
        assert dom.count('class="reference"') == 1
        assert dom.count('<text class="mark"') >= 3
        assert dom.count('class="compass"') == 1
        if name == "page.html":
            assert 'data-done="' in dom
            assert "dashed: without obstacles" in dom
            assert dom.count('class="refly"') == 1
            assert "error, flown again without wind" in dom
            assert re.search(r"wind \d\.\d\d \[\d\.\d\d, \d\.\d\d\] rad/s", dom)
    urls = [u for u in re.findall(r'"url":"([^"]+)"', log.read_text(errors="replace"))]
    away = [u for u in urls if not u.startswith(("file:", "data:", "chrome")) and "google" not in u and "gvt1" not in u]
    assert away == []


def test_names_in_a_record_cannot_run_in_the_page(record, tmp_path):
    from awavo.explain.record import DecisionLog, read_log

    log = read_log(record)
    evil = "</script><script>document.title='owned'</script>"
    about = {"task": evil, "seed": evil, "steps": 2}
    with DecisionLog(tmp_path / "evil.mcap", log.config, log.params, log.decisions[0].inputs.forest, about) as own:
        for decision in log.decisions[:2]:
            own.add(decision.inputs, decision.outcome)
    assert main(["explain", str(tmp_path / "evil.mcap"), "--every", "1"]) == 0
    page = (tmp_path / "evil-explained" / "explanation.html").read_text()
    assert evil not in page
    assert page.count("<script") == 2


def test_the_order_of_names_changes_nothing(record):
    """The other order was taken for factors of one's own: other intervals, of the pool alone, not calibrated."""
    from awavo.control.flight_planner import FACTORS
    from awavo.explain.flight_factors import named_factors
    from awavo.explain.flight_report import explain_log
    from awavo.explain.record import read_log

    assert named_factors(FACTORS[::-1]) == named_factors(()) == FACTORS
    assert named_factors(["obstacle:03", "wind"]) == ("obstacle:3", "wind")
    log = read_log(record)
    found, turned = explain_log(log, every=20), explain_log(log, FACTORS[::-1], every=20)
    assert turned.names == found.names
    for part, other in zip(found.influence, turned.influence, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("place", ["file", "read-only"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(place, record, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("mine")
    if place == "read-only":
        monkeypatch.setattr("awavo.files.os.access", lambda path, mode: False)
    monkeypatch.setattr("awavo.runs.explain_flight.read_log", lambda path: pytest.fail("the record was read"))
    out = tmp_path / ("file/x" if place == "file" else "new")
    for target in (str(record), "FT3"):
        assert main(["explain", target, "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert "Cannot write in" in error
        assert error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize(
    "options",
    [["--steps", "0"], ["--steps", str(10**9)], ["--seed", "-1"], ["--seed", str(10**23)], ["--episodes", "0"]],
)
def test_numbers_out_of_range_are_one_line(options, tmp_path, capsys):
    assert main(["explain", "FT3", *options, "--out", str(tmp_path / "out")]) == 2
    assert "is out of range" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
