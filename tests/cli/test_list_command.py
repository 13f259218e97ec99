"""`awavo list`."""

import json


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
