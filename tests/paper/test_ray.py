"""A grid on a local Ray cluster, with a worker killed half way, ends with the files of a grid without."""

import json
import os
import signal
from pathlib import Path

import pytest

from awavo.paper import engines
from awavo.paper.job import Job, missing_jobs
from awavo.paper.plans import split_seeds

ray = pytest.importorskip("ray")
SETTINGS = {"rate": 10.0, "problems": 2, "horizons": [100, 300]}
JOBS = [Job("convergence", "small", SETTINGS, block) for block in split_seeds(8, 1)]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (the name Ray reads)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def rows(folder):
    return {path.name: json.loads(path.read_text())["rows"] for path in folder.rglob("*.json")}


def busy_workers():
    """Processes of this user that run a job of the cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                words = (entry / "cmdline").read_bytes()
                found += [int(entry.name)] if words.startswith(b"ray::_work") else []
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path):
    killed = []
    for count, _ in enumerate(engines.run_jobs(JOBS, tmp_path / "ray", "ray"), start=1):
        if count >= 2 and not killed:
            killed = busy_workers()[:1]
            for process in killed:
                os.kill(process, signal.SIGKILL)
    assert killed
    assert missing_jobs(JOBS, tmp_path / "ray") == []
    for _ in engines.run_jobs(JOBS, tmp_path / "local", "local"):
        pass
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")
    assert len(rows(tmp_path / "ray")) == 8


def test_a_failing_job_is_one_line(tmp_path):
    broken = Job("convergence", "broken", {**SETTINGS, "problems": "many"}, (0,))
    with pytest.raises(engines.AwavoError, match=r"job 'broken-.* failed on the cluster"):
        list(engines.run_jobs([broken], tmp_path, "ray"))
