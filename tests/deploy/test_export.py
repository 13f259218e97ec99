"""Exports: the files decide as the run does, and a changed file is refused."""

import hashlib
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
from awavo.deploy.export import export_policy, load_export, policy_file, write_files
from awavo.deploy.onnx_actor import run_onnx
from awavo.errors import InputError, MissingExtraError
from awavo.networks import RunningStatistics
from awavo.networks.normalizer import TAILS
from awavo.registry import ALGORITHMS, make_task, resolve
from awavo.results.certificate_record import read_record
from awavo.results.store import seal_of, write_sealed
from awavo.runs.export import _custody, export_run
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
    manifest = json.loads(export_run(run, str(tmp_path / "out")).read_text())
    assert manifest["observation"]["dim"] == 4
    assert manifest["cost_limits"] == [150.0, 150.0]
    assert manifest["files"]["actor.onnx"]["largest_difference"] == 0
    obs = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
    wanted = run.act(obs)
    loaded = load_export(tmp_path / "out")
    found = np.concatenate([np.asarray(loaded.programs["actor"](row[None])) for row in obs])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(run_onnx((tmp_path / "out" / "actor.onnx").read_bytes(), obs), wanted)


@pytest.mark.parametrize("algo", ["orpo-dr", "crpo", "cal"])
def test_continuous_actors(algo, tmp_path):
    """Untrained states suffice: random networks, and statistics that are not the identity."""
    spec = make_task("drone").spec
    kind = settings_class(algo)
    memory = {"replay_capacity": 128} if algo == "cal" else {}
    algorithm = resolve(algo, ALGORITHMS, "algorithm")(
        spec, kind(**({**SMALL, "replay_capacity": 64} if algo == "orpo-dr" else {"hidden": (16,), **memory}))
    )
    state = jit_once(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    stats = RunningStatistics(jnp.float32(10), jnp.asarray(rng.standard_normal(83), jnp.float32), jnp.full(83, 7.0))
    if algo == "orpo-dr":  # a larger task, whose critics see tails: the actor does not
        thresholds = jnp.asarray(rng.standard_normal((len(TAILS), 83)), jnp.float32)
        stats = stats._replace(thresholds=thresholds)
    state = (
        state._replace(obs_stats=stats)
        if algo in ("orpo-dr", "cal")
        else state._replace(estimates=state.estimates._replace(obs_stats=stats))
    )
    probes = rng.standard_normal((64, 83)).astype(np.float32)
    files, notes = export_policy(spec, algorithm, state, probes)
    assert notes["actor.onnx"]["largest_difference"] < 1e-5
    wanted = np.asarray(algorithm.act(jax.random.key(0), state, jnp.asarray(probes), True)[0])
    assert np.ptp(wanted) > 1e-4
    np.testing.assert_allclose(run_onnx(files["actor.onnx"], probes), wanted, atol=1e-5)


def test_a_policy_whose_actions_are_no_numbers_is_not_exported():
    """As after a run that broke: nan is as far from nan as can be."""
    spec = make_task("drone").spec
    algorithm = resolve("crpo", ALGORITHMS, "algorithm")(spec, settings_class("crpo")(hidden=(16,)))
    state = jit_once(algorithm.init)(jax.random.key(0))
    broken = jax.tree.map(lambda x: jnp.nan * x if jnp.issubdtype(x.dtype, jnp.floating) else x, state)
    with pytest.raises(InputError, match="differs from the trained one by nan"):
        export_policy(spec, algorithm, broken, np.zeros((4, 83), np.float32))


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
    write_sealed(path, {name: value for name, value in manifest.items() if name != "seal"})
    with pytest.raises(InputError, match="no plain file in the folder"):
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


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "x" * 5000, "a\0b", "", ".", "..", "a/b", "\ud800"])
def test_a_manifest_names_plain_files(name, tmp_path):
    content = {"format": 1, "files": {name: {"sha256": "0" * 64}}}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="no plain file in the folder"):
        load_export(tmp_path)


