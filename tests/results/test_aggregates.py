"""Several runs in one picture, and the words on the page."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from awavo.registry import ALGORITHMS
from awavo.results.aggregates import interval_chart, profile_chart
from awavo.results.compare import compare_runs
from awavo.results.curves import diagnostic_names
from awavo.results.glossary import METRICS, TERMS, explain_metric
from awavo.results.report import render_report
from awavo.results.store import load_run


@pytest.fixture(scope="module")
def two(tmp_path_factory, write_run):
    folder = tmp_path_factory.mktemp("two")
    made = [write_run(folder / name, preset=name, rng=i, **more) for i, (name, more) in enumerate(RUNS.items())]
    return [load_run(path) for path in made]


RUNS = {"posterior": {}, "hard": {"cost_level": 1.4}}


def test_the_intervals_are_those_of_the_tables(two):
    group = compare_runs(two).groups[0]
    chart = interval_chart("a", group, "position", "Cost")
    assert chart["limit"] == 30.0
    for row, shown in zip(group.rows, chart["series"], strict=True):
        found = row.outcome.mean("position")
        assert shown["value"] == pytest.approx(found.value, rel=1e-4)
        assert (shown["low"], shown["high"]) == pytest.approx((found.low, found.high), rel=1e-4)
        assert shown["low"] < shown["value"] < shown["high"]
    best = interval_chart("b", group, "return", "Return")["series"][0]
    assert best["value"] == pytest.approx(group.rows[0].outcome.iqm().value, rel=1e-4)


def test_a_profile_falls_and_counts_only_seeds_within_their_limits(two):
    group = compare_runs(two).groups[0]
    good, bad = profile_chart("p", group)["series"]
    assert good["y"][0] == 1.0
    assert good["y"][-1] == 0.0
    assert (np.diff(good["y"]) <= 0).all()
    returns = group.rows[0].outcome.returns
    middle = len(good["x"]) // 2
    assert good["y"][middle] == pytest.approx((returns > good["x"][middle]).mean())
    # No seed of the other run keeps its limits, whatever its return.
    assert set(bad["y"]) == {0.0}


def test_the_section_needs_two_runs_of_a_problem(two, tmp_path, write_run):
    assert '<section id="aggregates">' in render_report(two)
    assert '<section id="aggregates">' not in render_report(two[:1])
    other = load_run(write_run(tmp_path / "acro", task="acrobot", rng=1, seeds=3))
    assert '<section id="aggregates">' not in render_report([two[0], other])


def test_every_metric_of_an_algorithm_is_explained():
    found = set()
    for registration in ALGORITHMS.values():
        module = importlib.import_module(registration.config.partition(":")[0])
        kinds = [v for k, v in vars(module).items() if k.endswith("Info") and hasattr(v, "_fields")]
        assert kinds
        found |= {f"train/{field}" for kind in kinds for field in kind._fields}
    assert sorted(found - set(METRICS)) == []


def test_every_metric_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    missing = [name for name in METRICS if f"`{name}`" not in page and f"`{name}_<name>`" not in page]
    assert missing == []


def test_the_page_explains_its_metrics_and_words(two):
    page = render_report(two[:1])
    for name in diagnostic_names(two[0]):
        meaning = explain_metric(name, two[0].cost_names)
        assert meaning
        assert re.search(rf"<figcaption>{re.escape(name)}<small>", page)
    for word in TERMS:
        assert f"<dt>{word}</dt>" in page


def test_a_metric_of_somebody_else_has_no_explanation():
    assert explain_metric("train/own_number", ["position"]) == ""
    assert explain_metric("train/cost_weight_angle", ["position", "angle"]) == METRICS["train/cost_weight"]
