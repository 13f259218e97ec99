"""`awavo list`: the tasks and the algorithms that have a name, and the settings of an algorithm."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from awavo.cli.common import Json, print_json
from awavo.types import Fields

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["ListNames", "task_table"]

UNCUT = 1_000  # columns, more than any table has


@dataclass
class ListNames:
    """Options of `awavo list`."""

    options: Annotated[str | None, arg(metavar="ALGO", help="print the settings of this algorithm instead")] = None
    json: Json = False

    def run(self) -> int:
        """Print two tables, or that of an algorithm's settings."""
        if self.options is not None:
            return _print_options(self.options, self.json)
        from awavo.registry import ALGORITHMS

        tasks = _tasks()
        algorithms = [{"name": n, "summary": i.summary, "source": i.source} for n, i in ALGORITHMS.items()]
        if self.json:
            print_json({"tasks": tasks, "algorithms": algorithms})
            return 0
        console = _console()
        console.print(task_table(tasks))
        console.print(
            _table(["algorithm"], ["what", "from"], [[a["name"], a["summary"], a["source"]] for a in algorithms])
        )
        return 0


def _console() -> Console:
    """As wide as the terminal; what goes to a file or a program is not cut at any width."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else UNCUT)


def _table(whole: Sequence[str], wrapped: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first columns, which one copies from, stay whole; the others are wrapped where it is narrow."""
    from rich.table import Column, Table

    columns = [Column(name, no_wrap=True) for name in whole] + [Column(name, overflow="fold") for name in wrapped]
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    return table


def task_table(tasks: Sequence[Fields]) -> Table:
    """Name, limits, steps, one line on it and source of each task."""
    rows = []
    for t in tasks:
        limits = "\n".join(f"{name} <= {limit:g}" for name, limit in t["limits"].items())
        rows.append([t["name"], limits, str(t["horizon"] or ""), t["summary"], t["source"]])
    return _table(["task", "limits", "steps"], ["what", "from"], rows)


def _print_options(algo: str, as_json: bool) -> int:
    """Every setting of an algorithm: its default, what it accepts, what it does."""
    from awavo.runs.problem import settings_class

    rows = []
    for field in fields(settings_class(algo)):
        about = field.metadata
        accepted = " | ".join(about["choices"]) or f"{about['low']:g} to {about['high']:g}"
        rows.append({"name": field.name, "default": field.default, "accepts": accepted, "meaning": about["help"]})
    if as_json:
        print_json({"algorithm": algo, "options": rows})
        return 0
    lines = [[row["name"], str(row["default"]), row["accepts"], row["meaning"]] for row in rows]
    _console().print(_table(["setting"], ["default", "accepts", "what it does"], lines))
    return 0


def _tasks() -> list[Fields]:
    """Every task with its limits, which only a built task knows."""
    from awavo.errors import MissingExtraError
    from awavo.registry import GPU_TASKS, HOST_TASKS, TASKS, make_host_task, make_task

    tasks = []
    for name, item in (TASKS | HOST_TASKS).items():
        row = {"name": name, "summary": item.summary, "source": item.source, "horizon": None, "limits": {}}
        tasks.append(row)
        if name in GPU_TASKS:  # slow to build where there is no GPU
            continue
        try:
            spec = make_task(name).spec if name in TASKS else make_host_task(name, num_envs=1).spec
        except MissingExtraError as error:
            row["summary"] = str(error)
            continue
        row |= {"horizon": spec.horizon, "limits": dict(zip(spec.cost_names, spec.cost_limits, strict=True))}
    return tasks
