"""Seeds give the same on any device beside any other; the path needs jax, numpy, equinox and optax alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def found(once):
    return json.loads((once("shards", train) / "rows.json").read_text())


def train(folder):
    """Train in a process with two devices; the rows go into the folder."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    worker = Path(__file__).with_name("shard_worker.py")
    done = subprocess.run([sys.executable, worker], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    folder.mkdir()
    (folder / "rows.json").write_text(done.stdout)


def test_a_seed_gives_the_same_on_either_device_and_beside_any_other(found):
    assert found["devices"] == 2
    both, moved = found["rows"]["both"], found["rows"]["moved"]
    assert len(both["curve"]) == len(both["checkpoints"]) == 2
    for mine, other in zip(both["curve"], moved["curve"], strict=True):
        assert mine["return"]["per_seed"][1] == other["return"]["per_seed"][0]
    for mine, other in zip(both["checkpoints"], moved["checkpoints"], strict=True):
        assert mine["return"]["per_seed"][1] == other["return"]["per_seed"][0]
        for name in mine["costs"]:
            assert mine["costs"][name]["per_seed"][1] == other["costs"][name]["per_seed"][0]
    assert both["seed_axis"] == "vmap"


def test_the_seeds_differ(found):
    assert len(set(np.round(found["rows"]["both"]["curve"][-1]["return"]["per_seed"], 4))) == 2


def test_jobs_are_listed_without_the_rest_of_the_package(found):
    assert found["planned"] == 20
