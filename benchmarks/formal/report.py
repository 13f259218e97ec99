"""What the experiments here share: where results go, and the stamp they carry."""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from awavo.provenance import source_commit
from awavo.results.store import to_plain

__all__ = ["RESULTS", "machine", "write"]

RESULTS = Path(__file__).parent / "results"
_STARTED, _COMMIT = time.perf_counter(), source_commit()


def machine() -> str:
    """Processor and architecture."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {platform.machine()}"


def write(name: str, title: str, record: dict[str, Any], table: list[str]) -> None:
    """Print the table; write `results/<name>.json` and `.md` with command, commit, machine, versions and time."""
    stamp = {
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "commit": _COMMIT,
        "machine": machine(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "seconds": round(time.perf_counter() - _STARTED, 1),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(to_plain({**stamp, **record}), indent=1) + "\n")
    head = f"`{stamp['command']}`, commit {stamp['commit']}, {stamp['machine']}, {stamp['seconds']:.0f} s."
    text = "\n".join([f"# {title}", "", head, "", *table]) + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
