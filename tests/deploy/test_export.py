"""Exports: the files decide as the run does, and a changed file is refused."""

import json
import sys

import jax
import numpy as np
import pytest

import awavo
from awavo.cli import main
from awavo.deploy.export import load_export
from awavo.deploy.onnx_actor import find_actor, run_onnx
from awavo.errors import InputError, MissingExtraError
from awavo.exporting import export_run

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with discrete and one with continuous actions, too short to have learnt anything."""
    folder = tmp_path_factory.mktemp("runs")
    small = dict(num_envs=4, rollout_length=16, num_updates=2, batch_size=16, hidden=(16, 16), num_quantiles=8)
    small["warmup_steps"] = 32
    made = {}
    for task in ("cartpole", "drone"):
        config = awavo.configure(task, "orpo-dr", steps=64, seeds=1, **small)
        made[task] = awavo.train(config, folder / task)
    return made


@pytest.mark.parametrize("task", ["cartpole", "drone"])
def test_files_decide_as_the_run_does(runs, task, tmp_path):
    run = runs[task]
    manifest = json.loads(export_run(run, tmp_path / "out").read_text())
    assert manifest["observation"]["dim"] == run.problem.spec.obs_dim
    assert manifest["cost_limits"] == list(run.problem.spec.cost_limits)
    assert manifest["files"]["actor.onnx"]["largest_difference"] <= 1e-5
    obs = np.random.default_rng(1).standard_normal((32, run.problem.spec.obs_dim)).astype(np.float32)
    wanted = run.act(obs)
    loaded = load_export(tmp_path / "out")
    found = np.concatenate([np.asarray(loaded.programs["actor"](row[None])) for row in obs])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(run_onnx((tmp_path / "out" / "actor.onnx").read_bytes(), obs), wanted, atol=1e-5)


def test_a_changed_file_is_refused(runs, tmp_path):
    export_run(runs["cartpole"], tmp_path / "out", onnx=False)
    path = tmp_path / "out" / "actor.stablehlo"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not the file its manifest describes"):
        load_export(tmp_path / "out")


def test_a_manifest_cannot_reach_outside(runs, tmp_path):
    path = export_run(runs["cartpole"], tmp_path / "out", onnx=False)
    manifest = json.loads(path.read_text())
    manifest["files"]["../run.stablehlo"] = manifest["files"]["actor.stablehlo"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="outside the folder"):
        load_export(tmp_path / "out")


def test_planner_of_awavo(tmp_path):
    settings = dict(
        num_envs=2, rollout_length=8, num_updates=1, batch_size=8, hidden=(8,), num_quantiles=4, warmup_steps=8,
        num_members=2, model_hidden=(8,), model_updates=1, model_batch=8, num_sequences=8, horizon=3, num_steps=1,
        amortize_updates=1, slice_updates=1, posterior_capacity=16,
    )  # fmt: skip
    run = awavo.train(awavo.configure("cartpole", "awavo", steps=16, seeds=1, **settings), tmp_path / "run")
    export_run(run, tmp_path / "out", onnx=False)
    loaded = load_export(tmp_path / "out")
    memory = run.problem.algorithm.begin(1)
    key, obs = jax.random.key(3), np.zeros((1, 4), np.float32)
    action, after = loaded.programs["planner"](jax.random.key_data(key), obs, memory)
    wanted, _, plan = run.problem.algorithm.decide(key, run.states[0], obs, memory, True)
    assert int(action[0]) == int(wanted[0])
    np.testing.assert_allclose(after, plan, atol=1e-6)


def test_command(runs, tmp_path, capsys):
    run = str(runs["cartpole"].path)
    assert main(["export", run, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert "actor.onnx" in json.loads(capsys.readouterr().out)["files"]
    assert main(["export", run, "--out", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", run, "--out", str(tmp_path / "new"), "--seed", "7"]) == 2
    assert not (tmp_path / "new").exists()
    assert main(["export", str(tmp_path / "nothing")]) == 2


def test_missing_extra(runs, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"awavo\[onnx\]"):
        export_run(runs["cartpole"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert find_actor(()) is None
