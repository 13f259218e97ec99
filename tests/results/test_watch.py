"""The live page: what it shows of a folder into which somebody trains, and whom it does not answer."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from awavo.cli import watch as watch_command
from awavo.cli.main import _parse, main
from awavo.errors import InputError, RunFolderError
from awavo.files import locked
from awavo.results.store import write_sealed
from awavo.results.watch import FILES, Watch, _state
from awavo.runs import display


def ask(watch, path="/", method="GET", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", watch.port, timeout=20)) as connection:
        connection.request(method, path, headers={"Host": f"127.0.0.1:{watch.port}", **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


@pytest.fixture
def watch(run_folder):
    with Watch(run_folder) as page:
        yield page


def test_the_data_are_those_of_the_folder(watch):
    status, headers, content = ask(watch, "/data.json")
    data = json.loads(content)
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert [chart["id"] for chart in data["charts"][:3]] == ["return", "cost_position", "cost_angle"]
    assert [figure["limit"] for figure in data["figures"]] == [None, 30.0, 10.0]
    assert data["charts"][1]["limit"] == 30.0
    assert data["env_steps"] > 0
    assert data["video"] is None
    assert data["seeds"] == 10


def test_a_page_that_has_not_changed_is_not_sent_again(watch):
    _, headers, _ = ask(watch, "/data.json")
    status, _, content = ask(watch, "/data.json", **{"If-None-Match": headers["ETag"]})
    assert (status, content) == (304, b"")


def test_the_state_says_whether_somebody_trains(run_folder):
    assert _state(run_folder, 10, 10) == "finished"
    assert _state(run_folder, 5, 10) == "training"  # its files are new
    for name in FILES:
        os.utime(run_folder / name, (0, 0))
    assert _state(run_folder, 5, 10) == "stopped"
    if not os.path.exists("/proc/locks"):
        pytest.skip("this system does not tell who holds a lock")
    with locked(run_folder):
        assert _state(run_folder, 5, 10) == "training"
    assert _state(run_folder, 5, 10) == "stopped"


def test_a_run_that_has_saved_nothing_yet_is_waited_for(run_folder):
    for name in ("metrics.parquet", "episodes.parquet"):
        (run_folder / name).unlink()
    with Watch(run_folder) as page:
        data = json.loads(ask(page, "/data.json")[2])
        assert "Nothing is saved yet" in data["note"]
        assert data["charts"] == []


def test_new_tables_are_read(run_folder, tmp_path, write_run):
    longer = write_run(tmp_path / "longer", steps=40_000)
    with Watch(run_folder) as page:
        before = json.loads(ask(page, "/data.json")[2])["env_steps"]
        for name in ("metrics.parquet", "episodes.parquet"):
            shutil.copy(longer / name, run_folder / name)
        assert json.loads(ask(page, "/data.json")[2])["env_steps"] > before


def test_a_damaged_table_is_named_and_the_page_stays(watch, run_folder):
    (run_folder / "metrics.parquet").write_bytes(b"PAR1 and no more")
    status, _, content = ask(watch, "/data.json")
    assert status == 200
    assert "metrics.parquet" in json.loads(content)["note"]


def test_the_video_is_that_of_the_folder(watch, run_folder):
    assert ask(watch, "/video")[0] == 404
    (run_folder / "video.gif").write_bytes(b"GIF89a and frames")
    status, headers, content = ask(watch, "/video")
    assert (status, headers["Content-Type"], content) == (200, "image/gif", b"GIF89a and frames")
    assert json.loads(ask(watch, "/data.json")[2])["video"]["kind"] == "image/gif"
    (run_folder / "video.gif").write_bytes(b"<script>alert(1)</script>")
    assert ask(watch, "/video")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", "localhost"])
def test_another_name_gets_nothing(watch, host):
    for path in ("/", "/data.json", "/video"):
        status, _, content = ask(watch, path, Host=host)
        assert status == 403
        assert b"orpo" not in content


def test_localhost_is_a_name_of_this_machine(watch):
    assert ask(watch, "/", Host=f"localhost:{watch.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(watch, method):
    assert ask(watch, "/data.json", method)[0] == 501


@pytest.mark.parametrize("path", ["/config.json", "/../config.json", "/%2e%2e/etc/passwd", "/video/../config.json"])
def test_no_other_file_is_shown(watch, path):
    status, _, content = ask(watch, path)
    assert status == 404
    assert b"fingerprint" not in content


def test_it_listens_on_this_machine_alone(watch):
    assert watch._server.socket.getsockname()[0] == "127.0.0.1"


def test_the_page_loads_nothing_from_elsewhere(watch):
    page = ask(watch)[2].decode()
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) == {"http://www.w3.org/2000/svg"}
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1].replace("&#39;", "'")
    parts = [part.split() for part in policy.split(";")]
    assert [part[0] for part in parts] == [
        "default-src",
        "script-src",
        "style-src",
        "img-src",
        "media-src",
        "connect-src",
    ]
    assert ["connect-src", "'self'"] in parts
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_names_in_the_folder_are_escaped(run_folder, tmp_path, write_run):
    folder = write_run(tmp_path / "nasty", task="</script><script>alert(1)</script>")
    with Watch(folder) as page:
        assert "<script>alert(1)" not in ask(page)[2].decode()


def test_what_is_no_run_or_no_port_is_refused(tmp_path, watch, run_folder):
    with pytest.raises(RunFolderError, match="expected a run folder"):
        Watch(tmp_path / "nothing")
    with pytest.raises(InputError, match="give another --port"):
        Watch(run_folder, port=watch.port)


def test_nothing_is_written_into_the_folder(run_folder):
    before = {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")}
    with Watch(run_folder) as page:
        ask(page), ask(page, "/data.json"), ask(page, "/video")
    assert {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")} == before


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_and_ends_when_told_to(run_folder, stop):
    command = [sys.executable, "-m", "awavo.cli", "watch", str(run_folder), "--video-every", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[0]
            port = int(url.rstrip("/").rpartition(":")[2])
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("GET", "/data.json")
                assert connection.getresponse().status == 200
            process.send_signal(stop)
            began = time.monotonic()
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "the training is not touched" in out
    assert err == ""
    assert time.monotonic() - began < 10


def test_a_command_that_cannot_watch_says_so(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "expected a run folder" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "70000"]) == 2
    write_sealed(tmp_path / "config.json", {"format": 1})
    assert main(["watch", str(tmp_path)]) == 2


def test_nothing_counts_up_while_it_serves(run_folder, monkeypatch, capfd):
    monkeypatch.delenv("AWAVO_QUIET", raising=False)
    for name in ("FIRST_LINE", "NEXT_LINE"):
        monkeypatch.setattr(display, name, 0.4)
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(1.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        assert main(["watch", str(run_folder), "--video-every", "0"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capfd.readouterr().err == ""


def until(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_new_checkpoint_is_rendered_beside_the_run_and_shown(run_folder, tmp_path, monkeypatch):
    """What renders is a program that notes its arguments and writes a video, or complains where there is `broken`."""
    noted, broken, made = tmp_path / "noted", tmp_path / "broken", tmp_path / "made"
    program = tmp_path / "program"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {noted}\n'
        f'if test -e {broken}; then echo "rendering, 3 s" >&2; echo "awavo: it is gone" >&2; exit 2; fi\n'
        f"printf 'GIF89a %s' $(wc -l < {noted}) > {made}/video.gif\n"
    )
    program.chmod(0o755)
    made.mkdir()
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(watch_command, "LOOK_EVERY", 0.01)
    checkpoints = run_folder / "checkpoints"
    checkpoints.mkdir()
    with Watch(run_folder, videos=made) as page:
        over = threading.Event()
        command = watch_command.Watch(run_folder, video_every=0.02)
        maker = threading.Thread(target=command._make_videos, args=(page, over))
        maker.start()
        try:
            time.sleep(0.05)
            assert not noted.exists()  # there is no checkpoint
            for number in (1, 2):
                (checkpoints / f"step-{number:012d}.safetensors").touch()
                until(lambda number=number: ask(page, "/video")[2] == f"GIF89a {number}".encode())
            time.sleep(0.1)
            calls = noted.read_text().splitlines()
            assert len(calls) == 2  # one for each checkpoint
            broken.touch()
            (checkpoints / "step-000000000003.safetensors").touch()
            until(lambda: json.loads(ask(page, "/data.json")[2])["note"] == "No video: awavo: it is gone")
            assert ask(page, "/video")[2] == b"GIF89a 2"
        finally:
            over.set()
            maker.join()
    asked = _parse(calls[0].removeprefix("-m awavo.cli ").split())  # the command line takes it
    assert (asked.target, asked.out, asked.trust) == (str(run_folder), made, False)
