"""`awavo evaluate`: the JSON contract, the exit code, damaged folders."""

import json
import re
import shutil

from awavo.training.checkpoint import read_checkpoint, seed_arrays, write_checkpoint


def test_evaluate_json_contract(trained, run):
    out, _ = trained
    code, text, _ = run("evaluate", str(out), "--episodes", "20", "--json")
    result = json.loads(text)
    assert code in (0, 1)
    assert len(result["return"]["per_seed"]) == 2
    assert result["return"]["low"] <= result["return"]["value"] <= result["return"]["high"]
    assert {"value", "low", "high", "limit", "per_seed"} <= set(result["costs"]["position"])
    assert result["costs"]["angle"]["limit"] == 150.0
    assert result["episodes_per_seed"] == 20
    assert 0 <= result["feasible_seeds"] <= 2
    assert code == (0 if result["feasible_seeds"] else 1)


def test_damaged_run_folder(trained, run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained[0], copy)
    for path in (copy / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-10])
    code, _, err = run("evaluate", str(copy))
    assert code == 2
    assert "no usable checkpoint" in err
    (copy / "config.json").write_text("{")
    assert run("evaluate", str(copy))[0] == 2


def test_an_older_checkpoint_is_not_judged_in_the_place_of_a_damaged_one(trained, run, tmp_path):
    copy = shutil.copytree(trained[0], tmp_path / "copy")
    meta = json.loads((copy / "config.json").read_text())
    newest = copy / "checkpoints" / "step-000000000256.safetensors"
    found = read_checkpoint(newest)
    states = [seed_arrays(found, seed) for seed in (0, 1)]
    place = {"fingerprint": meta["fingerprint"], "seal": meta["seal"], "iteration": 2, "env_steps": 128}
    write_checkpoint(copy / "checkpoints", [0, 1], states, **place)
    newest.write_bytes(newest.read_bytes()[:-10])
    code, _, err = run("evaluate", copy, "--episodes", "2")
    assert code == 2
    assert re.fullmatch(
        r"awavo: '.*000256.safetensors' is damaged.* step 128 is intact: run the same .* or delete the damaged .*\n",
        err,
    )
    newest.unlink()
    assert run("evaluate", copy, "--episodes", "2")[0] in (0, 1)


def test_more_seeds_than_there_are_cannot_be_required(trained, run):
    """It was played to the end and could never pass."""
    code, _, err = run("evaluate", trained[0], "--require", "3")
    assert code == 2
    assert err == "awavo: require='3' can never hold: the run has 2 seeds.\n"
