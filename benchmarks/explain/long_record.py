"""How long does it take to explain a long record? On one core, with no compiled program at hand and with all of them.

    PYTHONPATH=src python benchmarks/explain/long_record.py [--record FLIGHT.mcap] [--steps 3000]
        [--out benchmarks/explain/results/long_record.json]

Runs `awavo explain RECORD` twice in a process of its own that may use one core, with a cache of compiled programs that
is empty the first time. `cpu_s` is what that process used; on a machine that does other work too, `wall_s` is longer.
Without a record, one of `--steps` decisions in FT1 is flown first (60 s at 50 Hz are 3000).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from awavo.provenance import command_line, device_info, source_commit, versions


def explain(record: Path, out: Path, cache: Path) -> dict[str, float]:
    """Explain once; what it took, and what it says it did."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "awavo.cli", "explain", str(record), "--out", str(out), "--json"]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "AWAVO_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}, check=True, text=True,
        stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads(done.stdout)
    asked = -(-found["decisions"] // found["asked_every"])
    counts = {"decisions": found["decisions"], "replayed": found["replay"]["decisions"], "asked": asked}
    return {"cpu_s": round(used, 1), "wall_s": round(wall, 1), **counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    with tempfile.TemporaryDirectory() as folder:
        place, record = Path(folder), options.record
        (place / "cache").mkdir(mode=0o700)
        if record is None:
            from awavo.explain.recording import record_flight

            record = place / "flight.mcap"
            record_flight(record, task="FT1", seed=100, steps=options.steps)
        results = {name: explain(record, place / "out", place / "cache") for name in ("first", "again")}
    made |= {"load": os.getloadavg(), "results": results}
    print(json.dumps(results, indent=1))
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
