"""The search of docs/protocol.md: the same number of drawn settings for every method, and the choice among them.

    python benchmarks/protocol/search.py draw                                   # writes settings.json, once
    python benchmarks/protocol/search.py run --task drone --algo pcpo --out tuned   # 20 settings on seeds 100 to 102
    python benchmarks/protocol/search.py choose --out tuned                     # the best of each task and method
    python benchmarks/protocol/search.py evaluate --task drone --algo pcpo --out tuned   # it, on seeds 400 to 409
    python benchmarks/protocol/search.py evaluate --task drone --algo awavo --again   # changed since: 410 to 419
    python benchmarks/protocol/search.py seconds --task drone --out tuned   # every method at once, as far as each gets

`run` and `evaluate` skip what is there, so they resume, and several machines can share a folder's files. Ours are not
searched: ORPO-DR and AWaVO have one configuration for every task. `seconds` gives each method an equal share of the
multiprocessors (of a running CUDA MPS) and of the cores. Results of `run` lie in `tuned` (in `tuned/before` of
baselines before they were corrected), those of `evaluate` in `results` beside this file, or in `again`, those of
`seconds` in `seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SETTINGS = HERE / "settings.json"
NUM, SEED, TUNING_SEEDS, EVALUATION_SEEDS, SEEDS_AGAIN = 20, 20_261_117, (100, 3), (400, 10), (410, 10)
FOREVER = 1e9
# The axis of seconds: seeds; seconds of training, compiling included; seconds that measure.py keeps for the evaluation;
# environments and steps of each for methods that learn from fresh data, environments of ORPO-DR. AWaVO plans for each
# environment and has no use for more than its own.
SEEDS_SECONDS, SECONDS, KEPT, MANY, LENGTH, MANY_OURS = (420, 10), 90.0, 10.0, 4096, 32, 2048
IN_JAX = ("cartpole", "acrobot", "drone", "navigation", "pendulum")
SHARERS = ("awavo", "cpo", "crpo", "orpo-dr", "pcpo", "ppo-lagrangian", "trpo-ipo", "trpo-lagrangian")
OURS = ("awavo", "orpo-dr")
MEASURE = HERE.parent / "learner" / "measure.py"

# (low, high) is drawn evenly in the logarithm, a list evenly from its values. The first setting is the default.
Space = dict[str, tuple[float, float] | list[Any]]
ON_POLICY: Space = {
    "num_envs": [16, 64, 256], "rollout_length": [16, 64, 128], "hidden": ["64,64", "128,128", "256,256"],
    "discount": [0.98, 0.99, 0.995], "gae_lambda": [0.9, 0.95, 0.97], "value_lr": (3e-4, 5e-3), "margin": [0.0, 0.1],
    "log_std": [-1.0, -0.5, 0.0], "tolerance": [0.0],
}  # fmt: skip
TRUST_REGION: Space = {**ON_POLICY, "max_kl": (2e-3, 5e-2)}
OFF_POLICY: Space = {
    "num_envs": [16], "hidden": ["64,64", "128,128", "256,256"], "discount": [0.98, 0.99, 0.995],
    "actor_lr": (1e-4, 1e-3), "critic_lr": (1e-4, 1e-3), "batch_size": [64, 128, 256], "polyak": (2e-3, 2e-2),
    "margin": [0.0, 0.1],
}  # fmt: skip
SPACES: dict[str, Space] = {
    "crpo": {**TRUST_REGION, "max_kl_violated": (5e-4, 2e-2)},
    "pcpo": {**TRUST_REGION, "projection": ["kl", "l2"]},
    "cpo": TRUST_REGION,
    "trpo-ipo": {**TRUST_REGION, "barrier": (2.0, 200.0)},
    "trpo-lagrangian": {**TRUST_REGION, "ki": (1e-3, 1e-1), "kp": [0.0, 0.1, 1.0]},
    "ppo-lagrangian": {**ON_POLICY, "policy_lr": (1e-4, 1e-3), "clip": [0.1, 0.2, 0.3], "multiplier_lr": (5e-3, 0.1)},
    "sac-lagrangian": {**OFF_POLICY, "ki": (2e-3, 0.2), "kp": [0.1, 0.5, 2.0], "update_ratio": [0.25, 0.5, 1.0]},
    "cal": {
        **OFF_POLICY, "batch_size": [12, 64, 256], "update_ratio": [1.0, 4.0, 10.0], "conservatism": [0.25, 0.5, 1.0],
        "penalty": (1.0, 1000.0),
    },
    "paets": {
        "constrained": ["on"], "horizon": [15, 25, 40], "num_sequences": [128, 256], "num_members": [3, 5],
        "penalty": (1.0, 50.0), "model_lr": (3e-4, 3e-3), "tolerance": [0.0],
    },
}  # fmt: skip
# Limits (none: the task's own), and steps on the axis of steps.
TASKS: dict[str, tuple[list[float], int]] = {
    "cartpole": ([30, 10], 20_000), "acrobot": ([50, 50], 240_000), "drone": ([1], 300_000),
    "navigation": ([2], 12_000), "pendulum": ([], 60_000), "halfcheetah-velocity": ([25], 300_000),
    "walker-mjx": ([5], 3_000_000), "quadrotor-detours": ([2, 5], 400_000),
}  # fmt: skip
# There a tracking law flies: noise as wide as elsewhere would be metres. The logarithm of the first spread is lower.
NARROWER = {"quadrotor-detours": 2.0}


def draw() -> dict[str, list[dict[str, Any]]]:
    """The settings of every method: its defaults first, the others drawn."""
    rng = np.random.default_rng(SEED)
    found: dict[str, list[dict[str, Any]]] = {}
    for algo, space in SPACES.items():
        fixed = {name: values[0] for name, values in space.items() if isinstance(values, list) and len(values) == 1}
        found[algo] = [dict(fixed)]
        while len(found[algo]) < NUM:
            setting = {
                name: values[int(rng.integers(len(values)))]
                if isinstance(values, list)
                else float(f"{np.exp(rng.uniform(*np.log(values))):.3g}")
                for name, values in space.items()
            }
            if setting not in found[algo]:
                found[algo].append(setting)
    return found


def setting_of(task: str, algo: str, number: int) -> dict[str, Any]:
    """A drawn setting, as it is tried on a task."""
    setting = dict(json.loads(SETTINGS.read_text())["settings"][algo][number])
    if "log_std" in SPACES[algo] and task in NARROWER:
        setting["log_std"] = setting.get("log_std", -0.5) - NARROWER[task]
    return setting


def measurement(
    task: str, algo: str, setting: dict[str, Any], steps: int, seeds: tuple[int, int], *others: str
) -> list[str]:
    """The command that measures a setting."""
    (first, count), options = seeds, dict(setting)
    limits = ["--limits", *map(str, TASKS[task][0])] if TASKS[task][0] else []
    envs = options.pop("num_envs", 0)
    pairs = [f"{name}={value}" for name, value in options.items()]
    return [
        sys.executable, str(MEASURE), "--algo", algo, "--task", task, *limits,
        "--steps", str(steps), "--first-seed", str(first), "--seeds", str(count),
        *(["--num-envs", str(envs)] if envs else []), *(["--option", *pairs] if pairs else []), *others,
    ]  # fmt: skip


def command(task: str, algo: str, number: int, out: Path, until: float, seeds: tuple[int, int]) -> list[str]:
    """The measurement of one setting, on the tuning seeds or once and for all on those of an evaluation."""
    others = [] if seeds == TUNING_SEEDS else ["--checks", "10"]
    others += ["--until", str(until)] if until < FOREVER else []
    setting = {} if algo in OURS else setting_of(task, algo, number)
    return measurement(task, algo, setting, TASKS[task][1], seeds, *others, "--out", str(out))


def command_in_seconds(task: str, algo: str, number: int, out: Path) -> list[str]:
    """The measurement of how far the chosen setting gets in so many seconds, with thousands of environments."""
    if algo in OURS:
        setting = {"num_envs": MANY_OURS} if algo == "orpo-dr" else {}
    else:
        setting = setting_of(task, algo, number) | {"num_envs": MANY, "rollout_length": LENGTH}
    # More steps than anybody takes: the clock ends it.
    until = str(SECONDS + KEPT)
    return measurement(task, algo, setting, 100_000_000, SEEDS_SECONDS, "--until", until, "--out", str(out))


def chosen(task: str, algo: str, tuned: Path) -> int:
    """The number of the setting that a complete search chose; ours have none."""
    found = choose(task, algo, tuned)
    if algo in OURS:
        return 0
    if found is None or found[1] < NUM:
        sys.exit(f"the search of {algo} on {task} is not complete in {tuned}")
    return int(found[0].stem[-2:])


def divides_devices() -> bool:
    """Whether a CUDA MPS answers: without one the shares below are asked for and not given."""
    try:
        asked = ["nvidia-cuda-mps-control"]
        return subprocess.run(asked, input="get_server_list\n", text=True, capture_output=True).returncode == 0
    except OSError:
        return False


def share_device(task: str, tuned: Path, folder: Path = HERE / "seconds") -> None:
    """A row of every method on the axis of seconds, all at once, each with its share of the device and of the cores."""
    outs = [folder / f"{task}-{algo}.json" for algo in SHARERS]
    if there := [out for out in outs if out.exists()]:
        sys.exit(f"{there[0]} is there: rows of one task are made together, once")
    if not divides_devices():
        sys.exit("no CUDA MPS answers here, so that nothing has a share: start nvidia-cuda-mps-control -d")
    told = [
        command_in_seconds(task, algo, chosen(task, algo, tuned), out) for algo, out in zip(SHARERS, outs, strict=True)
    ]
    cores, percent = sorted(os.sched_getaffinity(0)), 100 // len(SHARERS)
    each = max(len(cores) // len(SHARERS), 1)
    environment = os.environ | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    running = []
    for place, words in enumerate(told):
        own = ",".join(map(str, cores[place * each % len(cores) :][:each]))
        running.append(subprocess.Popen(["taskset", "-c", own, *words], env=environment))
    for process, out in zip(running, outs, strict=True):
        if process.wait() == 0 and out.exists():
            share = f"one of {len(SHARERS)} at once: {percent}% of the multiprocessors and {each} of {len(cores)} cores"
            out.write_text(json.dumps(json.loads(out.read_text()) | {"share": share}) + "\n")


def score(file: Path, limits: list[float]) -> tuple[int, float]:
    """Seeds within their limits, then the mean return of the last check."""
    row = json.loads(file.read_text())["rows"][-1]
    within = (np.asarray(row["costs"]) <= np.asarray(limits)).all(-1)
    return int(within.sum()), float(np.mean(row["returns"]))


def choose(task: str, algo: str, tuned: Path) -> tuple[Path, int] | None:
    """The file of the best setting, and of how many; one whose rollouts overshoot the steps by a tenth is no choice."""
    limits, steps = TASKS[task]
    files = sorted(tuned.glob(f"{task}-{algo}-[0-9][0-9].json"))
    fair = [file for file in files if json.loads(file.read_text())["rows"][-1]["steps"] <= 1.1 * steps]
    if not fair:
        return None
    return max(fair, key=lambda file: score(file, limits or [20.0])), len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("draw", "run", "choose", "evaluate", "seconds"))
    parser.add_argument("--task", choices=sorted(TASKS))
    parser.add_argument("--algo", choices=sorted([*SPACES, *OURS]))
    parser.add_argument("--settings", type=int, nargs="*", default=list(range(NUM)), help="numbers, all if not given")
    parser.add_argument("--until", type=float, default=FOREVER, help="seconds of each setting")
    parser.add_argument("--again", action="store_true", help="evaluate once more, on other seeds, after a change")
    parser.add_argument("--out", type=Path, default=Path("tuned"))
    args = parser.parse_args()
    if args.what == "draw":
        SETTINGS.write_text(json.dumps({"seed": SEED, "settings": draw()}, indent=1) + "\n")
        return
    if args.what == "choose":
        for task, (limits, _) in TASKS.items():
            for algo in SPACES:
                if found := choose(task, algo, args.out):
                    best, of = found
                    told = {"task": task, "algo": algo, "of": of, "file": best.name}
                    print(json.dumps({**told, "within, return": score(best, limits or [20.0])}))
        return
    if args.what == "seconds":
        if args.task not in IN_JAX:
            parser.error(f"the axis of seconds is for {', '.join(IN_JAX)}")
        return share_device(args.task, args.out)
    if not (args.task and args.algo):
        parser.error(f"{args.what} needs --task and --algo")
    if args.what == "evaluate":
        number = chosen(args.task, args.algo, args.out)
        folder, seeds = ("again", SEEDS_AGAIN) if args.again else ("results", EVALUATION_SEEDS)
        out = HERE / folder / f"{args.task}-{args.algo}.json"
        if not out.exists():
            subprocess.run(command(args.task, args.algo, number, out, args.until, seeds), check=True)
        return
    if args.algo in OURS:
        parser.error("ours are not searched")
    for number in args.settings:
        file = args.out / f"{args.task}-{args.algo}-{number:02d}.json"
        if not file.exists():
            print(file, flush=True)
            subprocess.run(command(args.task, args.algo, number, file, args.until, TUNING_SEEDS), check=False)


if __name__ == "__main__":
    main()
