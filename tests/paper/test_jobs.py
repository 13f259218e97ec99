"""Jobs: names that change with every setting, skipping what is done, files in one piece."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from awavo.errors import InputError, UnknownNameError
from awavo.paper import jobs
from awavo.paper.budgets import budget, tasks_table
from awavo.paper.figures import FIGURES
from awavo.paper.jobs import Job, missing_jobs, share_of
from awavo.paper.plans import learning_settings, plan_jobs, split_seeds
from awavo.paper.schedule import checkpoint_iterations, legs
from awavo.paper.training import curve_row


def touch(folder, job):
    path = job.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def test_a_name_changes_with_every_setting():
    row = {"task": "cartpole", "algo": "crpo", "steps": 1000, "checkpoints": 2, "spacing": "log", "episodes": 5}
    changes = ({}, {"steps": 2000}, {"episodes": 6}, {"options": {"max_kl": 0.02}}, {"cost_limits": [1, 2]})
    names = {Job("learning", "x", learning_settings({**row, **change}), (0,)).family for change in changes}
    assert len(names) == 5
    assert Job("learning", "x", learning_settings(row), (0,)).family in names


def test_only_missing_seeds_are_left(tmp_path):
    whole = Job("learning", "a", {"k": 1}, (0, 1, 2, 3))
    touch(tmp_path, Job("learning", "a", {"k": 1}, (1, 2)))
    touch(tmp_path, Job("learning", "a", {"k": 2}, (0, 3)))
    (left,) = missing_jobs([whole], tmp_path)
    assert left.seeds == (0, 3)
    touch(tmp_path, left)
    assert missing_jobs([whole], tmp_path) == []


def test_results_are_found_anywhere_below_the_folder(tmp_path):
    job = Job("learning", "a", {}, (5,))
    touch(tmp_path / "from" / "elsewhere", job)
    assert missing_jobs([job], tmp_path) == []


def test_a_half_written_file_does_not_count(tmp_path, monkeypatch):
    job = Job("learning", "a", {}, (0,))
    monkeypatch.setattr("awavo.files.os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        jobs.write_atomically(job.path(tmp_path), "{}")
    assert missing_jobs([job], tmp_path) == [job]


def test_shares_are_disjoint_and_whole():
    jobs = plan_jobs("learning", "full", seeds_per_job=5)
    shares = [share_of(jobs, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(job.name for share in shares for job in share) == sorted(job.name for job in jobs)
    assert min(len(share) for share in shares) >= len(jobs) // 3
    for bad in ("0/2", "3/2", "half", "1", "-1/2"):
        with pytest.raises(InputError, match="expected I/N"):
            share_of(jobs, bad)


def test_a_task_of_the_comparison_brings_its_options():
    for job in plan_jobs("learning", "quick"):
        assert job.settings.get("task_options", {}) == ({"gait_hz": 2} if job.settings["task"] == "walker" else {})


def test_seeds_in_blocks():
    assert split_seeds(5, 2) == [(0, 1), (2, 3), (4,)]
    assert split_seeds(2, None, 100) == [(100, 101)]
    with pytest.raises(InputError):
        split_seeds(0, None)


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("size", ["quick", "full"])
def test_every_budget_makes_jobs_with_different_names(figure, size):
    names = [job.name for job in plan_jobs(figure, size)]
    assert names
    assert len(set(names)) == len(names)


def test_the_full_budget_compares_all_methods_on_all_tasks():
    pairs = {(row["task"], row["algo"]) for row in budget("learning", "full")["jobs"]}
    assert len(pairs) == len(tasks_table()) * 5
    assert budget("learning", "full")["seeds"] == 10


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="cartpole"):
        plan_jobs("learning", "full", tasks=["cartpol"])
    with pytest.raises(UnknownNameError, match="Did you mean 'flight'"):
        plan_jobs("fligt", "full")


def test_log_checkpoints_are_dense_early():
    points = checkpoint_iterations(500, 20, "log")
    assert points[0] == 1
    assert points[-1] == 500
    assert sum(point <= 50 for point in points) > len(points) / 2
    assert checkpoint_iterations(100, 4, "linear") == [25, 50, 75, 100]
    assert checkpoint_iterations(100, 0, "log") == []


def test_a_point_of_the_curve_waits_for_enough_episodes():
    def leg(returns):
        done = np.ones(len(returns), bool)
        info = SimpleNamespace(feasible=np.ones(1))
        found = SimpleNamespace(done=done, episode_return=np.array(returns), info=info)
        found.episode_costs = np.ones((len(returns), 1))
        return [found, found]  # two seeds

    broken, whole = leg([-10.0]), leg([4.0, 6.0, 5.0])
    assert curve_row(100, [broken], 1, least=4) == {}
    row = curve_row(200, [broken, whole], 1, least=4)
    assert row["return"]["value"] == pytest.approx(1.25)
    assert curve_row(100, [broken], 1)["return"]["value"] == -10


def test_legs_meet_every_checkpoint_and_the_end():
    stops = [1, 3, 40, 97]
    cut = list(legs(97, 10, stops, 64))
    assert [leg.end for leg in cut if leg.is_checkpoint] == stops
    assert [leg.start for leg in cut[1:]] == [leg.end for leg in cut[:-1]]
    assert cut[0].start == 0
    assert cut[-1].end == 97


def test_the_runner_skips_what_is_done(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr("awavo.paper.convergence_run.run_convergence", lambda s, seeds, **_: ran.append(seeds) or {})
    for _ in range(2):
        assert jobs.main(["convergence", "--seeds", "2", "--out", str(tmp_path), "--quiet"]) == 0
    assert ran == [(0, 1), (0, 1)]
    assert "2 of 2 jobs are finished" in capsys.readouterr().out
    content = json.loads(next(tmp_path.rglob("rate-1-*.json")).read_text())
    assert content["commit"]
    assert content["device"]["platform"] == "cpu"
