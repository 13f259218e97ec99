"""Kill a training run with SIGKILL at random moments and compare its end with an uninterrupted run.

    python benchmarks/kill_resume.py [--kills 20] [--out benchmarks/results/kill_resume.json]

After each kill the same command is started again. The moments are spread over the whole life of the process: start-up,
compilation, training, writing.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from awavo.provenance import source_commit
from awavo.training.checkpoint import latest_checkpoint

OPTIONS = [
    "cartpole",
    "--steps",
    "40000",
    "--seeds",
    "2",
    "--option",
    "num_updates=16",
    "--checkpoint-seconds",
    "0",
    "--json",
]


def start(out: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "awavo.cli", "train", *OPTIONS, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def final_arrays(out: Path) -> dict[str, np.ndarray]:
    found, refused = latest_checkpoint(out / "checkpoints")
    assert found is not None, refused
    assert not refused, refused
    return found.arrays


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        straight, broken = Path(folder) / "straight", Path(folder) / "broken"
        began = time.perf_counter()
        text, errors = start(straight).communicate()
        whole = time.perf_counter() - began
        assert json.loads(text.splitlines()[-1])["finished"], errors
        moments, resumed = [], []
        for _ in range(args.kills):
            process = start(broken)
            # Half of the kills fall anywhere in the process's life, half just after it has written something.
            if rng.random() < 0.5:
                moment = rng.uniform(0.1, 0.35 * whole)
                time.sleep(moment)
            else:
                seen = set((broken / "checkpoints").glob("*"))
                began = time.perf_counter()
                while set((broken / "checkpoints").glob("*")) == seen and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(rng.uniform(0, 0.05))
                moment = time.perf_counter() - began
            process.kill()
            process.communicate()
            found, _ = latest_checkpoint(broken / "checkpoints")
            moments.append(round(moment, 3))
            resumed.append(found.env_steps if found else 0)
        text, errors = start(broken).communicate()
        summary = json.loads(text.splitlines()[-1])
        a, b = final_arrays(straight), final_arrays(broken)
        equal = set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)
    result = {
        "command": "python " + " ".join(sys.argv),
        "commit": source_commit(),
        "run": "awavo train " + " ".join(OPTIONS),
        "kills": args.kills,
        "killed_after_s": moments,
        "checkpoint_after_kill": resumed,
        "last_resume_at": summary["resumed_at"],
        "finished": summary["finished"],
        "bit_equal": equal,
        "arrays_compared": len(a),
    }
    print(json.dumps(result))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(not equal)


if __name__ == "__main__":
    main()
