"""The same host run has the same figures under `awavo evaluate`, `Run.evaluate()`, the comparison and a job."""

import json

import numpy as np
import pytest

from awavo.cli.main import main
from awavo.results.compare import compare_runs
from awavo.results.store import load_run
from awavo.runs.api import load
from awavo.training.evaluation import Episodes

EPISODES = 4  # those of the job


def figures(entry):
    costs = {name: cost["per_seed"] for name, cost in entry["costs"].items()}
    return {"return": entry["return"]["per_seed"], "length": entry["length"]["per_seed"], **costs}


def test_the_same_numbers_for_every_seed_wherever_they_are_asked_for(walker_job, capsys):
    folder, found = walker_job
    code = main(["evaluate", str(folder), "--episodes", str(EPISODES), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert figures(printed) == figures(found)
    assert code == (0 if found["feasible_seeds"] == 2 else 1)
    assert figures(load(folder).evaluate(EPISODES)["greedy"]) == figures(found)
    (row,) = compare_runs([load_run(folder)]).groups[0].rows
    assert row.outcome.returns.tolist() == found["return"]["per_seed"]
    assert row.outcome.costs[:, 0].tolist() == next(iter(found["costs"].values()))["per_seed"]
    assert row.outcome.feasible_seeds == found["feasible_seeds"]


def test_another_seed_of_the_evaluation_gives_other_numbers(walker_job):
    folder, found = walker_job
    assert figures(load(folder).evaluate(EPISODES, seed=5)["greedy"]) != figures(found)


@pytest.mark.parametrize(("require", "code"), [("all", 1), ("50%", 0), ("1", 0), ("2", 1)])
def test_the_exit_code_asks_for_as_many_seeds_as_are_required(walker_job, monkeypatch, require, code):
    folder, found = walker_job
    entry = {**found, "feasible_seeds": 1}
    monkeypatch.setattr("awavo.runs.api.Run.evaluate", lambda *_, **__: {"greedy": entry, "stochastic": entry})
    assert main(["evaluate", str(folder), "--require", require, "--json"]) == code


def test_nonsense_is_refused_before_anything_is_loaded(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), "--require", "most"]) == 2
    assert "expected all, a share such as 80%" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path), "--slack", "-1"]) == 2


def test_host_episodes_start_from_the_seeds_that_the_module_names(walker_job, monkeypatch):
    """Stored certificates of host runs are rechecked on the same episodes: another seeding would refute them all."""
    starts = []
    episodes = Episodes(np.zeros(EPISODES), np.zeros((EPISODES, 1)), np.zeros(EPISODES))
    monkeypatch.setattr("awavo.runs.evaluate.evaluate_host", lambda *args: starts.append(args[4]) or episodes)
    load(walker_job[0]).evaluate(EPISODES, seed=100)
    assert starts == [107, 109, 106, 108]  # seed + 2 s + greedy, of seeds 3 and 4: greedy, then stochastic
