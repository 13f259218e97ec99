"""`awavo train`: the JSON contract, resuming, folders that are refused, the dry run."""

import json
import os

from awavo.files import locked


def test_train_json_contract(trained):
    out, summary = trained
    assert {"run", "task", "algo", "seeds", "env_steps", "wall_s", "compile_s", "steps_per_second"} <= set(summary)
    assert (summary["task"], summary["algo"], summary["seeds"], summary["env_steps"]) == ("cartpole", "orpo-dr", 2, 256)
    assert summary["run"] == str(out)
    assert {p.name for p in out.iterdir()} >= {"config.json", "metrics.parquet", "episodes.parquet", "checkpoints"}


def test_the_same_command_again_finds_it_finished(trained, run, tiny):
    out, _ = trained
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (out / "checkpoints").iterdir())
    code, text, _ = run("train", "cartpole", *tiny, "--out", str(out), "--json")
    assert code == 0
    assert json.loads(text)["resumed_at"] == 256
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in (out / "checkpoints").iterdir())


def test_another_configuration_in_the_same_folder_is_refused(trained, run, tiny):
    out, _ = trained
    code, _, err = run("train", "cartpole", *tiny, "--out", str(out), "--option", "discount=0.9")
    assert code == 2
    assert "discount=0.99 (now 0.9)" in err


def test_a_file_in_the_way(run, tiny, tmp_path):
    (tmp_path / "out").write_text("mine")
    code, _, err = run("train", "cartpole", *tiny, "--out", str(tmp_path / "out"))
    assert code == 2
    assert "is not a folder" in err
    assert (tmp_path / "out").read_text() == "mine"


def test_a_busy_folder(run, tiny, tmp_path):
    with locked(tmp_path):
        code, _, err = run("train", "cartpole", *tiny, "--out", str(tmp_path))
    assert code == 2
    assert "in use by another process" in err


def test_dry_run_writes_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text, _ = run("train", "acrobot", "--dry-run", "--limits", "40,60", "--preset", "paper")
    plan = json.loads(text)
    assert code == 0
    assert plan["cost_limits"] == [40.0, 60.0]
    assert plan["config"]["algo_options"]["actor_lr"] == 0.005
    assert plan["iterations"] * plan["steps_per_iteration"] == plan["env_steps"] >= 200_000
    assert os.listdir(tmp_path) == []


def test_the_model_that_is_planned_in(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text, _ = run("train", "cartpole", "--algo", "awavo", "--model", "physics", "--dry-run", "--steps", "256")
    assert code == 0
    assert json.loads(text)["config"]["algo_options"]["planning"] == "physics"
    refused = {
        ("garnet", "--algo", "awavo", "--model", "physics"): "task 'garnet' declares no physics",
        ("cartpole", "--algo", "crpo", "--model", "physics"): "'crpo' does not",
        ("cartpole", "--algo", "awavo", "--model", "guess"): "--model guess is not one of learnt, physics",
        ("cartpole", "--algo", "awavo", "--model", "physics", "--option", "planning=off"): "give one of the two",
        ("cartpole", "--algo", "awavo", "--model", "physics", "--task-option", "cart_mass=9"): "between 0.2 and 5",
    }
    for words, reason in refused.items():
        code, _, err = run("train", *words, "--steps", "256")
        assert (code, len(err.strip().splitlines())) == (2, 1), err
        assert reason in err
    assert os.listdir(tmp_path) == []
