"""Jobs: pieces of work with a name that says everything that decides their numbers, and one result file each.

    PYTHONPATH=src python -m awavo.reproduce.jobs learning --budget full --tasks drone --algos awavo pcpo --out DIR

runs them where only jax, numpy, equinox and optax are installed. A job whose result lies in DIR is skipped, so the
same command goes on where it stopped; `awavo reproduce learning --out DIR` makes figures of the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awavo.errors import AwavoError, InputError
from awavo.files import write_bytes
from awavo.paper.figures import FIGURES, load
from awavo.provenance import command_line

__all__ = ["Job", "Progress", "main", "missing_jobs", "run_job", "share_of", "write_atomically"]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Some seeds of one piece of work. `settings` (plain JSON) decide the numbers, together with the seeds."""

    figure: str
    label: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    def family(self) -> str:
        """Label and hash of the settings: the same for all seeds of one curve."""
        text = json.dumps([self.figure, self.settings], sort_keys=True)
        return f"{self.label}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def name(self) -> str:
        """Family and seeds."""
        whole = self.seeds == tuple(range(self.seeds[0], self.seeds[-1] + 1))
        text = f"{self.seeds[0]}-{self.seeds[-1]}" if whole and len(self.seeds) > 1 else "_".join(map(str, self.seeds))
        return f"{self.family}-s{text}"

    def path(self, out: Path) -> Path:
        """Its result file."""
        return out / "jobs" / self.figure / f"{self.name}.json"


def seeds_in(path: Path) -> set[int]:
    """The seeds that a result file's name claims."""
    text = path.stem.rpartition("-s")[2]
    try:
        if "-" in text:
            first, last = map(int, text.split("-"))
            return set(range(first, last + 1))
        return set(map(int, text.split("_")))
    except ValueError:
        return set()


def missing_jobs(jobs: Iterable[Job], out: Path) -> list[Job]:
    """The jobs with the seeds for which no finished file of their family lies anywhere in `out`."""
    done: dict[str, set[int]] = {}
    for path in out.rglob("*.json") if out.is_dir() else ():
        done.setdefault(path.stem.rpartition("-s")[0], set()).update(seeds_in(path))
    left = []
    for job in jobs:
        seeds = tuple(seed for seed in job.seeds if seed not in done.get(job.family, ()))
        if seeds:
            left.append(Job(job.figure, job.label, job.settings, seeds))
    return left


def share_of(jobs: Sequence[Job], text: str) -> list[Job]:
    """The share I/N of the jobs: those of processes or machines that know nothing of each other are disjoint."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise InputError(f"share '{text}': expected I/N such as 1/2, with I from 1 to N.")
    return list(jobs[int(number) - 1 :: int(count)])


def run_job(job: Job, out: Path, *, on_progress: Progress = lambda line: None, **options: Any) -> Path:
    """Run one job and write its result file in one piece."""
    import jax

    from awavo.provenance import device_info, source_commit

    began = time.perf_counter()
    row = load(FIGURES[job.figure].run)(job.settings, job.seeds, on_progress=on_progress, **options)
    result = {
        "command": _command(),
        "commit": source_commit(),
        "device": device_info(),
        "jax": jax.__version__,
        "job": {
            "figure": job.figure,
            "label": job.label,
            "family": job.family,
            "seeds": list(job.seeds),
            "variant": job.settings.get("variant", ""),
        },
        "wall_s": time.perf_counter() - began,
        "rows": [row],
    }
    path = job.path(out)
    write_atomically(path, json.dumps(result) + "\n")
    jax.clear_caches()
    return path


def _command() -> str:
    """The command as typed, without the paths of this machine."""
    words = [Path(word).name if word.startswith(("/", "~")) else word for word in command_line().split(" ")]
    return " ".join(["python -m awavo.reproduce.jobs", *words[1:]] if words[0] == "jobs.py" else words)


def write_atomically(path: Path, text: str) -> None:
    """Write a text in one piece, in a folder that is made where it is missing."""
    write_bytes(path, text.encode(), make_folder=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs of a figure that are not finished, one after the other."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parser = argparse.ArgumentParser(prog="python -m awavo.reproduce.jobs", description="Run the jobs of a figure.")
    parser.add_argument("figure", choices=list(FIGURES))
    parser.add_argument("--budget", choices=("quick", "full"), default="quick")
    parser.add_argument("--tasks", nargs="+", help="default: all of the budget")
    parser.add_argument("--algos", nargs="+", help="default: all of the budget")
    parser.add_argument("--labels", nargs="+", help="of figures other than learning: such as FT1-awavo (default: all)")
    parser.add_argument("--seeds", type=int, help="seeds 0 to N - 1 (default: the budget's)")
    parser.add_argument("--seeds-per-job", type=int, help="default: all seeds in one job")
    parser.add_argument("--share", default="1/1", metavar="I/N", help="the I-th of N shares of the jobs")
    parser.add_argument("--seed-axis", choices=("auto", "map", "vmap"), default="auto")
    parser.add_argument("--out", type=Path, required=True, help="folder for result files")
    parser.add_argument("--list", action="store_true", help="print the jobs that are left and stop")
    parser.add_argument("--quiet", action="store_true", help="one line for each job")
    args = parser.parse_args(arguments)
    from awavo.paper.budgets import check_names
    from awavo.paper.plans import plan_jobs

    asked = {"seeds": args.seeds, "tasks": args.tasks, "algos": args.algos, "seeds_per_job": args.seeds_per_job}
    if args.figure != "learning" and (args.tasks or args.algos):
        parser.error("--tasks and --algos are for the figure 'learning'")
    try:
        jobs = plan_jobs(args.figure, args.budget, **asked)
        labels = check_names(args.labels, list(dict.fromkeys(job.label for job in jobs)), "label")
        jobs = share_of([job for job in jobs if job.label in labels], args.share)
        left = missing_jobs(jobs, args.out)
        print(f"{len(jobs) - len(left)} of {len(jobs)} jobs are finished, {len(left)} are left", flush=True)
        if args.list:
            print("\n".join(job.name for job in left))
            return 0
        from awavo.training.compilation import enable_cache

        enable_cache()
        show: Progress = (lambda line: None) if args.quiet else (lambda line: print("  " + line, flush=True))
        for job in left:
            began = time.perf_counter()
            print(f"{job.name}", flush=True)
            path = run_job(job, args.out, on_progress=show, axis=args.seed_axis)
            print(f"{job.name} done in {time.perf_counter() - began:.0f} s: {path}", flush=True)
    except AwavoError as error:
        print(f"awavo.reproduce.jobs: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished jobs are kept, the same command goes on from there.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
