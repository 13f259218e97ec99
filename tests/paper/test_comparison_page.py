"""The comparison page in a real browser: charts, filters, no console message, no request. Skips without Chromium."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from made_up import learning_result, write_results

from awavo.cli.main import main

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
AROUND = np.linspace(-1, 1, 10)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH"),
]


def _open(page, home, query="", *options):
    homes = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1200,900"),
        *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
        *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", f"--user-data-dir={home}/browser"),
        *("--dump-dom", *options, f"file://{page}/report.html{query}"),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **homes}, check=True)


@pytest.fixture(scope="module")
def page(once):
    def make(folder):
        write_results(
            folder,
            learning_result("cartpole", "awavo", 198 + AROUND),
            learning_result("cartpole", "crpo", 150 + AROUND, steps=100_000),
            learning_result("cartpole", "paets", 190 + AROUND, cost=99.0),
            learning_result("drone", "awavo", 5 + AROUND),
            learning_result("drone", "crpo", 3 + AROUND, steps=100_000),
            learning_result("drone", "paets", 1 + AROUND, path=(1.0,)),
        )
        with pytest.MonkeyPatch.context() as patch:
            # The page draws its own charts; tests/paper/test_collect.py draws the pictures beside it.
            patch.setattr("awavo.paper.outputs.save", lambda figure, base, about: [])
            assert main(["reproduce", "learning", "--collect", "--budget", "full", "--out", str(folder), "--json"]) == 0

    folder = once("comparison", make)
    assert (folder / "report.html").stat().st_size < 5_000_000
    return folder


def test_charts_are_drawn_in_silence(page, tmp_path):
    log = tmp_path / "net.json"
    done = _open(page, tmp_path, "", f"--log-net-log={log}")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    figures = re.findall(r"<figure.*?</figure>", done.stdout, re.DOTALL)
    assert len(figures) >= 12
    for figure in figures:
        assert re.search(r'<path class="(?:series|dot)"[^>]* d="M', figure), figure[:200]
        assert "NaN" not in figure
        assert "Infinity" not in figure
    urls = re.findall(r'"url":"([^"]+)"', log.read_text(errors="replace"))
    outside = [url for url in urls if not url.startswith(("file:", "data:", "chrome"))]
    assert [url for url in outside if "google" not in url and "gvt1" not in url] == []


def test_filters_hide_tasks_and_methods(page, tmp_path):
    dom = _open(page, tmp_path, "?tasks=cartpole&algos=awavo,crpo").stdout
    blocks = dict(re.findall(r'<div data-task="(\w+)"( hidden="")?', dom))
    assert blocks == {"cartpole": "", "drone": ' hidden=""'}
    rows = re.findall(r'<tr data-algo="([\w-]+)"( hidden="")?', dom)
    assert all(bool(hidden) == (algo == "paets") for algo, hidden in rows)
    chart = re.search(r'<figure[^>]*data-chart="cartpole-train-0".*?</figure>', dom, re.DOTALL)[0]
    assert len(re.findall(r'<path class="series"', chart)) == 2


def test_a_curve_of_one_point_is_a_mark(page, tmp_path):
    dom = _open(page, tmp_path).stdout
    for task, marks in (("cartpole", 0), ("drone", 1)):
        chart = re.search(rf'<figure[^>]*data-chart="{task}-train-0".*?</figure>', dom, re.DOTALL)[0]
        assert len(re.findall(r'<circle class="dot"', chart)) == marks


def test_hovering_shows_values(page, tmp_path):
    shown = tmp_path / "page"
    shown.mkdir()
    text = (page / "report.html").read_text()
    move = (
        "const plot = document.querySelector('.plot'); const box = plot.getBoundingClientRect();"
        "const place = {clientX: box.left + box.width / 2, clientY: box.top + 50};"
        "plot.dispatchEvent(new PointerEvent('pointermove', place));"
    )
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (shown / "report.html").write_text(text.replace("</body>", f"<script>{move}</script></body>"))
    tip = re.search(r'<div class="tip"[^>]*>(.*?steps.*?)</figure>', _open(shown, tmp_path).stdout, re.DOTALL)
    assert tip is not None
    assert "AWaVO: " in tip[1]
