"""On a terminal every command shows something before it has used two seconds of CPU time, and JSON stays clean."""

import json
import os
import pty
import subprocess
import sys

import pytest

COMMANDS = [
    "train cartpole --algo awavo", "demo", "evaluate RUN", "certify RUN", "explain RUN", "explain FT1", "export RUN",
    "fly circle", "render drone", "infer lorenz96", "check-env Pendulum-v1", "reproduce lorenz", "compare RUN",
    "report RUN", "list", "doctor", "watch RUN",
]  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


def start(arguments, folder, **streams):
    command = [sys.executable, "-m", "awavo.cli", *arguments]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "TERM": "xterm", "AWAVO_QUIET": ""}, **streams)


def cpu_seconds(process):
    """What a running process has used."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="CPU time of another process is read from /proc")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_something_at_once(command, trained, tmp_path):
    ours, theirs = pty.openpty()
    arguments = [str(trained[0]) if word == "RUN" else word for word in command.split()]
    process = start(arguments, tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        first = os.read(ours, 1000)
        used = cpu_seconds(process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert first.strip()
    assert b"Traceback" not in first
    assert b"awavo: " not in first
    assert used < 2


def test_the_bar_leaves_json_alone(tmp_path):
    ours, theirs = pty.openpty()
    process = start(["doctor", "--json"], tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    out, _ = process.communicate()
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert json.loads(out)["healthy"]
    assert "checking this machine" in shown
    assert "{" not in shown


def test_a_program_that_reads_json_gets_no_progress(tmp_path):
    process = start(["doctor", "--json"], tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    assert json.loads(out)
    assert err == b""


def test_the_compiler_says_nothing_about_its_cache(tmp_path):
    """Though jax asks for its warnings in every child of a program that has imported it."""
    program = """
import awavo, jax
from awavo.training.compilation import enable_cache
enable_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: jax.numpy.sort(x) @ x)(jax.numpy.arange(8.0))
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "AWAVO_CACHE_DIR": str(tmp_path)}
    for _ in ("compiled", "from the cache"):
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert done.stderr == b""
    assert any(tmp_path.iterdir())
