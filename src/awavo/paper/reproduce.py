"""The comparison as a whole: run what is missing of a figure, then write data, pictures, paragraphs and the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.paper.budgets import BUDGETS
from awavo.paper.engines import check_engine, run_jobs
from awavo.paper.figures import FIGURES, load
from awavo.paper.job import Job, missing_jobs
from awavo.paper.method_results import read_results
from awavo.paper.outputs import QUICK, FigureFinding, FigureTask, write_finding
from awavo.paper.page import write_page
from awavo.paper.plans import plan_jobs
from awavo.results.limits import STRICT, LimitRule

__all__ = ["reproduce"]

Say = Callable[[str], None]


def reproduce(
    figure: str,
    out: Path,
    *,
    budget: str = "quick",
    seeds: int | None = None,
    engine: str = "local",
    collect: bool = False,
    rule: LimitRule = STRICT,
    say: Say = print,
    say_more: Say = lambda line: None,
) -> list[Path]:
    """Reproduce a figure of `FIGURES`, or "all" of them; return the files written, none where there are no results.

    Results found in the folder `out` are kept; with `collect` nothing is run and figures are made of what is there.
    `say` takes a line for each step, `say_more` those from inside a job.
    """
    names = _names(figure)
    if budget not in BUDGETS:
        raise UnknownNameError(f"no budget is named '{budget}'.{did_you_mean(budget, BUDGETS)}")
    check_engine(engine)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out '{out}' is a file: give a folder.")
    per_job = 1 if engine == "ray" else None
    plans = {name: plan_jobs(name, budget, seeds=seeds, seeds_per_job=per_job) for name in names}
    if budget == "quick":
        say(QUICK)
    if not collect:
        left = [job for name in names for job in missing_jobs(plans[name], out)]
        _run(left, sum(map(len, plans.values())), out, engine, say, say_more)
    return _collect(names, plans, budget, out, rule, say)


def _names(figure: str) -> list[str]:
    if figure == "all":
        return list(FIGURES)
    if figure not in FIGURES:
        raise UnknownNameError(f"no figure is named '{figure}'.{did_you_mean(figure, [*FIGURES, 'all'])}")
    return [figure]


def _run(left: list[Job], total: int, out: Path, engine: str, say: Say, say_more: Say) -> None:
    """Run the jobs that are left, with a line for each; an interruption keeps the finished ones."""
    say(f"{total - len(left)} of {total} jobs are finished, {len(left)} to run into {out}")
    began = time.perf_counter()
    jobs = run_jobs(left, out, engine, lambda line: say_more(f"    {line}"))
    for count, (job, seconds) in enumerate(jobs, start=1):
        spent = time.perf_counter() - began
        say(f"  [{count}/{len(left)}] {job.figure} {job.name}: {seconds:.0f} s ({spent / 60:.1f} min in all)")


def _collect(
    names: list[str], plans: dict[str, list[Job]], size: str, out: Path, rule: LimitRule, say: Say
) -> list[Path]:
    written, findings = [], {}
    for name in names:
        results = read_results(out, name)
        if not results:
            say(f"{name}: no results in {out}")
            continue
        task = FigureTask(name, size, results, plans[name], out, len(missing_jobs(plans[name], out)), rule)
        finding: FigureFinding = load(FIGURES[name].collect)(task)
        written += write_finding(task, finding)
        findings[name] = (task, finding)
        say(f"{name}: {written[-1].parent / 'finding.md'}")
    if findings:
        written.append(write_page(findings, size, out / "report.html"))
        say(f"page: {written[-1]}")
    return written
