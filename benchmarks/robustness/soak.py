"""Train for minutes on end while things break, and see that nothing is lost and memory stays flat.

    PYTHONPATH=src python benchmarks/robustness/soak.py [--minutes 30] [--out RESULT.json]

Every round starts a small training, breaks it in one way, and takes it up again without the fault: it must end with one
clear error, resume from its last checkpoint, and finish with every step in its tables once and no stray files. Where
the environment is ours, its end must be bit-equal to that of a training that nothing broke. The faults: a full disk
(a limit on the size of files), a folder that turned read-only, a worker of the bridge killed, an environment that
hangs, one that returns NaN after a reset, one that raises.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np
import polars

import awavo
from awavo.errors import AwavoError
from awavo.provenance import stamp
from awavo.training.checkpoint import latest_checkpoint

HERE = Path(__file__).resolve().parent
SMALL = {"num_envs": 4, "rollout_length": 16, "hidden": (8,)}
ORPO = {**SMALL, "num_updates": 2, "num_quantiles": 4, "batch_size": 16, "warmup_steps": 64}
STEPS = 960


def own_task() -> awavo.TrainConfig:
    """A task in this process, whose end can be compared bit by bit."""
    return awavo.configure("cartpole", "orpo-dr", steps=STEPS, seeds=1, **ORPO)


def host_task() -> awavo.TrainConfig:
    """Somebody's environment in this process."""
    options = {"timeout": 1.0}
    return awavo.configure(
        "soak_envs:SoakPoint-v0", "crpo", steps=STEPS, seeds=1, cost_limits=(9,), task_options=options, **SMALL
    )


def bridged_task() -> awavo.TrainConfig:
    """The same behind the bridge."""
    options = {"python": sys.executable, "module": "soak_envs", "path": str(HERE), "timeout": 20.0}
    return awavo.configure(
        "bridge:SoakPoint-v0", "crpo", steps=STEPS, seeds=1, cost_limits=(9,), task_options=options, **SMALL
    )


@contextmanager
def full_disk() -> Iterator[Callable[[int], None]]:
    """Files may not grow beyond a few bytes once three chunks are done."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def at(chunk: int) -> None:
        if chunk == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))

    try:
        yield at
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only() -> Iterator[Callable[[int], None]]:
    """No file can be put in its place once three chunks are done."""
    broken = []

    def replace(*paths: object) -> None:
        if broken:
            raise OSError(errno.EROFS, "Read-only file system", str(paths[1]))
        os.rename(*paths)  # type: ignore[arg-type]

    with mock.patch("awavo.files.os.replace", replace):
        yield lambda chunk: broken.append(1) if chunk == 3 else None


@contextmanager
def killed_worker() -> Iterator[Callable[[int], None]]:
    """The bridge's processes are killed after three chunks."""

    def at(chunk: int) -> None:
        if chunk == 3:
            for pid in children():
                os.kill(pid, signal.SIGKILL)

    yield at


def children() -> list[int]:
    """Workers of the bridge that this process started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and b"bridge_worker" in folder.joinpath("cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found


def environment(how: str) -> Callable[[], Iterator[Callable[[int], None]]]:
    """The environment misbehaves after three chunks."""

    @contextmanager
    def fault() -> Iterator[Callable[[int], None]]:
        import soak_envs

        def at(chunk: int) -> None:
            if chunk == 3:
                soak_envs.FAULT = how

        try:
            yield at
        finally:
            soak_envs.FAULT = ""

    return fault  # type: ignore[return-value]


FAULTS = {
    "full disk": (own_task, full_disk), "read-only folder": (own_task, read_only),
    "killed worker": (bridged_task, killed_worker), "hanging environment": (host_task, environment("hang")),
    "NaN environment": (host_task, environment("nan")), "raising environment": (host_task, environment("raise")),
}  # fmt: skip


def train(config: awavo.TrainConfig, out: Path, at: Callable[[int], None] = lambda chunk: None) -> list[awavo.Progress]:
    updates = []
    for chunk, update in enumerate(awavo.train_iter(config, out, checkpoint_seconds=0.0)):
        updates.append(update)
        at(chunk)
    return updates


def check_finished(out: Path, updates: list, straight: dict[str, np.ndarray] | None) -> None:
    """Every step is in the tables once, nothing else is in the folder, and the end is that of an unbroken training."""
    assert updates[-1].phase == "finished", updates[-1]
    assert updates[-1].resumed_at > 0, "nothing had been saved before the fault"
    found, refused = latest_checkpoint(out / "checkpoints")
    assert found is not None
    assert not refused, refused
    steps = polars.read_parquet(out / "metrics.parquet")["env_steps"].to_list()
    assert steps == list(range(64, STEPS + 1, 64)), steps
    stray = [p.name for p in out.rglob("*") if p.name.endswith(".tmp")]
    assert not stray, stray
    assert all(np.isfinite(a).all() for a in found.arrays.values() if a.dtype.kind == "f"), "NaN in the checkpoint"
    if straight is not None:
        assert set(found.arrays) == set(straight)
        assert all(np.array_equal(found.arrays[k], straight[k]) for k in straight), "not bit-equal"


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(minutes: float) -> dict:
    sys.path.insert(0, str(HERE))
    import soak_envs  # noqa: F401

    rounds: Counter[str] = Counter()
    failures, used, said = [], [], {}
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="soak-") as name, mock.patch("awavo.runs.train.CHUNK_SECONDS", 0.0):
        train(own_task(), Path(name) / "straight")
        first, _ = latest_checkpoint(Path(name) / "straight" / "checkpoints")
        assert first is not None
        straight = dict(first.arrays)
        number = 0
        while time.monotonic() < end or number < len(FAULTS):
            fault = list(FAULTS)[number % len(FAULTS)]
            task, broken = FAULTS[fault]
            out = Path(name) / f"round-{number}"
            number += 1
            try:
                error = None
                with broken() as at:
                    try:
                        train(task(), out, at)
                    except AwavoError as caught:
                        error = caught
                assert error is not None, "the fault was not noticed"
                assert "\n" not in str(error), error
                said.setdefault(fault, str(error).replace(name, "FOLDER").replace(f"{HERE}/", ""))
                check_finished(out, train(task(), out), straight if task is own_task else None)
                assert not children(), "workers are left"
                rounds[fault] += 1
            except Exception as error:
                failures.append({"round": number - 1, "fault": fault, "error": f"{type(error).__name__}: {error}"})
            jax.clear_caches()
            gc.collect()
            if number % len(FAULTS) == 0:
                used.append(memory())
    return {
        "rounds": dict(rounds),
        "failures": failures,
        "said": said,
        "memory_after_each_turn_mb": [u // 2**20 for u in used],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began, made = time.perf_counter(), stamp()
    found = soak(args.minutes)
    used = found["memory_after_each_turn_mb"]
    # The first turns fill caches of programs; after them nothing may grow.
    later = used[len(used) // 3 :]
    found["growth_mb_a_turn"] = float(np.polyfit(range(len(later)), later, 1)[0]) if len(later) > 2 else None
    result = {"minutes": args.minutes, **found, "wall_s": time.perf_counter() - began, **made}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(bool(found["failures"]))


if __name__ == "__main__":
    main()
