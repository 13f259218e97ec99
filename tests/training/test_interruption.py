"""Killed, stopped and taken up again: the numbers are those of an uninterrupted run."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from awavo.training.checkpoint import latest_checkpoint

SETTINGS = ("num_envs=4", "rollout_length=16", "num_updates=4", "hidden=16", "num_quantiles=4", "batch_size=16")
OPTIONS = ["--steps", "6400", "--seeds", "2", "--checkpoint-seconds", "0"]
OPTIONS += [word for setting in SETTINGS for word in ("--option", setting)]


def command(out):
    return [sys.executable, "-m", "awavo.cli", "train", "cartpole", *OPTIONS, "--out", str(out), "--json"]


def arrays(out):
    found, refused = latest_checkpoint(out / "checkpoints")
    assert found is not None
    assert not refused
    assert found.env_steps == 6400
    return found.arrays


@pytest.fixture(scope="module")
def straight(once):
    return once("straight", lambda out: subprocess.run(command(out), check=True, capture_output=True))


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.slow
def test_kill_nine_at_random_moments(straight, tmp_path):
    out = tmp_path / "run"
    rng = random.Random(0)
    kills = 0
    while True:
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kills < 2:
            while not list((out / "checkpoints").glob("step-*")) and process.poll() is None:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.0, 0.6))
            process.kill()
            kills += 1
        if process.wait() == 0:
            break
    assert same(arrays(straight), arrays(out))


def stopped(out, number):
    """Start or resume, send the signal after the next checkpoint, and return where the run says it stopped."""
    before = set((out / "checkpoints").glob("step-*"))
    process = subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while not set((out / "checkpoints").glob("step-*")) - before and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    text, _ = process.communicate(timeout=300)
    summary = json.loads(text.strip().splitlines()[-1])
    if summary["finished"]:
        pytest.skip("the run ended before the signal came")
    assert process.returncode == 130
    return summary["env_steps"]


@pytest.mark.slow
def test_stop_signals_save(straight, tmp_path):
    out, reached = tmp_path / "run", 0
    for number in (signal.SIGINT, signal.SIGTERM):
        steps = stopped(out, number)
        found, _ = latest_checkpoint(out / "checkpoints")
        assert found is not None
        assert found.env_steps == steps > reached
        reached = steps
    subprocess.run(command(out), check=True, capture_output=True)
    assert same(arrays(straight), arrays(out))


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(straight, tmp_path):
    import shutil

    out = tmp_path / "run"
    shutil.copytree(straight, out)
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data)
    done = subprocess.run(command(out), check=True, capture_output=True, text=True)
    assert "checksum" in done.stderr
    assert same(arrays(straight), arrays(out))


def test_the_tables_hold_every_step_once(straight):
    import polars as pl

    metrics = pl.read_parquet(straight / "metrics.parquet")
    for seed in (0, 1):
        assert metrics.filter(pl.col("seed") == seed)["env_steps"].to_list() == list(range(64, 6401, 64))
    episodes = pl.read_parquet(straight / "episodes.parquet")
    assert episodes["length"].sum() <= 2 * 6400
    assert (episodes["return"] == episodes["length"]).all()
    assert os.path.getsize(straight / "episodes.parquet") > 0
