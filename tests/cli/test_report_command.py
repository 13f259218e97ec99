"""`awavo report` and `awavo compare` on a run."""

import json
import shutil

import pytest

from awavo.results.store import read_json, write_sealed


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


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["config.json", "metrics.parquet", "page.png", ""])
def test_a_page_takes_the_place_of_no_other_file(trained, run, tmp_path, monkeypatch, name):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, text, err = run("report", ".", "--out", name)
    assert (code, text) == (2, "")
    assert "expected one that ends with .html" in err
    assert len(err.splitlines()) == 1
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_evaluation_does_not_pass_for_that_of_another_run(trained, run, tmp_path):
    folder, other = (shutil.copytree(trained[0], tmp_path / name) for name in ("run", "other"))
    assert run("evaluate", folder, "--episodes", 2)[0] in (0, 1)
    assert run("compare", folder)[0] == 0
    meta = read_json(other / "config.json")
    write_sealed(other / "config.json", {**meta, "created": "2020-01-01T00:00:00+00:00"})  # trained at another time
    for path in (other / "checkpoints").iterdir():
        path.unlink()
    shutil.copy(folder / "evaluation.json", other)
    code, _, err = run("compare", other)
    assert (code, "is of another run" in err) == (2, True)
