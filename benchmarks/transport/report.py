"""What every benchmark here shares: timing, the machine, and results written as JSON and markdown."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

__all__ = ["cpu_ms", "machine", "single_thread", "versions", "write"]

RESULTS = Path(__file__).parent / "results"


def single_thread() -> None:
    """Ask every numerical library for one thread; call before importing any."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def cpu_ms(call: Callable[[], object], repetitions: int = 9) -> float:
    """Median processor time of one call, in milliseconds, after two calls to warm up."""
    call()
    call()
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1e3 * statistics.median(times)


def machine() -> str:
    """Name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {platform.machine()}, {os.cpu_count()} cores"


def versions(*packages: str) -> dict[str, str]:
    """Installed versions; a package that is missing says so."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _commit() -> str:
    """HEAD; a copy without history is told by AWAVO_COMMIT."""
    if told := os.environ.get("AWAVO_COMMIT"):
        return told[:7]
    call = ["git", "rev-parse", "--short", "HEAD"]
    result = subprocess.run(call, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return result.stdout.strip() or "unknown"


def write(
    name: str, title: str, table: list[str], record: dict, packages: tuple[str, ...], where: str | None = None
) -> None:
    """Print the table and write `results/<name>.json` and `.md` with command, commit, machine and versions."""
    command = " ".join(["python", *sys.orig_argv[1:]])
    record = {
        "command": command,
        "commit": _commit(),
        "machine": where or machine(),
        "versions": versions(*packages),
        **record,
    }
    print("\n".join(table))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    head = [f"# {title}", "", f"`{command}`, commit {record['commit']}, {record['machine']}."]
    head.append("Versions: " + ", ".join(f"{k} {v}" for k, v in record["versions"].items()) + ".")
    (RESULTS / f"{name}.md").write_text("\n".join([*head, "", *table]) + "\n")
