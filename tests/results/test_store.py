import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from awavo.errors import RunFolderError
from awavo.results.certificate_record import read_record
from awavo.results.report import write_report
from awavo.results.store import (
    load_run,
    read_json,
    read_table,
    seal_of,
    to_plain,
    write_bytes,
    write_json,
    write_sealed,
    write_table,
)


def test_load_run_reads_everything(run_folder):
    run = load_run(run_folder)
    assert (run.task, run.algo, run.label) == ("cartpole", "orpo-dr", "orpo-dr (posterior)")
    assert run.cost_names == ("position", "angle")
    assert run.cost_limits == (30.0, 10.0)
    assert run.seeds == list(range(10))
    assert 19_000 <= run.env_steps <= 20_000
    assert run.evaluation is not None
    assert run.evaluation["greedy"]["seeds"] == 10


def test_a_run_without_evaluation_is_fine(run_folder):
    (run_folder / "evaluation.json").unlink()
    assert load_run(str(run_folder)).evaluation is None


def _edit(folder, change):
    meta = json.loads((folder / "config.json").read_text())
    change(meta)
    (folder / "config.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text('{"format": 1'), "is damaged"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "is damaged"),
        (lambda f: (f / "config.json").write_text("[]"), "JSON object"),
        (lambda f: (f / "config.json").write_text('{"a":' * 50_000), "is damaged"),
        (lambda f: _edit(f, lambda m: m.update(format=2)), "format 2, expected 1"),
        (lambda f: _edit(f, lambda m: m.pop("spec")), "no spec.cost_names"),
        (lambda f: _edit(f, lambda m: m["config"].pop("task")), "no config.task"),
        (lambda f: _edit(f, lambda m: m["spec"].update(cost_limits=[1.0])), "one cost limit per cost name"),
        (lambda f: _edit(f, lambda m: m["spec"].update(cost_limits=[1.0, 10**400])), "a cost limit is not a number"),
        (lambda f: (f / "metrics.parquet").unlink(), "metrics.parquet' is missing"),
        (lambda f: (f / "episodes.parquet").write_bytes(b""), "episodes.parquet' is damaged"),
        (lambda f: os.truncate(f / "episodes.parquet", 500), "episodes.parquet' is damaged"),
        (lambda f: write_table(f / "episodes.parquet", {"seed": [0], "env_steps": [1]}), "no column 'return'"),
        (lambda f: (f / "evaluation.json").write_text('{"greedy": 3}'), "evaluation.json' is damaged"),
    ],
)
def test_damage_is_named_in_one_line(run_folder, damage, says):
    damage(run_folder)
    with pytest.raises(RunFolderError) as caught:
        load_run(run_folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RunFolderError, match="is not a folder"):
        load_run(tmp_path / "nowhere")


def test_flipped_bytes_never_escape_as_other_errors(run_folder):
    path = run_folder / "episodes.parquet"
    whole, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(40):
        broken = bytearray(whole)
        for place in random.integers(0, len(whole), 8):
            broken[place] ^= int(random.integers(1, 256))
        path.write_bytes(bytes(broken))
        with contextlib.suppress(RunFolderError):
            load_run(run_folder)


def test_json_is_nan_safe_and_plain(tmp_path):
    content = {"a": np.float32(1.5), "b": [np.nan, np.inf, 2], "c": np.arange(3), "d": tmp_path, 4: np.bool_(True)}
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json") == {
        "a": 1.5,
        "b": [None, None, 2],
        "c": [0, 1, 2],
        "d": str(tmp_path),
        "4": True,
    }
    assert to_plain({"x": (1, None)}) == {"x": [1, None]}


