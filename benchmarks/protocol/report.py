"""Write docs/protocol_results.md and the README's table: the search's choices, the evaluation, the paper's claims.

    python benchmarks/protocol/report.py

Within their limits with every seed first, by return; the others by how much they exceed them. Below the methods that
were compared the README's table has the rows of benchmarks/learner that no comparison was made for.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.budgets import tasks_table
from awavo.paper.claims import check_claims
from awavo.paper.comparison import Standing, TaskComparison, compare_task
from awavo.paper.learning_plots import draw_curves
from awavo.paper.learning_text import claims_text
from awavo.paper.method_results import Band, MethodResult, Point
from awavo.paper.names import ALGO_NAMES, TASK_NAMES
from awavo.registry import TASKS as REGISTERED
from awavo.registry import make_task

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from search import NUM, OURS, SPACES, TASKS, choose, score, setting_of  # noqa: E402

__all__ = ["HERE", "MARKS", "PAGE", "OURS", "README", "choose", "comparisons", "page", "readme_table", "setting_of"]
PAGE, README = HERE.parents[1] / "docs" / "protocol_results.md", HERE.parents[1] / "README.md"
LEARNER = HERE.parent / "learner"
FIGURE = HERE.parents[1] / "docs" / "figures" / "protocol_curves.png"
MARKS = ("<!-- results -->", "<!-- end results -->")
PENDULUM = [20.0]  # the limit of the task whose own is taken
DISCRETE = {"cartpole", "acrobot"}
CONTINUOUS_ONLY = {"sac-lagrangian", "cal"}


def _program(file: Path) -> Any:
    """Another program of benchmarks/; its folder may hold files of the same names as ours."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


learner = _program(LEARNER / "report.py")
bounds, interval = learner.bounds, learner.interval


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def band(point: Point) -> Band:
    """Mean and interval over seeds, of the return and every cost."""
    columns = [point.returns, *point.costs.T]
    ends = np.array([bounds(column) for column in columns])
    return Band(point.env_steps, np.array([column.mean() for column in columns]), ends[:, 0], ends[:, 1])


def result(file: Path) -> MethodResult:
    """An evaluation, in the form of the comparison of the paper's figures."""
    found = read(file)
    limits = tuple(map(float, TASKS[found["task"]][0] or PENDULUM))
    points = [
        Point(row["steps"], np.asarray(row["returns"]), np.asarray(row["costs"]), row["seconds"])
        for row in found["rows"]
    ]
    names = make_task(found["task"]).spec.cost_names if found["task"] in REGISTERED else ("cost",)
    last = points[-1]
    return MethodResult(
        found["task"], found["algo"], "", found["seeds"], last.env_steps, last, points, list(map(band, points)), names,
        limits,
        found["episodes"], last.wall_s, 0.0, "protocol", {"commit": found["commit"]},
    )  # fmt: skip


def evaluations(task: str) -> list[Path]:
    """A file for every method; of ours, evaluated again after a change, the later one."""
    found = {file.name: file for folder in ("results", "again") for file in (HERE / folder).glob(f"{task}-*.json")}
    return [found[name] for name in sorted(found)]


@cache
def comparisons() -> list[TaskComparison]:
    """Every task that has evaluations, its methods in order."""
    facts, found = tasks_table(), []
    for task in TASKS:
        entries = [result(file) for file in evaluations(task)]
        if entries:
            found.append(compare_task(entries, facts.get(task, {"threshold": math.inf})))
    return found


def until_good(comparison: TaskComparison, standing: Standing) -> str:
    """Steps after which half of the seeds are within limits and at the task's level."""
    if not math.isfinite(comparison.threshold):
        return ""
    return f"{standing.good.value:,.0f}" if math.isfinite(standing.good.value) else "never"


def seconds(file: Path, asked: float = math.inf) -> str:
    found = read(file)
    device = found["device"]
    name = "a CPU core" if device["platform"] == "cpu" else device["kind"]
    return f"{learner.last_row(found, asked)['seconds']:.0f} s on {name}"


