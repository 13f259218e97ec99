"""The pages build without a warning and work without a network; every public parameter is described."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import awavo
from awavo.results.watch import Watch
from awavo.runs.export import export_run
from awavo.runs.infer import infer_trajectories
from awavo.runs.render import render_run, render_task

DOCS = Path(__file__).parents[1] / "docs"
PUBLIC = [
    awavo.configure, awavo.train, awavo.train_iter, awavo.load, awavo.evaluate, awavo.certify, awavo.make_task,
    awavo.Run.act, render_run, render_task, export_run, infer_trajectories, Watch,
]  # fmt: skip


@pytest.mark.parametrize("function", PUBLIC, ids=lambda f: f.__qualname__)
def test_every_parameter_is_described(function):
    described = set(re.findall(r"^ +\*{0,2}(\w+): \S", inspect.getdoc(function).partition("Args:")[2], re.MULTILINE))
    assert set(inspect.signature(function).parameters) - {"self"} <= described


@pytest.fixture
def to_mathml(monkeypatch):
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    from mathml import to_mathml

    return to_mathml


def test_a_formula_becomes_mathml(to_mathml):
    made = to_mathml(r"\frac{a}{b} \le \arg\min_x f(x)", "inline")
    assert made.startswith("<math")
    assert "<mfrac>" in made
    assert "\\" not in made
    assert "<mtable" in to_mathml(r"a &= b \\ c &= d", "block")


@pytest.mark.parametrize("formula", [r"\nosuchcommand{x}", r"a^"])
def test_a_formula_that_cannot_be_read_stops_the_build(to_mathml, formula):
    from sphinx.errors import ExtensionError

    with pytest.raises(ExtensionError, match="formula"):
        to_mathml(formula, "inline")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    for needed in ("sphinx", "myst_parser", "furo", "latex2mathml"):
        pytest.importorskip(needed)
    out = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def test_the_pages_build_and_load_nothing_from_elsewhere(pages):
    found = sorted(pages.glob("*.html"))
    assert len(found) > 20
    for page in found:
        text = page.read_text()
        assert not re.search(r'<(?:script|img|iframe|link)[^>]+(?:src|href)="(?:https?:)?//', text), page.name
        assert "MathJax" not in text
    assert (pages / "transport.html").read_text().count("<math") > 20


def test_the_front_page_has_a_picture_and_a_path_for_each_reader(pages):
    front = (pages / "index.html").read_text()
    assert "cartpole_episode.gif" in front
    assert front.count('class="path docutils container"') == 6
    for word in ("compare methods", "have an environment", "robot", "audit", "distances only"):
        assert word in front
