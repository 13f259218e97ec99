"""`awavo reproduce`: run what is missing of a figure, then write data, pictures, paragraphs and the page."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.paper.budgets import BUDGETS
from awavo.paper.engines import check_engine, run_jobs
from awavo.paper.entries import read_results
from awavo.paper.figures import FIGURES, load
from awavo.paper.job import Job, missing_jobs
from awavo.paper.outputs import QUICK, Finding, Task, write_finding
from awavo.paper.page import write_page
from awavo.paper.plans import plan_jobs

__all__ = ["reproduce"]


def reproduce(args: Any) -> int:
    """Run the command; exit code 1 where nothing can be collected."""
    names = _names(args.figure)
    if args.budget not in BUDGETS:
        raise UnknownNameError(f"no budget is named '{args.budget}'.{did_you_mean(args.budget, BUDGETS)}")
    check_engine(args.engine)
    out = args.out or Path("runs") / f"reproduce-{args.budget}"
    if out.exists() and not out.is_dir():
        raise InputError(f"--out '{out}' is a file: give a folder.")
    per_job = 1 if args.engine == "ray" else None
    plans = {name: plan_jobs(name, args.budget, seeds=args.seeds, seeds_per_job=per_job) for name in names}
    say = _silent if args.json else _say
    if args.budget == "quick":
        say(QUICK)
    left = [job for name in names for job in missing_jobs(plans[name], out)]
    if not args.collect:
        _run(left, sum(map(len, plans.values())), out, args.engine, say)
    written = _collect(names, plans, args.budget, out, say)
    if args.json:
        print(json.dumps({"out": str(out), "budget": args.budget, "written": [str(path) for path in written]}))
    return 0 if written else 1


def _names(figure: str) -> list[str]:
    if figure == "all":
        return list(FIGURES)
    if figure not in FIGURES:
        raise UnknownNameError(f"no figure is named '{figure}'.{did_you_mean(figure, [*FIGURES, 'all'])}")
    return [figure]


def _run(left: list[Job], total: int, out: Path, engine: str, say: Any) -> None:
    """Run the jobs that are left, with a line for each; an interruption keeps the finished ones."""
    say(f"{total - len(left)} of {total} jobs are finished, {len(left)} to run into {out}")
    began = time.perf_counter()
    show = (lambda line: say(f"    {line}")) if sys.stdout.isatty() else _silent
    for count, (job, seconds) in enumerate(run_jobs(left, out, engine, show), start=1):
        spent = time.perf_counter() - began
        say(f"  [{count}/{len(left)}] {job.figure} {job.name}: {seconds:.0f} s ({spent / 60:.1f} min in all)")


def _collect(names: list[str], plans: dict[str, list[Job]], size: str, out: Path, say: Any) -> list[Path]:
    written, findings = [], {}
    for name in names:
        results = read_results(out, name)
        if not results:
            say(f"{name}: no results in {out}")
            continue
        task = Task(name, size, results, plans[name], out, len(missing_jobs(plans[name], out)))
        finding: Finding = load(FIGURES[name].collect)(task)
        written += write_finding(task, finding)
        findings[name] = (task, finding)
        say(f"{name}: {written[-1].parent / 'finding.md'}")
    if findings:
        written.append(write_page(findings, size, out / "report.html"))
        say(f"page: {written[-1]}")
    return written


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Say nothing."""
