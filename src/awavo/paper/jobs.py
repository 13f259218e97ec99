"""The command that runs jobs where only jax, numpy, equinox and optax are installed.

    PYTHONPATH=src python -m awavo.reproduce.jobs learning --budget full --tasks drone --algos awavo pcpo --out DIR

A job whose result lies in DIR is skipped and one that was killed resumes; `awavo reproduce learning --out DIR` makes
figures of the results.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from awavo.errors import AwavoError
from awavo.paper.budgets import check_names
from awavo.paper.figures import FIGURES
from awavo.paper.job import Progress, missing_jobs, run_job, share_of
from awavo.paper.plans import plan_jobs

__all__ = ["main"]


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
    asked = {"seeds": args.seeds, "tasks": args.tasks, "algos": args.algos, "seeds_per_job": args.seeds_per_job}
    if args.figure not in ("learning", "safety") and (args.tasks or args.algos):
        parser.error("--tasks and --algos are for the figures 'learning' and 'safety'")
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
        print("interrupted; finished jobs are kept, the same command resumes.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
