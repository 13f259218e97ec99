"""`awavo list`: the tasks and the algorithms that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from awavo.cli.common import Json, print_json

__all__ = ["ListNames"]


@dataclass
class ListNames:
    """Options of `awavo list`."""

    json: Json = False

    def run(self) -> int:
        """Print two tables."""
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


def _tasks() -> list[dict[str, Any]]:
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
