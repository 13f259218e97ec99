"""`awavo list`."""

import io
import json

import pytest
from rich.console import Console

from awavo.cli.list_names import task_table


def test_tasks_have_their_limits_and_algorithms_their_papers(run):
    code, text, _ = run("list", "--json")
    listed = json.loads(text)
    tasks = {task["name"]: task for task in listed["tasks"]}
    assert code == 0
    assert set(tasks) >= {"cartpole", "acrobot", "walker", "walker-mjx"}
    assert tasks["cartpole"]["limits"] == {"position": 30.0, "angle": 10.0}
    assert tasks["cartpole"]["horizon"] > 0
    assert {algorithm["name"] for algorithm in listed["algorithms"]} >= {"awavo", "orpo-dr", "crpo"}
    assert all(item["summary"] and item["source"] for item in (*listed["tasks"], *listed["algorithms"]))


def test_the_tables_name_them_too(run):
    code, text, _ = run("list")
    assert code == 0
    assert all(name in text for name in ("cartpole", "position <= 30", "orpo-dr"))


@pytest.mark.parametrize(("algo", "most"), [("awavo", 30), ("orpo-dr", 20)])
def test_settings_of_an_algorithm_are_few_and_explained(run, algo, most):
    code, text, _ = run("list", "--options", algo, "--json")
    options = json.loads(text)["options"]
    assert code == 0
    assert len(options) <= most
    assert all(option["meaning"] and option["accepts"] for option in options)
    code, text, _ = run("list", "--options", algo)
    assert code == 0
    assert "rectify" in text


def test_settings_of_no_algorithm_are_refused(run):
    code, _, error = run("list", "--options", "awafo")
    assert code == 2
    assert "Did you mean 'awavo'" in error


def test_a_pipe_gets_whole_lines(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, text, _ = run("list")
    lines = text.splitlines()
    assert any("humanoid-velocity" in line and "Ji et al. 2023 (Safety-Gymnasium)" in line for line in lines)


def test_a_narrow_terminal_wraps_and_cuts_nothing():
    limits, words = {"velocity": 25.0, "uprightness": 10.0}, "anticlockwise walk of a human body"
    row = {"name": "humanoid-velocity", "limits": limits, "horizon": 1000, "summary": words, "source": words}
    console = Console(width=80, file=io.StringIO())
    console.print(task_table([row]))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("humanoid-velocity" in line and "velocity <= 25" in line for line in lines)
    rows = [line.split("│") for line in lines if "│" in line]
    for column in (-2, -3):
        assert "".join(line[column].strip() for line in rows).replace(" ", "") == words.replace(" ", "")
