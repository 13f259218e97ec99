"""Where jobs run: here, one after the other, or on a Ray cluster, one seed a task."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from awavo.errors import AwavoError, InputError, MissingExtraError
from awavo.paper.job import Job, Progress, run_job, write_atomically
from awavo.types import Fields

__all__ = ["ENGINES", "check_engine", "run_jobs"]

RETRIES = 5
"""How often a job is started again after its worker was lost."""
GPU_SHARE = 0.25
"""Part of a GPU that one seed asks for, where the cluster has any."""


def _local(jobs: Sequence[Job], out: Path, on_progress: Progress) -> Iterator[tuple[Job, float]]:
    from awavo.training.compilation import enable_cache

    enable_cache()
    for job in jobs:
        began = time.perf_counter()
        run_job(job, out, on_progress=on_progress)
        yield job, time.perf_counter() - began


def _ray(jobs: Sequence[Job], out: Path, on_progress: Progress) -> Iterator[tuple[Job, float]]:
    """Hand every job to the cluster; a job whose worker dies is started again, a job that fails stops the run.

    Workers return their result files as text and only this process writes, so machines need no common disk.
    """
    ray = _import_ray()
    if not ray.is_initialized():
        os.environ.setdefault("RAY_worker_niceness", "0")  # jobs are the work, not the background
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    gpus = GPU_SHARE if ray.cluster_resources().get("GPU") else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)(_work)
    running = {task.remote(asdict(job)): (job, time.perf_counter()) for job in jobs}
    on_progress(f"{len(running)} jobs handed to {len(ray.nodes())} Ray node(s)")
    try:
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            for future in done:
                job, began = running.pop(future)
                write_atomically(job.path(out), _result(ray, future, job))
                yield job, time.perf_counter() - began
    finally:
        for future in running:
            ray.cancel(future, force=True)


def _result(ray: Any, future: Any, job: Job) -> str:
    try:
        return ray.get(future)
    except ray.exceptions.RayError as error:
        last = str(error).strip().splitlines()[-1]
        raise AwavoError(f"job '{job.name}' failed on the cluster: {last}. Finished jobs are kept.") from error


def _work(fields: Fields) -> str:
    """Run one job on a worker and return its result file's text."""
    import tempfile

    fields["seeds"] = tuple(fields["seeds"])
    with tempfile.TemporaryDirectory() as folder:
        return run_job(Job(**fields), Path(folder)).read_text()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--engine ray needs the extra 'ray': pip install 'awavo[ray]'.") from error
    return ray


ENGINES: dict[str, Callable[[Sequence[Job], Path, Progress], Iterator[tuple[Job, float]]]] = {
    "local": _local,
    "ray": _ray,
}


def check_engine(name: str) -> None:
    """Refuse an unknown engine, or one whose package is missing, before anything is computed."""
    if name not in ENGINES:
        raise InputError(f"--engine {name} is not one of {', '.join(ENGINES)}.")
    if name == "ray":
        _import_ray()


def run_jobs(
    jobs: Sequence[Job], out: Path, engine: str, on_progress: Progress = lambda line: None
) -> Iterator[tuple[Job, float]]:
    """Run the jobs and yield each with its seconds, as it is finished and written."""
    return ENGINES[engine](jobs, out, on_progress)
