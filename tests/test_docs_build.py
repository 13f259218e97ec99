"""Pages work without a network, formulas without a script; every public parameter is described."""

import inspect
import re
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


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ('<script src="https://x.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//x.org/a.css">', 1),
        ('<img alt="a" src="http://x.org/a.png"><iframe src="https://x.org"></iframe>', 2),
        ("<p>MathJax</p>", 1),
        ('<a href="https://x.org">x</a><img src="_images/a.png"><script src="_static/a.js"></script>', 0),
    ],
)
def test_a_page_that_would_load_from_elsewhere_is_found(monkeypatch, page, number):
    """`make docs`, which every check runs, builds all pages without a warning and looks at each of them so."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    from offline import loaded_from_elsewhere

    assert len(loaded_from_elsewhere(page)) == number
    assert '"offline"' in (DOCS / "conf.py").read_text()
    assert "make docs" in (DOCS.parent / ".ci" / "run").read_text()


def test_the_front_page_has_a_picture_and_a_path_for_each_reader():
    front = (DOCS / "index.md").read_text()
    assert "figures/cartpole_episode.gif" in front
    assert (DOCS / "figures" / "cartpole_episode.gif").stat().st_size > 10_000
    assert front.count(":::{container} path\n") == 6
    for word in ("compare methods", "have an environment", "robot", "audit", "distances only"):
        assert word in front