def test_planner_of_awavo(tmp_path):
    settings = dict(
        num_envs=2, rollout_length=8, hidden=(8,), num_quantiles=4, replay_capacity=16, num_members=2,
        num_sequences=8, horizon=3,
    )  # fmt: skip
    spec = make_task("cartpole").spec
    algorithm = make_awavo(spec, AwavoConfig(**settings))
    state = jit_once(algorithm.init)(jax.random.key(0))
    files, notes = export_policy(spec, algorithm, state, np.zeros((4, 4), np.float32))
    assert policy_file(algorithm) == "planner.stablehlo"
    assert {name: note["is_policy"] for name, note in notes.items()} == {
        "actor.stablehlo": False, "actor.onnx": False, "planner.stablehlo": True,
    }  # fmt: skip
    import onnx

    assert onnx.load_from_string(files["actor.onnx"]).doc_string.startswith("NOT the policy")
    write_files(tmp_path / "out", files, notes, {})
    loaded = load_export(tmp_path / "out")
    memory = algorithm.begin(1)
    key, obs = jax.random.key(3), np.zeros((1, 4), np.float32)
    action, after = loaded.programs["planner"](jax.random.key_data(key), obs, memory)
    wanted, _, plan = jax.jit(lambda k, o, m: algorithm.decide(k, state, o, m, True))(key, obs, memory)
    assert int(action[0]) == int(wanted[0])
    np.testing.assert_allclose(after, plan, atol=1e-5)
    refused, kept = loaded.programs["planner"](jax.random.key_data(key), obs + np.nan, after)
    assert int(refused[0]) == -1
    np.testing.assert_array_equal(kept, after)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_gets_no_action(run, bad, tmp_path):
    """An actor clips what it sees, and argmax takes the first of NaNs: both answered as if nothing were wrong."""
    export_run(run, tmp_path / "out")
    obs = np.zeros((2, 4), np.float32)
    obs[1, 2] = bad
    loaded = load_export(tmp_path / "out")
    assert int(np.asarray(loaded.programs["actor"](obs[1:]))[0]) == -1
    found = run_onnx((tmp_path / "out" / "actor.onnx").read_bytes(), obs)
    assert found[1] == -1
    assert found[0] == run.act(obs[0])


def test_continuous_actions_are_nan_then(tmp_path):
    spec = make_task("drone").spec
    algorithm = resolve("crpo", ALGORITHMS, "algorithm")(spec, settings_class("crpo")(hidden=(16,)))
    state = jit_once(algorithm.init)(jax.random.key(0))
    files, notes = export_policy(spec, algorithm, state, np.zeros((4, 83), np.float32))
    assert notes["actor.onnx"]["is_policy"] is True
    obs = np.zeros((2, 83), np.float32)
    obs[1, 5] = np.nan
    found = run_onnx(files["actor.onnx"], obs)
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()
    write_files(tmp_path / "out", files, notes, {})
    assert np.isnan(np.asarray(load_export(tmp_path / "out").programs["actor"](obs[1:]))).all()


def test_the_manifest_names_where_the_policy_comes_from(run, tmp_path):
    manifest = json.loads(export_run(run, tmp_path / "out", onnx=False).read_text())
    digest = hashlib.sha256(run.checkpoint_path.read_bytes()).hexdigest()
    assert manifest["checkpoint"] == {"file": run.checkpoint_path.name, "sha256": digest}
    assert manifest["policy"] == "actor.stablehlo"
    assert manifest["files"]["actor.stablehlo"]["is_policy"] is True
    assert manifest["certificate"] is None
    assert manifest["certified_file"] is None


def test_the_manifest_names_the_certificate_that_is_about_the_policy(certified, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(certified[0], folder)
    path = folder / "certificates.json"

    def custody():
        return _custody(awavo.load(folder), 0)

    found = custody()
    record = read_record(folder)
    verdict = {c["name"]: c["verdict"] for c in record["certificates"]}["safety.seed_0"]
    assert found["certificate"] == {
        "file": "certificates.json",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "is_about_this_checkpoint": True,
        "doubts": [],
        "safety_of_this_seed": verdict,
        "delivered_seed": record["delivered_seed"],
    }
    assert verdict == "supported"
    assert found["certified_file"] == "actor.stablehlo"
    # A record about another checkpoint, and one whose verdict was turned.
    turned = [{**c, "verdict": "refuted"} if c["name"] == "safety.seed_0" else c for c in record["certificates"]]
    for change, doubt in (
        ({"bound": {**record["bound"], "checkpoint": "0" * 64}}, "they were made for another checkpoint"),
        ({"certificates": turned}, None),
    ):
        changed = {**record, **change}
        changed["seal"] = seal_of(changed)
        monkeypatch.setattr("awavo.runs.export.read_record", lambda folder, changed=changed: changed)
        found = custody()
        assert found["certified_file"] is None
        assert found["certificate"]["is_about_this_checkpoint"] is False
        assert doubt is None or found["certificate"]["doubts"] == [doubt]


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


@pytest.mark.bad_input
@pytest.mark.parametrize(("field", "value"), [("cost_limits", [150.0, 950.0]), ("certified_file", "actor.stablehlo")])
def test_an_edited_manifest_is_refused(run, tmp_path, field, value):
    """Sums of the files alone would let the limits and the certificate say anything."""
    path = export_run(run, tmp_path / "out", onnx=False)
    manifest = json.loads(path.read_text())
    load_export(tmp_path / "out")
    path.write_text(json.dumps({**manifest, field: value}))
    with pytest.raises(InputError, match="does not match its seal"):
        load_export(tmp_path / "out")
