"""Every example runs: programs as they are started, notebooks cell by cell; with small networks and few steps."""

import dataclasses
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

import awavo
from awavo.config import fingerprint
from awavo.registry import TASKS
from awavo.runs.api import Run
from awavo.runs.problem import settings_class

FOLDER = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
WRITES = {
    "own_environment.py": ["video.gif", "report.html"],
    "pendulum_with_a_cost.py": ["report.html"],
    "compare_methods.py": ["report.html"],
    "certify_a_policy.py": ["certificates.json"],
    "explain_decisions.py": ["explanation.html"],
    "own_environment.ipynb": ["runs/room/video.gif", "runs/room/report.html"],
    "compare_and_publish.ipynb": ["runs/curves.svg", "runs/report.html"],
    "certify_and_explain.ipynb": ["runs/cartpole/certificates.json", "runs/cartpole/report.html"],
}


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch, small, smallest, small_config, safety_only, once, tmp_path):
    """What the examples configure, but small, and trained once; of the certificates, those about the policies."""
    real, train = awavo.configure, awavo.train

    def configure(task, algo="orpo-dr", **options):
        real(task, algo, **options)  # what the example says is right
        if task in TASKS and algo == "orpo-dr":
            return small_config
        if task in TASKS:
            # On the task of that run, with its limits and its length: the two are compared.
            known = {field.name for field in dataclasses.fields(settings_class(algo))}
            sizes = {name: value for name, value in small.items() if name in known}
            return dataclasses.replace(small_config, algo=algo, algo_options={"window": 4, **sizes})
        # To an environment of one's own the method does not matter, and CRPO compiles in half the time.
        return real(task, **{**options, **smallest, "steps": 256, "seeds": 1})

    def train_once(config, out, **parts):
        if parts or "/" in config.task:
            return train(config, out, **parts)
        # The folder of the fixture `small_run`, where it is its configuration.
        name = "small-run" if config == small_config else f"example-{fingerprint(config)}"
        return awavo.load(shutil.copytree(once(name, lambda folder: train(config, folder)), out))

    monkeypatch.setattr(awavo, "configure", configure)
    monkeypatch.setattr(awavo, "train", train_once)
    evaluate, certify = Run.evaluate, Run.certify
    monkeypatch.setattr(Run, "evaluate", lambda run, episodes=0: evaluate(run, 4))
    monkeypatch.setattr(Run, "certify", lambda run, **options: certify(run, **{**options, "episodes": 20}))
    monkeypatch.chdir(tmp_path)


def test_there_are_six_programs_and_three_notebooks_and_the_page_names_them():
    assert (len(PROGRAMS), len(NOTEBOOKS)) == (6, 3)
    page = (FOLDER.parent / "docs" / "examples.md").read_text()
    assert [name for name in (*PROGRAMS, *NOTEBOOKS) if f"examples/{name}" not in page] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path / "out")])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert capsys.readouterr().out
    for file in WRITES.get(name, []):
        assert (tmp_path / "out" / file).stat().st_size > 100


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name, tmp_path, capsys):
    cells = json.loads((FOLDER / name).read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # results belong into docs, with their provenance
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), namespace)
    for file in WRITES[name]:
        assert (tmp_path / file).stat().st_size > 100
