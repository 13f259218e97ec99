"""A run folder from somebody else is data: what its configuration names is not run unless the caller says so."""

import json
import shutil
import sys

import pytest

import awavo
from awavo.errors import RunFolderError
from tests.conftest import SMALL

PAYLOAD = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("trust") / "run"
    awavo.train(awavo.configure("cartpole", steps=64, seeds=1, **SMALL), out)
    return out


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
    path = folder / "config.json"
    kept = path.read_text()
    meta = json.loads(kept)
    for name, value in change.items():
        old = meta["config"][name]
        meta["config"][name] = {**old, **value} if isinstance(old, dict) else value
    path.write_text(json.dumps(meta))
    try:
        with pytest.raises(awavo.errors.RunFolderError, match=r"names code to run .*--trust") as caught:
            awavo.load(folder)
        assert "\n" not in str(caught.value)
        assert not payload.exists()
        with pytest.raises(awavo.errors.AwavoError):
            awavo.load(folder, trust=True)
        assert payload.exists() or "bridge" in str(change)
    finally:
        path.write_text(kept)


def test_a_folder_that_names_no_code_opens(folder):
    assert awavo.load(folder).env_steps == 64


def test_a_folder_without_its_fingerprint_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    meta = json.loads(path.read_text())
    del meta["fingerprint"]
    path.write_text(json.dumps(meta))
    with pytest.raises(RunFolderError):
        awavo.load(tmp_path / "run")
