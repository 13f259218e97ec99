"""Killed, stopped and taken up again: the numbers are those of an uninterrupted run."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from awavo.cli.main import main
from awavo.training.checkpoint import latest_checkpoint

SETTINGS = ("num_envs=4", "rollout_length=16", "hidden=8", "window=4")
STEPS = 6_400
OPTIONS = ["--algo", "crpo", "--steps", str(STEPS), "--seeds", "2"]
OPTIONS += [word for setting in SETTINGS for word in ("--option", setting)]
OFTEN = ["--checkpoint-seconds", "0"]


def command(out):
    return [sys.executable, "-m", "awavo.cli", "train", "cartpole", *OPTIONS, *OFTEN, "--out", str(out), "--json"]


def arrays(out):
    found, refused = latest_checkpoint(out / "checkpoints")
    assert found is not None
    assert not refused
    assert found.env_steps == STEPS
    return found.arrays


@pytest.fixture(scope="module")
def straight(once):
    return once("straight", lambda out: main(["train", "cartpole", *OPTIONS, "--out", str(out)]))


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)


def next_checkpoint(out, before, going):
    """Wait until the run has written another checkpoint, as long as it goes on."""
    while going() and not set((out / "checkpoints").glob("step-*")) - before:
        time.sleep(0.02)


def killed(out, delay):
    """Start the command, and kill the process some time after its first checkpoint."""
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    next_checkpoint(out, set(), lambda: process.poll() is None)
    time.sleep(delay)
    process.kill()
    process.wait()
    return latest_checkpoint(out / "checkpoints")[0].env_steps


def stopped(out, capsys):
    """Resume here, press Ctrl-C after the next checkpoint; what the run complains about. SIGTERM is sent below."""
    before, over = set((out / "checkpoints").glob("step-*")), threading.Event()

    def press():
        next_checkpoint(out, before, lambda: not over.is_set())
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    presser, own = threading.Thread(target=press), signal.signal(signal.SIGINT, lambda *_: None)  # should it be late
    presser.start()
    try:
        code = main(["train", "cartpole", *OPTIONS, *OFTEN, "--out", str(out), "--json"])
    finally:
        over.set()
        presser.join()
        signal.signal(signal.SIGINT, own)
    text, complaints = capsys.readouterr()
    summary = json.loads(text.strip().splitlines()[-1])
    if summary["finished"]:
        pytest.skip("the run ended before the signal came")
    assert code == 130
    found, _ = latest_checkpoint(out / "checkpoints")
    assert found is not None
    assert found.env_steps == summary["env_steps"] < STEPS
    return complaints


def damage_newest(out):
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    data = bytearray(newest.read_bytes())
    data[-8] ^= 4  # of the last array: the header before them is long
    newest.write_bytes(data)


@pytest.mark.slow
def test_killed_at_random_moments_stopped_and_damaged_a_run_ends_the_same(straight, tmp_path, capsys):
    """After every breach the same command takes up the last whole checkpoint."""
    out = tmp_path / "run"
    assert killed(out, random.Random(0).uniform(0.0, 0.2)) > 0
    damage_newest(out)
    assert "checksum" in stopped(out, capsys)
    assert main(["train", "cartpole", *OPTIONS, "--out", str(out)]) == 0
    assert same(arrays(straight), arrays(out))


def test_the_tables_hold_every_step_once(straight):
    import polars as pl

    metrics = pl.read_parquet(straight / "metrics.parquet")
    for seed in (0, 1):
        assert metrics.filter(pl.col("seed") == seed)["env_steps"].to_list() == list(range(64, STEPS + 1, 64))
    episodes = pl.read_parquet(straight / "episodes.parquet")
    assert episodes["length"].sum() <= 2 * STEPS
    assert (episodes["return"] == episodes["length"]).all()
    assert os.path.getsize(straight / "episodes.parquet") > 0


def test_a_signal_that_an_import_swallows_still_stops_the_run(tmp_path, monkeypatch, capsys):
    """The first seconds are imports and compiling, in which an exception raised by Ctrl-C may be lost."""
    from awavo.runs import problem

    resolve = problem.resolve_config

    def swallowing(config):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass
        return resolve(config)

    monkeypatch.setattr(problem, "resolve_config", swallowing)
    before = signal.getsignal(signal.SIGINT)
    assert main(["train", "cartpole", *OPTIONS, "--out", str(tmp_path / "run")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "run").exists()


def test_a_signal_while_the_problem_is_built_stops_before_the_first_step(tmp_path, monkeypatch):
    import awavo
    from awavo.runs import api

    built = api.build_problem

    def build(config, **parts):
        os.kill(os.getpid(), signal.SIGTERM)
        return built(config, **parts)

    monkeypatch.setattr(api, "build_problem", build)
    config = awavo.configure("cartpole", steps=64, seeds=1, num_envs=4, rollout_length=16, hidden=(8,))
    phases = [(p.phase, p.env_steps, p.compile_s) for p in awavo.train_iter(config, tmp_path / "run")]
    assert phases[-1] == ("interrupted", 0, 0.0)


@pytest.mark.parametrize("on_progress", [None, lambda progress: None])
def test_what_follows_an_interrupted_training_is_not_done_with_half_of_it(tmp_path, smallest, monkeypatch, on_progress):
    import awavo
    from awavo.runs import api

    built = api.build_problem

    def build(config, **parts):
        os.kill(os.getpid(), signal.SIGINT)
        return built(config, **parts)

    monkeypatch.setattr(api, "build_problem", build)
    config = awavo.configure("cartpole", steps=64, seeds=1, **smallest)
    with pytest.raises(KeyboardInterrupt, match="nothing was saved yet: the same call resumes"):
        awavo.train(config, tmp_path / "run", on_progress=on_progress)


def test_a_loop_that_is_left_has_saved_what_it_saw_last(tmp_path, smallest):
    import awavo

    config = awavo.configure("cartpole", steps=6_400, seeds=1, **smallest)
    for progress in awavo.train_iter(config, tmp_path / "run"):
        if progress.phase == "training":
            break
    assert 0 < progress.env_steps < 6_400
    assert awavo.load(tmp_path / "run").env_steps == progress.env_steps
