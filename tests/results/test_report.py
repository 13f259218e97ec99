import json
import re
from html.parser import HTMLParser

import pytest
from markupsafe import Markup

from awavo.errors import InputError, RunFolderError
from awavo.results.limits import LimitRule
from awavo.results.report import Section, render_report, write_report
from awavo.results.store import RunData, load_run, write_table

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&"


class _Tags(HTMLParser):
    """Collect the tags and check that they close in order."""

    VOID = ("meta", "input", "br", "img", "link")

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _tags(page):
    parser = _Tags()
    parser.feed(re.sub(r"<!doctype html>", "", page))
    assert parser.open == []
    return parser.seen


def _charts(page):
    return json.loads(re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)[1])


def test_one_run(run_folder):
    run = load_run(run_folder)
    page = render_report([run])
    assert re.search(r"10 of 10 seeds within both limits; return 19\d\.\d \[19\d\.\d, ", page)
    assert len(page) < 500_000
    for section in ("curves", "final", "seeds", "diagnostics", "configuration", "reproduce"):
        assert f'<section id="{section}">' in page
    assert "awavo train cartpole --algo orpo-dr --seeds 10" in page
    assert "awavo evaluate runs/good" in page
    assert run.meta["commit"] in page
    for value in run.evaluation["greedy"]["return"]["per_seed"]:
        assert re.search(rf'<td class="edge" data-label="greedy: return">{value:.1f}</td>', page)


def test_tags_are_balanced_and_ids_unique(run_folder, tmp_path, write_run):
    second = write_run(tmp_path / "acro", task="acrobot", rng=1, seeds=3, steps=10_000)
    for runs in ([run_folder], [run_folder, second]):
        tags = _tags(render_report([load_run(path) for path in runs]))
        ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
        assert len(ids) == len(set(ids))


def test_charts_carry_curves_limits_and_every_seed(run_folder):
    charts = _charts(render_report([load_run(run_folder)]))
    assert charts["curve-0-0"]["limit"] is None
    assert charts["curve-0-1"]["limit"] == 30.0
    series = charts["curve-0-1"]["series"][0]
    assert len(series["lines"]) == 10
    assert len(series["x"]) == len(series["y"]) == len(series["low"]) == len(series["lines"][9])
    assert len(charts["seeds-0-0"]["series"][0]["points"]) == 10
    assert "train-0-0" in charts


def test_nothing_comes_from_the_network(run_folder):
    page = render_report([load_run(run_folder)])
    for tag, attributes in _tags(page):
        assert tag not in ("link", "iframe", "img")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src &#39;none&#39;" in page


def test_names_from_users_are_escaped(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r", task=NASTY, algo=NASTY, preset=NASTY, command=NASTY))
    run.meta["spec"]["cost_names"] = [NASTY, "angle"]
    run = RunData(run.path, run.meta, run.metrics, run.episodes.rename({"cost_position": f"cost_{NASTY}"}), None)
    page = render_report([run])
    assert "<img" not in page
    assert page.count("<script") == 2
    assert _charts(page)["curve-0-1"]["title"] == f"Cost: {NASTY}"
    _tags(page)


def test_verdicts_of_partly_and_not_feasible_runs(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r", cost_level=1.4))
    page = render_report([run])
    assert '<div class="verdict bad">' in page
    assert "0 of 10 seeds within both limits" in page
    for name, limit in zip(run.cost_names, run.cost_limits, strict=True):
        run.evaluation["greedy"]["costs"][name]["per_seed"] = [limit - 1] * 9 + [limit + 5]
    page = render_report([run])
    assert '<div class="verdict bad">' in page
    assert "9 of 10 seeds" in page
    assert "mean cost &lt;= limit, in all seeds" in page
    page = render_report([run], rule=LimitRule(require="80%"))
    assert '<div class="verdict part">' in page
    assert "at least 80% of the seeds" in page


def test_a_run_that_was_not_evaluated_or_not_trained_to_its_end_is_not_green(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r"))
    assert '<div class="verdict ok">' in render_report([run])
    page = render_report([load_run(write_run(tmp_path / "unevaluated", evaluated=False))])
    assert '<div class="verdict ok">' not in page
    assert "Not evaluated: these are figures of training" in page
    run.meta["config"]["steps"] = 2 * run.env_steps
    page = render_report([run])
    assert '<div class="verdict ok">' not in page
    assert f"Training stopped at 20,000 of {2 * run.env_steps:,} steps." in page


@pytest.mark.parametrize(
    "changes", [{"evaluated": False}, {"limits": ()}, {"seeds": 1}, {"limits": (30.0,), "seeds": 2}]
)
def test_runs_of_other_shapes(tmp_path, changes, write_run):
    page = render_report([load_run(write_run(tmp_path / "r", **changes))])
    _tags(page)
    assert ("Not evaluated: last 10% of training episodes" in page) == (changes.get("evaluated") is False)
    assert "nan" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL).lower().replace("finance", "")


def test_several_runs_show_the_differences(tmp_path, write_run):
    runs = [
        load_run(write_run(tmp_path / p, preset=p, rng=i, seeds=3, steps=10_000))
        for i, p in enumerate(("posterior", "hard"))
    ]
    page = render_report(runs, title="Both")
    assert "<h1>Both</h1>" in page
    series = _charts(page)["curve-0-0"]["series"]
    assert [(line["color"], line["dash"]) for line in series] == [(0, 0), (1, 1)]
    assert re.search(r'<tr class="differs"><th scope="row">preset</th>', page)


def test_more_sections_can_be_added(run_folder, tmp_path):
    def certificate(comparison):
        name = comparison.groups[0].rows[0].label
        return Section("certificates", "Certificates", Markup("<p>proved for {}</p>").format(name))

    extra = (certificate, lambda _: None, lambda _: Section("plain", "Plain", "<b>escaped</b>"))
    path = write_report([load_run(run_folder)], tmp_path / "report.html", extra_sections=extra)
    page = path.read_text(encoding="utf-8")
    assert "<p>proved for orpo-dr (posterior)</p>" in page
    assert '<a href="#certificates">Certificates</a>' in page
    assert "&lt;b&gt;escaped" in page
    with pytest.raises(InputError, match="called 'certificates'"):
        render_report([load_run(run_folder)], extra_sections=(certificate, certificate))


def test_the_page_is_the_same_every_time(run_folder):
    assert render_report([load_run(run_folder)]) == render_report([load_run(run_folder)])


def test_a_run_without_any_episode_needs_an_evaluation(run_folder):
    write_table(run_folder / "episodes.parquet", {"seed": [], "env_steps": []})
    run = load_run(run_folder)
    assert "10 of 10 seeds" in render_report([run])
    (run_folder / "evaluation.json").unlink()
    with pytest.raises(RunFolderError, match="no finished episode"):
        render_report([load_run(run_folder)])
    with pytest.raises(RunFolderError, match="Cannot write"):
        write_report([run], run_folder / "no" / "such" / "folder.html")


def test_each_row_says_its_episodes_where_they_differ(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path / name, algo=name)) for name in ("crpo", "pcpo")]
    assert "100 fresh episodes per seed and policy" in render_report(runs)
    for mode in ("greedy", "stochastic"):
        runs[1].evaluation[mode]["episodes_per_seed"] = 20
    page = render_report(runs)
    assert "fresh episodes per seed and policy" not in page
    for text in ("greedy, 100 episodes", "greedy, 20 episodes", "stochastic, 20 episodes"):
        assert f"<small>{text}</small>" in page
