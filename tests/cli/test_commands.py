"""The command line as a user meets it: the JSON contract, one clear line for bad input, nothing written."""

import json
import os
import subprocess
import sys

import pytest

from awavo.cli.main import main

SETTINGS = ("num_envs=4", "rollout_length=16", "num_updates=2", "hidden=16", "num_quantiles=4", "batch_size=16")
TINY = ["--steps", "512", "--seeds", "2", *(word for s in (*SETTINGS, "warmup_steps=64") for word in ("--option", s))]


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "cartpole"
    done = subprocess.run(
        [sys.executable, "-m", "awavo.cli", "train", "cartpole", *TINY, "--out", str(out), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return out, json.loads(done.stdout.strip().splitlines()[-1])


def test_train_json_contract(trained):
    out, summary = trained
    assert {"run", "task", "algo", "seeds", "env_steps", "wall_s", "compile_s", "steps_per_second"} <= set(summary)
    assert (summary["task"], summary["algo"], summary["seeds"], summary["env_steps"]) == ("cartpole", "orpo-dr", 2, 512)
    assert summary["run"] == str(out)
    assert {p.name for p in out.iterdir()} >= {"config.json", "metrics.parquet", "episodes.parquet", "checkpoints"}


def test_evaluate_json_contract(trained, capsys):
    out, _ = trained
    code, text, _ = run(capsys, "evaluate", str(out), "--episodes", "20", "--json")
    result = json.loads(text)
    assert code in (0, 1)
    assert len(result["return"]["per_seed"]) == 2
    assert result["return"]["low"] <= result["return"]["value"] <= result["return"]["high"]
    assert {"value", "low", "high", "limit", "per_seed"} <= set(result["costs"]["position"])
    assert result["costs"]["angle"]["limit"] == 10.0
    assert result["episodes_per_seed"] == 20
    assert 0 <= result["feasible_seeds"] <= 2
    assert code == (0 if result["feasible_seeds"] else 1)


def test_report_and_compare(trained, capsys):
    out, _ = trained
    assert run(capsys, "report", str(out), "--json")[0] == 0
    assert (out / "report.html").stat().st_size > 10_000
    code, text, _ = run(capsys, "compare", str(out), "--json")
    assert code == 0
    assert "orpo-dr" in text


def test_the_same_command_again_finds_it_finished(trained, capsys):
    out, _ = trained
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (out / "checkpoints").iterdir())
    code, text, _ = run(capsys, "train", "cartpole", *TINY, "--out", str(out), "--json")
    assert code == 0
    assert json.loads(text)["resumed_at"] == 512
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in (out / "checkpoints").iterdir())


def test_another_configuration_in_the_same_folder_is_refused(trained, capsys):
    out, _ = trained
    code, _, err = run(capsys, "train", "cartpole", *TINY, "--out", str(out), "--option", "discount=0.9")
    assert code == 2
    assert "discount=0.99 (now 0.9)" in err


def test_damaged_run_folder(trained, capsys, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained[0], copy)
    for path in (copy / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-10])
    code, _, err = run(capsys, "evaluate", str(copy))
    assert code == 2
    assert "no usable checkpoint" in err
    (copy / "config.json").write_text("{")
    assert run(capsys, "evaluate", str(copy))[0] == 2


BAD = {
    "command": (["trian"], "Did you mean 'train'"),
    "task": (["train", "cartpol"], "Did you mean 'cartpole'"),
    "gymnasium id": (["train", "Pendulum-v9"], "Did you mean 'Pendulum-v1'"),
    "algorithm": (["train", "cartpole", "--algo", "orpo-d"], "Did you mean 'orpo-dr'"),
    "preset": (["train", "cartpole", "--preset", "papr"], "Did you mean 'paper'"),
    "option name": (["train", "cartpole", "--option", "discont=0.9"], "Did you mean 'discount'"),
    "option form": (["train", "cartpole", "--option", "discount"], "NAME=VALUE"),
    "option type": (["train", "cartpole", "--option", "batch_size=many"], "not a whole number"),
    "option range": (["train", "cartpole", "--option", "discount=1.5"], "out of range"),
    "option choice": (["train", "cartpole", "--option", "rectify=soft"], "not one of posterior, hard"),
    "steps": (["train", "cartpole", "--steps", "-5"], "--steps -5"),
    "steps text": (["train", "cartpole", "--steps", "lots"], "--steps lots"),
    "seeds": (["train", "cartpole", "--seeds", "0"], "seeds=0"),
    "limits length": (["train", "cartpole", "--limits", "30"], "give one limit for each"),
    "limit sign": (["train", "cartpole", "--limits", "30", "-1"], "limit"),
    "two kinds of limit": (["train", "cartpole", "--limits", "1", "1", "--sum-limit", "3"], "one of the two"),
    "task option": (["train", "acrobot", "--task-option", "on_reech=reset"], "Did you mean 'on_reach'"),
    "task option value": (["train", "acrobot", "--task-option", "on_reach=stop"], "not one of"),
    "flag": (["train", "cartpole", "--sedes", "3"], "--sedes"),
    "flag type": (["train", "cartpole", "--seeds", "ten"], "--seeds"),
    "no costs": (["train", "Pendulum-v1"], "cost"),
    "cost function": (["train", "Pendulum-v1", "--cost-fn", "nowhere:f"], "MODULE:NAME"),
    "cost function on a task": (["train", "cartpole", "--cost-fn", "math:sin"], "own costs"),
    "run folder": (["evaluate", "nothing-here"], "run folder"),
    "device": (["train", "cartpole", "--device", "abacus"], "auto, cpu, gpu"),
    "no run": (["compare"], "RUN"),
    "argument as an option": (["train", "--task", "cartpole"], "an argument, not an option: awavo train cartpole"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_exit_code_2_and_writes_nothing(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1, err
    assert err.startswith("awavo: ")
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way(capsys, tmp_path):
    (tmp_path / "out").write_text("mine")
    code, _, err = run(capsys, "train", "cartpole", *TINY, "--out", str(tmp_path / "out"))
    assert code == 2
    assert "run folder" in err
    assert (tmp_path / "out").read_text() == "mine"


def test_a_busy_folder(capsys, tmp_path):
    from awavo.runs.train import _locked

    with _locked(tmp_path):
        code, _, err = run(capsys, "train", "cartpole", *TINY, "--out", str(tmp_path))
    assert code == 2
    assert "in use by another process" in err


def test_dry_run_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text, _ = run(capsys, "train", "acrobot", "--dry-run", "--limits", "40", "60", "--preset", "paper")
    plan = json.loads(text)
    assert code == 0
    assert plan["cost_limits"] == [40.0, 60.0]
    assert plan["config"]["algo_options"]["actor_lr"] == 0.005
    assert plan["iterations"] * plan["steps_per_iteration"] == plan["env_steps"] >= 200_000
    assert os.listdir(tmp_path) == []


def test_list_and_doctor(capsys):
    code, text, _ = run(capsys, "list", "--json")
    assert code == 0
    assert {t["name"] for t in json.loads(text)["tasks"]} >= {"cartpole", "acrobot"}
    code, text, _ = run(capsys, "doctor", "--json")
    assert code == 0
    assert json.loads(text)["healthy"]


def test_check_env(capsys):
    code, text, _ = run(capsys, "check-env", "awavo/CartPole-v0", "--json")
    assert code == 0
    assert json.loads(text)["ok"]
    code, text, _ = run(capsys, "check-env", "Pendulum-v1", "--json")
    assert code == 1
    assert any("cost" in f["problem"] for f in json.loads(text)["findings"])
