"""Folders that are read-only, in use, or full of what a killed process left."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from awavo.cli.main import main
from awavo.errors import RunFolderError
from awavo.files import locked, new_folder, read_arrays, remove_leftovers, require_writable, write_bytes

HELD = """
import sys, time
from pathlib import Path
from awavo.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
WRITING = """
import os, sys, time
import awavo.files as files
os.replace = lambda *_: (print("writing", flush=True), time.sleep(60))
files.write_bytes(sys.argv[1], b"half")
"""


def start(code, path):
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.fixture
def other(request):
    """Start a process and end it with the test."""
    started = []

    def run(code, path):
        started.append(start(code, path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_held_folder_stays_held_whatever_is_deleted_in_it(tmp_path, other):
    """The lock was on a file `.lock`: deleting it let a second process in."""
    folder = tmp_path / "run"
    holder = other(HELD, folder)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(RunFolderError, match="in use by another process"), locked(folder):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(folder):
        pass


def test_inference_holds_its_folder(tmp_path, other, capsys):
    other(HELD, tmp_path / "run")
    assert main(["infer", "lorenz96", "--states", "16", "--out", str(tmp_path / "run")]) == 2
    assert "in use by another process" in capsys.readouterr().err


def test_what_a_killed_writer_left_goes_and_what_a_running_one_writes_stays(tmp_path, other):
    killed, running = other(WRITING, tmp_path / "a.json"), other(WRITING, tmp_path / "b.json")
    killed.kill()
    killed.wait()
    (tmp_path / ".hand.tmp").write_bytes(b"of nobody")
    assert len(list(tmp_path.glob(".*.tmp"))) == 3
    with locked(tmp_path):
        assert [path.name for path in tmp_path.glob(".*.tmp")] == [f".b.json.{running.pid}.tmp"]
    running.kill()
    running.wait()
    write_bytes(tmp_path / "c.json", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_leftovers_in_the_folder_of_checkpoints_go_too(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".step-000000000064.safetensors.7.tmp").write_bytes(b"half")
    with locked(tmp_path):
        assert not list((tmp_path / "checkpoints").iterdir())
    remove_leftovers(tmp_path / "nowhere")


def test_a_disk_that_refuses_everything_gets_one_line(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("awavo.files.open", refuse, raising=False)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(RunFolderError, match=r"Cannot write .* Read-only file system"):
        write_bytes(tmp_path / "a", b"x")


@pytest.mark.parametrize("path", ["/dev/null/x", "file/x", "x" * 300])
def test_a_place_where_no_folder_can_be_is_refused(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="Cannot"):
        new_folder(tmp_path / path)


@pytest.fixture
def read_only(monkeypatch):
    """Say of a folder that it is read-only: the tests may run as a user whom no mode stops."""

    def forbid(folder):
        real = os.access
        below = lambda p: Path(p) == folder or folder in Path(p).parents  # noqa: E731
        monkeypatch.setattr(os, "access", lambda p, mode: not below(p) and real(p, mode))

    return forbid


def test_require_writable(tmp_path, read_only):
    require_writable(tmp_path / "not" / "yet")
    with pytest.raises(RunFolderError, match="File name too long"):
        require_writable(tmp_path / ("x" * 300) / "yet")
    read_only(tmp_path)
    with pytest.raises(RunFolderError, match="is read-only"):
        require_writable(tmp_path / "not" / "yet")
    with pytest.raises(RunFolderError, match="is read-only"), locked(tmp_path):
        pass


@pytest.mark.parametrize("command", ["evaluate", "report", "export", "certify", "explain"])
def test_commands_on_a_read_only_run_get_one_line(certified_copy, read_only, capsys, command):
    before = sorted(certified_copy.rglob("*"))
    read_only(certified_copy)
    began = time.process_time()
    assert main([command, str(certified_copy)]) == 2
    assert time.process_time() - began < 20  # said before the work, not after it
    err = capsys.readouterr().err
    assert "is read-only" in err
    assert len([line for line in err.splitlines() if line.startswith("awavo:")]) == 1
    assert "Traceback" not in err
    assert sorted(certified_copy.rglob("*")) == before


@pytest.fixture
def certified_copy(certified, tmp_path):
    copied = tmp_path / "cartpole"
    shutil.copytree(certified[0], copied, ignore=shutil.ignore_patterns("*.html"))
    return copied


def _archive(path, shape, data):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mean.npy", header.getvalue() + data)
    return path


def test_arrays_are_bounded_before_they_are_unpacked(tmp_path):
    """An archive that grows a thousandfold, a header that promises too much, objects that would be unpickled."""
    np.savez(tmp_path / "good.npz", mean=np.arange(3.0))
    np.testing.assert_array_equal(read_arrays(tmp_path / "good.npz", 1_000)["mean"], np.arange(3.0))
    assert read_arrays(tmp_path / "good.npz", 1_000, {"other"}) == {}
    bomb = _archive(tmp_path / "bomb.npz", (10**6,), bytes(8 * 10**6))
    assert bomb.stat().st_size < 20_000
    with pytest.raises(ValueError, match="unpacks to"):
        read_arrays(bomb, 10**6)
    with pytest.raises(ValueError, match="shape"):
        read_arrays(_archive(tmp_path / "liar.npz", (10**15,), bytes(80)), 10**6)
    np.savez(tmp_path / "objects.npz", mean=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="object"):
        read_arrays(tmp_path / "objects.npz", 10**6)
    (tmp_path / "torn.npz").write_bytes(bomb.read_bytes()[:300])
    with pytest.raises((ValueError, OSError)):
        read_arrays(tmp_path / "torn.npz", 10**9)