@pytest.mark.parametrize("table", [{"seed": np.arange(2), "x/y": [0.5, None]}, [{"seed": 0, "x/y": 0.5}, {"seed": 1}]])
def test_tables_from_columns_and_rows(tmp_path, table):
    write_table(tmp_path / "t.parquet", table)
    assert pl.read_parquet(tmp_path / "t.parquet")["x/y"].to_list() == [0.5, None]
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    write_bytes(tmp_path / "f", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        write_bytes(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_killed_writers_leave_a_whole_file(tmp_path):
    code = (
        "import sys; from awavo.results.store import write_bytes\n"
        "print('on', flush=True)\n"
        "while True:\n"
        "    for byte in (b'a', b'b'): write_bytes(sys.argv[1], byte * 2_000_000)\n"
    )
    target = tmp_path / "f"
    write_bytes(target, b"a" * 2_000_000)
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02 + 0.01 * attempt)
        process.kill()
        process.wait()
        content = target.read_bytes()
        assert content in (b"a" * 2_000_000, b"b" * 2_000_000)


def test_the_room_imports_no_jax():
    code = (
        "import sys, awavo.results.store, awavo.results.statistics\n"
        "assert not {m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib')}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["evaluation.json", "metrics.parquet", "episodes.parquet"])
def test_what_is_no_file_or_too_large_is_refused_unread(run_folder, name):
    path = run_folder / name
    with path.open("ab") as file:
        file.truncate(8 << 30)  # a hole: it takes no room on the disk
    with pytest.raises(RunFolderError, match="bytes, at most"):
        load_run(run_folder)
    path.unlink()
    os.mkfifo(path)  # to open it would wait for somebody who writes
    with pytest.raises(RunFolderError, match=r"not a file|is missing"):
        load_run(run_folder)


@pytest.mark.bad_input
def test_an_evaluation_of_another_run_is_refused(run_folder):
    evaluation = read_json(run_folder / "evaluation.json")
    mine = {mode: evaluation[mode] for mode in ("greedy", "stochastic")}
    seal = read_json(run_folder / "config.json")["seal"]
    write_sealed(run_folder / "evaluation.json", {**mine, "run": seal})
    assert load_run(run_folder).evaluation == mine
    write_sealed(run_folder / "evaluation.json", {**mine, "run": seal[::-1]})
    with pytest.raises(RunFolderError, match="is of another run"):
        load_run(run_folder)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["config.json", "evaluation.json", "metrics.parquet"])
def test_what_may_not_be_read_is_not_called_damaged(run_folder, monkeypatch, name):
    whole = Path.read_bytes

    def read_bytes(path):  # the tests may run as root, whom no permission stops
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(RunFolderError, match=rf"{name}' cannot be read \(Permission denied\): change its permissions"):
        load_run(run_folder)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["metrics.parquet", "episodes.parquet"])
def test_a_table_of_another_run_is_refused(run_folder, name):
    """Its checksum fits, and its curves and costs are of somebody else's policy."""
    table, _ = read_table(run_folder / name)
    seal = read_json(run_folder / "config.json")["seal"]
    write_table(run_folder / name, table, run=seal)
    assert load_run(run_folder).env_steps > 0
    write_table(run_folder / name, table, run=seal[::-1])
    with pytest.raises(RunFolderError, match=f"{name}' is of another run"):
        load_run(run_folder)


@pytest.mark.bad_input
@pytest.mark.parametrize(("name", "remedy"), [("evaluation", "Evaluate again"), ("certificates", "awavo certify")])
def test_of_a_torn_result_it_is_not_said_to_train_anew(run_folder, name, remedy):
    path = run_folder / f"{name}.json"
    path.write_text('{"greedy": {')
    with pytest.raises(RunFolderError, match=remedy) as refused:
        load_run(run_folder) if name == "evaluation" else read_record(run_folder)
    assert "new run" not in str(refused.value)


def test_names_that_are_no_text_are_spelled_out(run_folder, tmp_path):
    """A folder may have a name that is no UTF-8; Python holds its bytes as lone surrogates."""
    odd = run_folder.rename(tmp_path / "a\udcff")
    write_sealed(odd / "evaluation.json", {"run": None, "greedy": {"command": f"awavo evaluate {odd}"}})
    content = read_json(odd / "evaluation.json")
    assert content["greedy"]["command"].endswith("a\udcff")
    assert content["seal"] == seal_of(content)
    (odd / "evaluation.json").unlink()
    meta = read_json(odd / "config.json")
    write_sealed(odd / "config.json", {**meta, "command": f"awavo train cartpole --out {odd}"})
    assert b"a\\udcff" in write_report([load_run(odd)], odd / "report.html").read_bytes()
