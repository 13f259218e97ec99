"""`awavo report` and `awavo compare` on a run."""

import json


def test_report_says_what_it_wrote(trained, run, tmp_path):
    out, _ = trained
    code, text, _ = run("report", out, "--out", tmp_path / "page.html", "--json")
    said = json.loads(text)
    assert code == 0
    assert said["written"] == [str(tmp_path / "page.html")]
    assert said["bytes"] == (tmp_path / "page.html").stat().st_size > 10_000


def test_a_figure_lies_beside_the_page(trained, run, tmp_path):
    code, text, _ = run("report", trained[0], "--out", tmp_path / "page.html", "--figure")
    assert code == 0
    assert {p.name for p in tmp_path.iterdir()} >= {"page.html", "page.png", "page.svg"}
    assert set(text.split()) == {str(path) for path in tmp_path.iterdir()}


def test_compare_as_json_and_markdown(trained, run):
    code, text, _ = run("compare", trained[0], "--json")
    assert code == 0
    assert "orpo-dr" in text
    assert json.loads(text)
    code, text, _ = run("compare", trained[0], "--markdown")
    assert (code, "| " in text) == (0, True)
