"""Kill train, evaluate, certify, explain, infer and reproduce with SIGKILL at random moments; start them again.

    python benchmarks/kill_verbs.py [--kills 50] [--verbs train certify ...] [--out benchmarks/results/kill_verbs.json]

Each command runs once undisturbed. Then it is killed at moments spread over that time, start-up and writing included,
and at last let run. What it answers must be equal bit by bit, and no temporary file may be left. Times, commands and
dates are not compared.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from awavo.provenance import source_commit
from awavo.training.checkpoint import latest_checkpoint

SMALL = ["num_envs=4", "rollout_length=16", "num_updates=8", "hidden=16", "num_quantiles=8", "batch_size=16"]
OPTIONS = [word for setting in SMALL for word in ("--option", setting)]
TRAIN = ["train", "cartpole", "--steps", "12800", "--seeds", "2", *OPTIONS, "--checkpoint-seconds", "0"]
VARIES = ("command", "commit", "created", "wall_s", "cpu_s", "seal", "solve_s", "compile_s", "resumed_at", "device")
VARIES += ("written", "run", "versions", "jax", "train_s")


def plain(value: Any) -> Any:
    """A document without what differs between two runs of one command."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in VARIES}
    return [plain(item) for item in value] if isinstance(value, list) else value


def document(path: Path) -> Any:
    return plain(json.loads(path.read_text()))


def checkpoint(folder: Path) -> dict[str, Any]:
    found, refused = latest_checkpoint(folder / "checkpoints")
    assert found is not None, refused
    assert not refused, refused
    return {name: (array.dtype.str, array.tobytes()) for name, array in found.arrays.items()}


def explained(folder: Path) -> Any:
    return document(folder / "explanation.json"), pl.read_parquet(folder / "explanations.parquet").rows()


def posterior(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "posterior.npz") as file:
        return {name: file[name].tobytes() for name in file.files}


def results(folder: Path) -> dict[str, Any]:
    return {path.name: document(path)["rows"] for path in sorted((folder / "jobs").rglob("*.json"))}


# For each verb: the words of its command, the folder being the last argument or that of --out, and its answer.
VERBS: dict[str, tuple[Callable[[Path], list[str]], Callable[[Path], Any]]] = {
    "train": (lambda out: [*TRAIN, "--out", str(out)], checkpoint),
    "evaluate": (lambda out: ["evaluate", str(out)], lambda out: document(out / "evaluation.json")),
    "certify": (
        lambda out: ["certify", str(out), "--episodes", "100"],
        lambda out: document(out / "certificates.json"),
    ),
    "explain": (lambda out: ["explain", str(out), "--episodes", "2"], explained),
    "infer": (
        lambda out: ["infer", "lorenz96", "--states", "40", "--rounds", "2", "--out", str(out)],
        posterior,
    ),
    "reproduce": (lambda out: ["reproduce", "convergence", "--seeds", "1", "--out", str(out)], results),
}
NEED_A_RUN = ("evaluate", "certify", "explain")


def start(words: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "awavo.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(words: list[str]) -> float:
    """Run to the end; a negative verdict is an end too."""
    began = time.perf_counter()
    process = start(words)
    _, errors = process.communicate()
    assert process.returncode in (0, 1), f"{words}: exit {process.returncode}: {errors[-2000:]}"
    assert "Traceback" not in errors, errors[-2000:]
    return time.perf_counter() - began


def attack(verb: str, kills: int, trained: Path, base: Path, rng: random.Random) -> dict[str, Any]:
    """Kill one command `kills` times and compare its end with an undisturbed one."""
    words, answer = VERBS[verb]
    straight, broken = base / f"{verb}-straight", base / f"{verb}-broken"
    if verb in NEED_A_RUN:
        shutil.copytree(trained, straight)
        shutil.copytree(trained, broken)
    whole = finish(words(straight))
    moments = []
    for _ in range(kills):
        process = start(words(broken))
        moment = rng.uniform(0.05, 1.0) * whole
        time.sleep(moment)
        process.kill()
        process.communicate()
        moments.append(round(moment, 2))
    finish(words(broken))
    stray = [str(path.relative_to(broken)) for path in broken.rglob("*.tmp")]
    equal = answer(straight) == answer(broken)
    return {"verb": verb, "kills": kills, "killed_after_s": moments, "bit_equal": equal, "stray_files": stray}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--verbs", nargs="+", choices=list(VERBS), default=list(VERBS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        trained = Path(folder) / "trained"
        if set(args.verbs) & set(NEED_A_RUN):
            finish([*TRAIN, "--out", str(trained)])
        for index, verb in enumerate(args.verbs):
            share = args.kills // len(args.verbs) + (index < args.kills % len(args.verbs))
            rows.append(attack(verb, share, trained, Path(folder), rng))
            print(json.dumps(rows[-1]), flush=True)
    good = all(row["bit_equal"] and not row["stray_files"] for row in rows)
    result = {
        "command": "python " + " ".join(sys.argv),
        "commit": source_commit(),
        "kills": args.kills,
        "verbs": rows,
        "passed": good,
    }
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
