"""A run folder from somebody else is data: what its configuration names is not run unless the caller says so."""

import json
import shutil
import sys

import pytest

import awavo
from awavo.config import stored_fingerprint
from awavo.errors import RunFolderError
from awavo.results.store import write_sealed

PAYLOAD = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture
def folder(small_run, tmp_path):
    return shutil.copytree(small_run, tmp_path / "run")


@pytest.fixture
def payload(tmp_path, monkeypatch):
    (tmp_path / "payload.py").write_text(PAYLOAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "payload.ran"
    sys.modules.pop("payload", None)


@pytest.mark.parametrize(
    "change",
    [
        {"algo_options": {"operator": "payload:x"}},
        {"task": "Pendulum-v1", "cost_fn": "payload:x"},
        {"task": "payload:Env-v0"},
        {"task": "bridge:Env", "task_options": {"python": sys.executable, "module": "payload"}},
    ],
    ids=["operator", "cost_fn", "module of the environment", "interpreter"],
)
def test_code_named_by_a_folder_is_not_run(folder, payload, change):
    # A folder made to measure: fingerprint and seal fit, and there is no checkpoint that knows better.
    shutil.rmtree(folder / "checkpoints")
    path = folder / "config.json"
    meta = {key: value for key, value in json.loads(path.read_text()).items() if key != "seal"}
    for name, value in change.items():
        old = meta["config"][name]
        meta["config"][name] = {**old, **value} if isinstance(old, dict) else value
    write_sealed(path, {**meta, "fingerprint": stored_fingerprint(meta["config"])})
    with pytest.raises(awavo.errors.RunFolderError, match=r"names code to run .*--trust") as caught:
        awavo.load(folder)
    assert "\n" not in str(caught.value)
    assert not payload.exists()
    with pytest.raises(awavo.errors.AwavoError):
        awavo.load(folder, trust=True)
    assert payload.exists() or "bridge" in str(change)


def test_a_folder_that_names_no_code_opens(folder):
    assert awavo.load(folder).env_steps == 256


def test_a_folder_without_its_fingerprint_is_refused(folder):
    path = folder / "config.json"
    meta = json.loads(path.read_text())
    del meta["fingerprint"], meta["seal"]
    write_sealed(path, meta)
    with pytest.raises(RunFolderError, match="does not match its fingerprint"):
        awavo.load(folder)