def cells(comparison: TaskComparison, standing: Standing) -> list[str]:
    """What the README and the page have of a method."""
    entry = standing.entry
    name = ALGO_NAMES[entry.algo]
    return [
        f"**{name}**" if standing.is_within else name, f"{entry.seeds[0]} to {entry.seeds[-1]}",
        f"{entry.env_steps:,}", interval(entry.final.returns), ", ".join(map(interval, entry.final.costs.T)),
        f"{standing.feasible_seeds} of {len(entry.seeds)}", until_good(comparison, standing),
        seconds(next(file for file in evaluations(entry.task) if file.stem == f"{entry.task}-{entry.algo}")),
    ]  # fmt: skip


HEAD = ["method", "seeds", "steps a seed", "return", "costs", "seeds within", "steps until good", "took"]


def readme_table() -> str:
    """All results in one table: the comparison, then ours on tasks without one."""
    rows = [["task (limits)", *HEAD], ["---"] * (1 + len(HEAD))]
    for comparison in comparisons():
        limits = ", ".join(f"{limit:g}" for limit in comparison.standings[0].entry.limits)
        title = f"{TASK_NAMES[comparison.task]} ({limits})"
        for number, standing in enumerate(comparison.standings):
            rows.append(["" if number else title, *cells(comparison, standing)])
    compared = {(c.task, s.entry.algo) for c in comparisons() for s in c.standings}
    return "\n".join(f"| {' | '.join(row)} |" for row in [*rows, *alone(compared)])


def alone(compared: set[tuple[str, str]]) -> list[list[str]]:
    """Rows of benchmarks/learner for whose task and algorithm there is no comparison.

    Without those of a learner before (`-before`, `-short`), in whose place a later row of the task stands.
    """
    rows = []
    for row in learner.ROWS:
        if row[0].startswith(learner.PROTOCOL) or row[0].endswith(("-before", "-short")):
            continue
        file = LEARNER / "results" / f"{row[0]}.json"
        title, algo, *facts = [cell.strip() for cell in learner.line(*row).split("|")[1:8]]
        if (row[0], algo) not in compared:
            within, of = facts[-1].split(" of ")
            name = ALGO_NAMES[algo]
            rows.append([title, f"**{name}**" if within == of else name, *facts, "", seconds(file, row[3])])
    return rows


def searched(task: str) -> list[str]:
    """For every method that takes the task's actions how far its search is, and its choice."""
    lines = []
    for algo in SPACES:
        if task in DISCRETE and algo in CONTINUOUS_ONLY:
            continue
        found = choose(task, algo, HERE / "tuned")
        if found:
            best, of = found
            within, mean = score(best, TASKS[task][0] or PENDULUM)
            choice = f"{best.stem[-2:]} ({within} of 3 within, {mean:.1f})" if of == NUM else "not complete"
            lines.append(f"| {task} | {algo} | {of} of {NUM} | {choice} |")
    return lines


def repeated() -> list[str]:
    """What other seeds gave, and whether the intervals of the evaluation hold their means."""
    lines = []
    pairs = [
        (HERE / folder / file.name, file)
        for folder, other in (("results", "repeated"), ("again", "again/repeated"))
        for file in sorted((HERE / other).glob("*.json"))
    ]
    for file, other in pairs:
        first, again = result(file), result(other)
        for name, one, two in (
            ("return", first.final.returns, again.final.returns),
            *zip(first.cost_names, first.final.costs.T, again.final.costs.T, strict=True),
        ):  # fmt: skip
            low, high = bounds(one)
            held = "yes" if low <= two.mean() <= high else "**no**"
            seeds = f"{first.seeds[0]} to {first.seeds[-1]}"
            columns = [again.task, ALGO_NAMES[again.algo], name, seeds, interval(one), f"{two.mean():.2f}", held]
            lines.append(f"| {' | '.join(columns)} |")
    return lines


