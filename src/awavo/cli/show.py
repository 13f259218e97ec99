"""What several commands show: the figures of an evaluation."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from awavo.cli.common import print_table
from awavo.results.limits import STRICT, LimitRule
from awavo.runs.display import figure_text
from awavo.types import FieldsView

__all__ = ["show_evaluation"]


def show_evaluation(result: FieldsView, task: str, algo: str, rule: LimitRule = STRICT) -> None:
    """Print one table: return and each cost with their intervals, greedy and stochastic."""
    table = Table("policy", "return", title=Text(f"{algo} on {task}: mean over seeds [95% interval], undiscounted"))
    names = list(result["greedy"]["costs"])
    for name in names:
        table.add_column(Text(f"{name} (limit {result['greedy']['costs'][name]['limit']:g})"))
    table.add_column("seeds within limits")
    for policy, entry in result.items():
        cells = [_interval(entry["return"])] + [_interval(c, c["limit"]) for c in map(entry["costs"].get, names)]
        table.add_row(policy, *map(Text, cells), f"{entry['feasible_seeds']} of {entry['seeds']}")
    print_table(table)
    entry = result["greedy"]
    Console().print(
        f"{entry['episodes_per_seed']} fresh episodes a seed; {rule.text}.",
        style="dim",
    )


def _interval(figure: FieldsView, scale: float = 0.0) -> str:
    """Digits by the limit, or where that is none or 0 by the figures themselves."""
    numbers = [figure[name] for name in ("value", "low", "high")]
    value, low, high = (figure_text(number, scale or max(map(abs, numbers))) for number in numbers)
    return f"{value} [{low}, {high}]"
