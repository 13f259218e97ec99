"""The report in a real browser. Without Chromium these skip, with the reason."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape

import pytest

from awavo.results.report import write_report
from awavo.results.store import load_run

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH"),
]


def _chromium(tmp_path, page, *options):
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
        *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", f"--user-data-dir={tmp_path}/browser"),
    ]
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    return subprocess.run(
        [*command, *options, f"file://{page}"], capture_output=True, text=True, timeout=120, env=environment, check=True
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory, write_run):
    """The page of two runs (one starts with a gap) after its script ran, and everything the console said."""
    folder = tmp_path_factory.mktemp("page")
    runs = [load_run(write_run(folder / name, preset=name, rng=i)) for i, name in enumerate(("posterior", "hard"))]
    late = runs[1].episodes.filter(runs[1].episodes["env_steps"] > 4000)
    page = write_report([runs[0], replace(runs[1], episodes=late)], folder / "report.html")
    log = folder / "net.json"
    done = _chromium(folder, page, "--dump-dom", f"--log-net-log={log}", "--window-size=1200,900")
    return runs, done.stdout, done.stderr, log.read_text(errors="replace")


def test_the_console_is_silent(opened):
    _, _, errors, _ = opened
    assert [line for line in errors.splitlines() if "CONSOLE" in line] == []


def test_every_chart_is_drawn(opened):
    _, dom, _, _ = opened
    figures = re.findall(r"<figure.*?</figure>", dom, re.DOTALL)
    assert len(figures) >= 9
    for figure in figures:
        assert "<svg" in figure
        marks = re.findall(r'<path class="(?:series|dot[^"]*)"[^>]* d="M[^"]{10,}"', figure)
        assert len(marks) >= 2
        assert "NaN" not in figure
    assert dom.count('class="lim"') == 6
    assert "limit 30" in dom


def test_the_tables_hold_the_figures(opened):
    runs, dom, _, _ = opened
    for run in runs:
        for cost in run.evaluation["stochastic"]["costs"]["position"]["per_seed"]:
            assert f">{cost:.2f}</td>" in dom


def test_no_request_leaves_the_machine(opened):
    _, _, _, log = opened
    page_requests = [
        url for url in re.findall(r'"url":"([^"]+)"', log) if not url.startswith(("file:", "data:", "chrome"))
    ]
    assert [url for url in page_requests if "google" not in url and "gvt1" not in url] == []


def test_a_phone_needs_no_sideways_scrolling(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "run", seeds=3))
    page = write_report([run], tmp_path / "report.html").read_text()
    inner = escape(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page))
    measure = (
        "const root = this.contentDocument.documentElement; root.scrollTop = 1;"
        "document.body.dataset.widths = `${root.scrollWidth} ${root.clientWidth} ${this.clientWidth}`"
    )
    frame = f'<body><iframe onload="{measure}" style="width:390px;height:800px;border:0" srcdoc="{inner}"></iframe>'
    (tmp_path / "phone.html").write_text(frame)
    done = _chromium(tmp_path, tmp_path / "phone.html", "--dump-dom")
    found = re.search(r'data-widths="(\d+) (\d+) (\d+)"', done.stdout)
    assert found is not None
    content, visible, frame_width = map(int, found.groups())
    assert content <= visible <= frame_width == 390


def test_an_injected_script_does_not_run(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "run", seeds=2, task="<script>document.title='owned'</script>"))
    page = write_report([run], tmp_path / "report.html")
    forced = page.read_text().replace("<main", "<script>document.title='owned'</script><main")
    (tmp_path / "forced.html").write_text(forced)
    done = _chromium(tmp_path, tmp_path / "forced.html", "--dump-dom")
    assert "<title>owned" not in done.stdout
    assert "Content Security Policy" in done.stderr
