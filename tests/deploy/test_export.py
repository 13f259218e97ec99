"""Exports: the files decide as the run does, and a changed file is refused."""

import json
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import awavo
from awavo.algorithms.awavo import AwavoConfig
from awavo.algorithms.awavo import awavo as make_awavo
from awavo.cli.main import main
from awavo.deploy.export import export_policy, load_export, write_files
from awavo.deploy.onnx_actor import run_onnx
from awavo.errors import InputError, MissingExtraError
from awavo.networks import RunningStatistics
from awavo.registry import ALGORITHMS, make_task, resolve
from awavo.runs.export import export_run
from awavo.runs.problem import settings_class
from awavo.training.compilation import jit_once

pytest.importorskip("onnx")


SMALL = dict(
    num_envs=4, rollout_length=16, num_updates=4, batch_size=16, hidden=(16,), num_quantiles=8, warmup_steps=64
)


@pytest.fixture(scope="module")
def run(small_run, tmp_path_factory):
    """A CartPole run, too short to have learnt anything."""
    return awavo.load(shutil.copytree(small_run, tmp_path_factory.mktemp("runs") / "cartpole"))


def test_files_decide_as_the_run_does(run, tmp_path):
    manifest = json.loads(export_run(run, tmp_path / "out").read_text())
    assert manifest["observation"]["dim"] == 4
    assert manifest["cost_limits"] == [150.0, 150.0]
    assert manifest["files"]["actor.onnx"]["largest_difference"] == 0
    obs = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
    wanted = run.act(obs)
    loaded = load_export(tmp_path / "out")
    found = np.concatenate([np.asarray(loaded.programs["actor"](row[None])) for row in obs])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(run_onnx((tmp_path / "out" / "actor.onnx").read_bytes(), obs), wanted)


@pytest.mark.parametrize("algo", ["orpo-dr", "crpo"])
def test_continuous_actors(algo, tmp_path):
    """Untrained states suffice: random networks, and statistics that are not the identity."""
    spec = make_task("drone").spec
    kind = settings_class(algo)
    algorithm = resolve(algo, ALGORITHMS, "algorithm")(
        spec, kind(**({**SMALL, "replay_capacity": 64} if algo == "orpo-dr" else {"hidden": (16,)}))
    )
    state = jit_once(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    stats = RunningStatistics(jnp.float32(10), jnp.asarray(rng.standard_normal(83), jnp.float32), jnp.full(83, 7.0))
    state = (
        state._replace(obs_stats=stats)
        if algo == "orpo-dr"
        else state._replace(estimates=state.estimates._replace(obs_stats=stats))
    )
    probes = rng.standard_normal((64, 83)).astype(np.float32)
    files, notes = export_policy(spec, algorithm, state, probes)
    assert notes["actor.onnx"]["largest_difference"] < 1e-5
    wanted = np.asarray(algorithm.act(jax.random.key(0), state, jnp.asarray(probes), True)[0])
    assert np.ptp(wanted) > 1e-4
    np.testing.assert_allclose(run_onnx(files["actor.onnx"], probes), wanted, atol=1e-5)


def test_a_changed_file_is_refused(run, tmp_path):
    export_run(run, tmp_path / "out", onnx=False)
    path = tmp_path / "out" / "actor.stablehlo"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not the file its manifest describes"):
        load_export(tmp_path / "out")


def test_a_manifest_cannot_reach_outside(run, tmp_path):
    path = export_run(run, tmp_path / "out", onnx=False)
    manifest = json.loads(path.read_text())
    manifest["files"]["../run.stablehlo"] = manifest["files"]["actor.stablehlo"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="outside the folder"):
        load_export(tmp_path / "out")


def crafted(folder, content):
    """An export whose sums are right."""
    write_files(folder, {"actor.stablehlo": content}, {}, {})
    return folder


def program(function, *disabled):
    off = [jax.export.DisabledSafetyCheck.custom_call(name) for name in disabled]
    shape = jax.ShapeDtypeStruct((1, 4), jnp.float32)
    return bytes(jax.export.export(jax.jit(function), disabled_checks=off)(shape).serialize())


def test_a_program_that_calls_code_outside_is_refused(tmp_path):
    """Run, this one crashes the process: the call takes its index for a callback that is not there."""
    target = "xla_ffi_python_cpu_callback"
    call = lambda obs: jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((1, 4), jnp.float32))(obs, index=7)  # noqa: E731
    with pytest.raises(InputError, match=rf"calls code outside of itself \({target}\)"):
        load_export(crafted(tmp_path / "out", program(call, target)))


def test_a_damaged_program_with_the_right_sum_is_refused(tmp_path):
    content = program(lambda obs: jnp.tanh(obs @ jnp.ones((4, 4))))
    with pytest.raises(InputError, match="cannot be read as StableHLO"):
        load_export(crafted(tmp_path / "out", content[: len(content) // 2]))


@pytest.mark.parametrize("outcome", ["crash", "hang"])
def test_a_reader_that_dies_or_hangs_does_so_in_its_own_process(outcome, tmp_path, monkeypatch):
    """One changed bit can make MLIR's reader end its process, or never end."""
    from awavo.deploy import program_check

    script = {"crash": "import os; os.kill(os.getpid(), 11)", "hang": "import time; time.sleep(60)"}[outcome]
    (tmp_path / "reader.py").write_text(script)
    monkeypatch.setattr(program_check, "__file__", str(tmp_path / "reader.py"))
    monkeypatch.setattr(program_check, "SECONDS", 0.5 if outcome == "hang" else 60)
    with pytest.raises(
        InputError, match={"crash": "it cannot be read", "hang": "it was not read within 0.5 s"}[outcome]
    ):
        load_export(crafted(tmp_path / "out", b"anything"))


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        '{"format": 1, "files": 3}',
        '{"format": 1, "files": {"a": 7}}',
        '{"format": 1, "files": {"a": {}}}',
        "[" * 9999,
    ],
)
def test_a_malformed_manifest_is_refused(manifest, tmp_path):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(InputError, match="is not an export"):
        load_export(tmp_path)


def test_planner_of_awavo(tmp_path):
    settings = dict(
        num_envs=2, rollout_length=8, hidden=(8,), num_quantiles=4, replay_capacity=16, num_members=2,
        num_sequences=8, horizon=3, num_steps=1,
    )  # fmt: skip
    spec = make_task("cartpole").spec
    algorithm = make_awavo(spec, AwavoConfig(**settings))
    state = jit_once(algorithm.init)(jax.random.key(0))
    files, notes = export_policy(spec, algorithm, state, np.zeros((4, 4), np.float32), onnx=False)
    write_files(tmp_path / "out", files, notes, {})
    loaded = load_export(tmp_path / "out")
    memory = algorithm.begin(1)
    key, obs = jax.random.key(3), np.zeros((1, 4), np.float32)
    action, after = loaded.programs["planner"](jax.random.key_data(key), obs, memory)
    wanted, _, plan = jax.jit(lambda k, o, m: algorithm.decide(k, state, o, m, True))(key, obs, memory)
    assert int(action[0]) == int(wanted[0])
    np.testing.assert_allclose(after, plan, atol=1e-5)


def test_command(run, tmp_path, capsys):
    folder = str(run.path)
    assert main(["export", folder, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert "actor.onnx" in json.loads(capsys.readouterr().out)["files"]
    assert main(["export", folder, "--out", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", folder, "--out", str(tmp_path / "new"), "--seed", "7"]) == 2
    assert not (tmp_path / "new").exists()
    assert main(["export", str(tmp_path / "nothing")]) == 2


def test_missing_extra(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"awavo\[onnx\]"):
        export_run(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