def changed_since() -> list[str]:
    """The first evaluations of ours where a later one, of a changed learner, is in the table."""
    lines = []
    for file in sorted((HERE / "again").glob("*.json")):
        first = result(HERE / "results" / file.name)
        within = int((first.final.costs <= np.asarray(first.limits)).all(1).sum())
        columns = [
            first.task, ALGO_NAMES[first.algo], f"{first.env_steps:,}", interval(first.final.returns),
            ", ".join(map(interval, first.final.costs.T)), f"{within} of {len(first.seeds)}", first.source["commit"],
        ]  # fmt: skip
        lines.append(f"| {' | '.join(columns)} |")
    return lines


def in_seconds(folder: Path = HERE / "seconds") -> list[str]:
    """The axis of seconds: how far every method got, within the limits with every seed first."""
    found: dict[str, list[MethodResult]] = {}
    for file in sorted(folder.glob("*.json")):
        entry = result(file)
        found.setdefault(entry.task, []).append(entry)
    lines = []
    for task in TASKS:
        comparison = compare_task(found[task], {"threshold": math.inf}) if task in found else None
        for standing in comparison.standings if comparison else ():
            entry = standing.entry
            name = ALGO_NAMES[entry.algo]
            columns = [
                TASK_NAMES[task], f"**{name}**" if standing.is_within else name,
                f"{entry.seeds[0]} to {entry.seeds[-1]}", f"{entry.env_steps:,}", interval(entry.final.returns),
                ", ".join(map(interval, entry.final.costs.T)),
                f"{standing.feasible_seeds} of {len(entry.seeds)}", f"{entry.final.wall_s:.0f} s",
                entry.source["commit"],
            ]  # fmt: skip
            lines.append(f"| {' | '.join(columns)} |")
    return lines


def page() -> str:
    """The whole page."""
    parts, every = [], comparisons()
    for comparison in every:
        limits, steps = TASKS[comparison.task]
        bound = ", ".join(f"{limit:g}" for limit in limits or PENDULUM)
        lines = []
        for standing in comparison.standings:
            entry = standing.entry
            own = " ".join(f"{value:.4g}" for value in entry.final.returns)
            lines.append(f"| {' | '.join([*cells(comparison, standing), entry.source['commit'], own])} |")
        good = f"; good is a return of {comparison.threshold:g}" if math.isfinite(comparison.threshold) else ""
        parts.append(
            f"**{TASK_NAMES[comparison.task]}** (limits {bound}; {steps:,} steps{good})\n\n"
            f"| {' | '.join([*HEAD, 'commit', 'every seed'])} |\n" + "|---" * (len(HEAD) + 2) + "|\n" + "\n".join(lines)
        )
    if every:
        parts.append("**Against the paper.** " + claims_text(check_claims(every)))
    if rows := in_seconds():
        parts.append(
            "**The axis of seconds**: each method on an eighth of one H200, all eight at once, compiling and "
            "training for 90 s, then the evaluation:\n\n"
            "| task | method | seeds | steps a seed | return | costs | seeds within | took | commit |\n"
            "|---|---|---|---|---|---|---|---|---|\n" + "\n".join(rows)
        )
    if changed := changed_since():
        parts.append(
            "Methods before they were changed, seeds 400 to 409 (above: 410 to 419):\n\n"
            "| task | method | steps a seed | return | costs | seeds within | commit |\n|---|---|---|---|---|---|---|\n"
            + "\n".join(changed)
        )
    if again := repeated():
        parts.append(
            "The evaluation again with seeds 300 to 309, and whether the first interval holds the second mean:\n\n"
            "| task | method | | seeds | interval | mean of seeds 300 to 309 | held |\n|---|---|---|---|---|---|---|\n"
            + "\n".join(again)
        )
    rows = [line for task in TASKS for line in searched(task)]
    parts.append(
        "The search, settings finished and the number of the one chosen (mean return of the three tuning seeds):\n\n"
        "| task | method | settings | chosen |\n|---|---|---|---|\n" + "\n".join(rows)
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    PAGE.write_text(page())
    every = comparisons()
    picture = Figure((3.6 * len(every), 7.2), layout="constrained", dpi=110)
    draw_curves(picture, every)
    picture.savefig(FIGURE)
    before, _, rest = README.read_text().partition(MARKS[0])
    README.write_text(f"{before}{MARKS[0]}\n{readme_table()}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
