"""What several commands show: a bar while training, the final figures after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from awavo.errors import printable
from awavo.results.limits import STRICT, LimitRule
from awavo.runs.train import Progress

__all__ = ["show_evaluation", "show_progress"]

LINE_EVERY = 10


class _Speed(ProgressColumn):
    """Training knows its speed better than rich, which would count compilation in."""

    def render(self, task: Task) -> Text:
        speed = task.fields.get("speed", 0.0)
        return Text(f"{speed:,.0f} steps/s" if speed else "")


def show_progress(updates: Iterable[Progress], *, quiet: bool = False) -> Progress:
    """Draw progress on stderr (lines where that is no terminal) and return the last update."""
    console = Console(stderr=True)
    last = None
    if quiet or not console.is_terminal:
        for count, last in enumerate(updates):
            _print_notes(console, last, count)
            if not quiet and (count % LINE_EVERY == 0 or last.phase != "training"):
                console.print(
                    f"{last.phase:<9} {last.env_steps:>9}/{last.total_steps} {_recent(last)}", highlight=False
                )
    else:
        with Bar(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
            _Speed(), TimeRemainingColumn(), TextColumn("{task.fields[recent]}"), console=console,
        ) as bar:  # fmt: skip
            task = bar.add_task("starting", total=None, recent="", speed=0.0)
            for count, last in enumerate(updates):
                _print_notes(console, last, count)
                bar.update(
                    task, description=last.phase, completed=last.env_steps, total=last.total_steps,
                    recent=_recent(last), speed=last.steps_per_second,
                )  # fmt: skip
    assert last is not None
    return last


def _print_notes(console: Console, update: Progress, count: int) -> None:
    """Say once, with the first update, from where training resumes and which checkpoints were refused."""
    if count:
        return
    for note in update.notes:
        console.print(Text(printable(f"warning: {note} An older checkpoint is used."), style="yellow"))
    if update.resumed_at:
        console.print(f"resuming from {update.resumed_at} steps", highlight=False)


def _recent(update: Progress) -> str:
    """The last episodes in a few words, a cost above its limit in red."""
    parts = []
    for name, value in update.recent.items():
        if name == "return":
            parts.append(f"return {value:.1f}")
        else:
            limit = update.limits.get(name.removeprefix("cost_"))
            over = limit is not None and value > limit
            cost = escape(printable(name.removeprefix("cost_")))  # a name is no markup and no command of the terminal
            text = f"{cost} {value:.1f}/{limit:g}" if limit is not None else f"{cost} {value:.1f}"
            parts.append(f"[red]{text}[/red]" if over else f"[green]{text}[/green]")
    return "  ".join(parts)


def show_evaluation(result: Mapping[str, Any], task: str, algo: str, rule: LimitRule = STRICT) -> None:
    """Print one table: return and each cost with their intervals, greedy and stochastic."""
    table = Table("policy", "return", title=Text(f"{algo} on {task}: mean over seeds [95% interval], undiscounted"))
    names = list(result["greedy"]["costs"])
    for name in names:
        table.add_column(Text(f"{name} (limit {result['greedy']['costs'][name]['limit']:g})"))
    table.add_column("seeds within limits")
    for policy, entry in result.items():
        cells = [_interval(entry["return"])] + [_interval(entry["costs"][n]) for n in names]
        table.add_row(policy, *map(Text, cells), f"{entry['feasible_seeds']} of {entry['seeds']}")
    console = Console()
    console.print(table)
    entry = result["greedy"]
    console.print(
        f"{entry['episodes_per_seed']} fresh episodes a seed; {rule.text}.",
        style="dim",
    )


def _interval(figure: Mapping[str, Any]) -> str:
    return f"{figure['value']:.1f} [{figure['low']:.1f}, {figure['high']:.1f}]"
