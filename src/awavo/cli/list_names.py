"""`awavo list`: the tasks and the algorithms that have a name, and the settings of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from tyro.conf import arg

from awavo.cli.common import Json, print_json
from awavo.types import Fields

__all__ = ["ListNames"]


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
        from rich.console import Console
        from rich.table import Column, Table

        # Names and limits are what one copies from here: a narrow window must not cut them.
        rows = [[f"{name} <= {limit:g}" for name, limit in t["limits"].items()] for t in tasks]
        names, costs = max(len(t["name"]) for t in tasks), max(len(text) for row in rows for text in row)
        table = Table(
            Column("task", min_width=names), "what", Column("costs and limits", min_width=costs), "steps", "from"
        )
        for t, row in zip(tasks, rows, strict=True):
            limits = "\n".join(row)
            table.add_row(t["name"], t["summary"], limits, str(t["horizon"] or ""), t["source"])
        Console().print(table)
        table = Table("algorithm", "what", "from")
        for a in algorithms:
            table.add_row(a["name"], a["summary"], a["source"])
        Console().print(table)
        return 0


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
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "default", "accepts", "what it does")
    for row in rows:
        table.add_row(row["name"], str(row["default"]), row["accepts"], row["meaning"])
    Console().print(table)
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
