"""`awavo list`."""

import json

import pytest


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
