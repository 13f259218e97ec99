"""Jobs: names that change with every setting, skipping what is done, files in one piece."""

import json

import numpy as np
import pytest

from awavo.errors import InputError, UnknownNameError
from awavo.paper import job as jobs_module
from awavo.paper import jobs
from awavo.paper.budgets import budget, tasks_table
from awavo.paper.figures import FIGURES
from awavo.paper.job import Job, missing_jobs, share_of
from awavo.paper.plans import learning_settings, plan_jobs, split_seeds
from awavo.paper.training import checkpoint_iterations, curve_iterations, curve_rows, last_info, run_learning
from awavo.results.recorder import Recorder
from awavo.runs.train import Training


def touch(folder, job):
    path = job.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"rows": [{}]}')


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
    left = missing_jobs([whole], tmp_path)
    assert [job.seeds for job in left] == [(0,), (3,)]  # a run has consecutive seeds
    for job in left:
        touch(tmp_path, job)
    assert missing_jobs([whole], tmp_path) == []


def test_a_name_that_claims_a_huge_range_takes_no_memory(tmp_path):
    job = Job("learning", "a", {}, (5, 6))
    for last in (10**15, "9" * 200):
        path = tmp_path / "jobs" / f"{job.family}-s6-{last}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"rows": [{}]}')
        assert [left.seeds for left in missing_jobs([job], tmp_path)] == [(5,)]
        path.unlink()


def test_results_are_found_anywhere_below_the_folder(tmp_path):
    job = Job("learning", "a", {}, (5,))
    touch(tmp_path / "from" / "elsewhere", job)
    assert missing_jobs([job], tmp_path) == []


def test_a_half_written_file_does_not_count(tmp_path, monkeypatch):
    job = Job("learning", "a", {}, (0,))
    monkeypatch.setattr("awavo.files.os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        jobs_module.write_atomically(job.path(tmp_path), "{}")
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


def recorded(*episodes):
    """A recorder with (seed, env_steps, return) of finished episodes, and metrics every 100 steps."""
    recorder = Recorder(("a",))
    for seed, steps, value in episodes:
        recorder.add_episodes(seed, np.array([steps]), np.array([value]), np.array([5]), np.ones((1, 1)))
    for seed in (0, 1):
        columns = {"train/feasible": np.array([0.0, 1.0]), "train/cost_weight_a": np.array([1.0, 3.0 + seed])}
        recorder.add_metrics(seed, np.array([100, 200]), columns)
    return recorder


def test_a_point_of_the_curve_waits_for_enough_episodes():
    broken, whole = [(s, 50, -10.0) for s in (0, 1)], [(s, 150, v) for s in (0, 1) for v in (4.0, 6.0, 5.0)]
    recorder = recorded(*broken, *whole)
    (row,) = curve_rows(recorder, (0, 1), ("a",), [100, 200], least=4)
    assert (row["env_steps"], row["return"]["value"]) == (200, pytest.approx(1.25))
    first, second = curve_rows(recorder, (0, 1), ("a",), [100, 200])
    assert (first["return"]["value"], second["return"]["value"]) == (-10, 5)
    assert [first["feasible_iterations"], second["feasible_iterations"]] == [0.0, 1.0]


def test_the_last_metrics_are_means_over_seeds():
    assert last_info(recorded((0, 50, 1.0)), ("a",)) == {"feasible": 1.0, "cost_weight": [3.5]}


def test_stretches_of_the_curve_meet_every_checkpoint_and_the_end():
    cuts = curve_iterations(97, 10, [1, 3, 40, 97], 64)
    assert {1, 3, 40, 97, 9, 18} <= set(cuts)
    assert cuts == sorted(set(cuts))
    assert cuts[-1] == 97


LEARNING = {
    "task": "cartpole", "algo": "crpo", "steps": 2048, "checkpoints": 4, "episodes": 4, "points": 4,
    "options": {"num_envs": 8, "rollout_length": 32, "hidden": [8], "window": 4},
}  # fmt: skip


def test_a_killed_learning_job_resumes_and_ends_with_the_same_row(tmp_path, monkeypatch):
    whole = run_learning(LEARNING, (0, 1), folder=tmp_path / "whole")
    monkeypatch.setattr(Training, "save", saves_then_dies(Training.save))
    monkeypatch.setattr("awavo.runs.train.CHUNK_SECONDS", 1e-9)
    advance = Training.advance
    monkeypatch.setattr(Training, "advance", lambda self, stops: advance(self, stops, checkpoint_seconds=0.0))
    with pytest.raises(KeyboardInterrupt):
        run_learning(LEARNING, (0, 1), folder=tmp_path / "killed")
    monkeypatch.undo()
    lines = []
    again = run_learning(LEARNING, (0, 1), folder=tmp_path / "killed", on_progress=lines.append)
    assert lines[0] == "resumes at 1280 steps"
    timed = ("compile_s", "train_wall_s", "train_cpu_s", "steps_per_second", "steps_per_cpu_second")
    assert untimed(again, timed) == untimed(whole, timed)


def saves_then_dies(save):
    def dying(self):
        save(self)
        if self.iteration == 5:
            raise KeyboardInterrupt

    return dying


def untimed(value, names=()):
    """A row without what the clock decides."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if k != "wall_s" and k not in names}
    return [untimed(v) for v in value] if isinstance(value, list) else value


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


@pytest.mark.parametrize("text", ["", "{}", '{"rows": []}', "[1]", "{", "[" * 9999])
def test_a_file_without_a_result_does_not_count(tmp_path, text):
    job = Job("learning", "a", {}, (0,))
    touch(tmp_path, job)
    assert missing_jobs([job], tmp_path) == []
    job.path(tmp_path).write_text(text)
    assert missing_jobs([job], tmp_path) == [job]
