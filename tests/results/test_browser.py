"""The report in a real browser. Without Chromium these skip, with the reason."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape

import numpy as np
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
    assert dom.count('class="lim"') == 8
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


WIDTHS = (390, 1280)
MEASURE = (
    "const d = this.contentDocument, root = d.documentElement; root.scrollTop = 1;"
    "d.querySelectorAll('details').forEach(e => e.open = true);"
    "const boxes = [...d.querySelectorAll('.scroll, pre, section, nav')];"
    "const wide = boxes.filter(e => e.scrollWidth > e.clientWidth + 1);"
    "this.dataset.widths = `${root.scrollWidth} ${root.clientWidth} ${this.clientWidth}`;"
    "this.dataset.wide = wide.map(e => e.closest('section')?.id + ' ' + e.className).join(', ')"
)


@pytest.fixture(scope="module")
def frames(tmp_path_factory, write_run):
    """Pages of several kinds in frames of several widths: how wide each is, and what in it can be scrolled sideways."""
    from awavo.results.trajectory_page import _page

    folder = tmp_path_factory.mktemp("frames")
    names = ("posterior", "hard", "wide")
    runs = [load_run(write_run(folder / n, preset=n, rng=i, seeds=3)) for i, n in enumerate(names)]
    pages = {
        "one": write_report(runs[:1], folder / "one.html").read_text(),
        "three": write_report(runs, folder / "three.html").read_text(),
        "inference": _page([_inference(40), _inference(80)]),
    }
    body = ""
    for kind, page in pages.items():
        inner = escape(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page))
        for width in WIDTHS:
            style = f"width:{width}px;height:800px;border:0"
            body += f'<iframe id="{kind}-{width}" onload="{MEASURE}" style="{style}" srcdoc="{inner}"></iframe>'
    (folder / "frames.html").write_text(f"<body>{body}")
    done = _chromium(folder, folder / "frames.html", "--dump-dom", "--window-size=1400,900")
    # Attributes of each frame, without the page that it holds.
    return {
        re.search(r'id="([^"]*)"', tag)[1]: dict(re.findall(r'data-(widths|wide)="([^"]*)"', tag))
        for tag in re.findall(r"<iframe [^>]*>", re.sub(r'srcdoc="[^"]*"', "", done.stdout))
    }


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["one", "three", "inference"])
def test_no_page_and_no_table_needs_sideways_scrolling(frames, width, kind):
    found = frames[f"{kind}-{width}"]
    content, visible, frame_width = map(int, found["widths"].split())
    assert content <= visible <= frame_width == width
    assert found["wide"] == ""


def _inference(states):
    """Summary and arrays as `awavo infer` writes them."""
    times, rng = np.linspace(0, 1, 9), np.random.default_rng(0)
    mean = rng.normal(size=(9, states))
    scores = {"rmse": 0.2, "rmse_first_quarter": 0.3, "lost": 0.01, "coverage90": 0.9, "crps": 0.1}
    summary = {
        "system": "lorenz96", "states": states, "seed": 1, "scores": scores, "largest_chi2": 1.1, "solve_s": 2.0,
        "compile_s": 9.0, "command": f"awavo infer lorenz96 --states {states} --seed 1 --out runs/some/long/folder",
        "commit": "0" * 40, "device": {"kind": "cpu"}, "versions": {"awavo": "0"},
    }  # fmt: skip
    hidden = np.arange(states) % 2 == 0
    return summary, {"times": times, "mean": mean, "std": 0.1 + 0 * mean, "truth": mean + 0.1, "hidden": hidden}


def test_the_page_of_an_inference_has_the_frame_of_the_others(tmp_path):
    from awavo.results.trajectory_page import _page

    (tmp_path / "page.html").write_text(_page([_inference(40)]))
    done = _chromium(tmp_path, tmp_path / "page.html", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    for part in ('<header class="top">', "AWaVO inference", 'id="theme"', '<nav aria-label="Sections">', "Theme: auto"):
        assert part in done.stdout
    assert done.stdout.count("data:image/png;base64,") == 2


def test_intervals_are_drawn_with_their_limit(opened):
    _, dom, _, _ = opened
    for name in ("interval-0-0", "interval-0-1", "interval-0-2"):
        figure = re.search(rf'data-chart="{name}".*?</figure>', dom, re.DOTALL)[0]
        assert figure.count("<circle") == 2
        upright = re.search(r'<line class="lim" x1="([\d.]+)" x2="\1"', figure)
        assert (upright is not None) == (name != "interval-0-0")


def test_an_injected_script_does_not_run(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "run", seeds=2, task="<script>document.title='owned'</script>"))
    page = write_report([run], tmp_path / "report.html")
    forced = page.read_text().replace("<main", "<script>document.title='owned'</script><main")
    (tmp_path / "forced.html").write_text(forced)
    done = _chromium(tmp_path, tmp_path / "forced.html", "--dump-dom")
    assert "<title>owned" not in done.stdout
    assert "Content Security Policy" in done.stderr
