"""`awavo compare`: tables of several runs, feasibility beside return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.cli.common import Json, Limits, print_json, print_table
from awavo.errors import InputError

__all__ = ["Compare"]


@dataclass
class Compare:
    """Options of `awavo compare`."""

    run_folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="run folders")]
    threshold: Annotated[float | None, arg(help="return for 'steps to threshold'")] = None
    markdown: Annotated[bool, arg(help="print markdown")] = False
    limits: OmitArgPrefixes[Limits] = field(default_factory=Limits)
    json: Json = False

    def run(self) -> int:
        """Print the comparison."""
        if not self.run_folders:
            raise InputError("no run folder was given: expected at least one RUN.")
        from awavo.results.compare import compare_runs
        from awavo.results.store import load_run
        from awavo.results.tables import comparison_dict, comparison_markdown, comparison_tables

        runs = [load_run(path) for path in self.run_folders]
        comparison = compare_runs(runs, threshold=self.threshold, rule=self.limits.rule())
        if self.json:
            print_json(comparison_dict(comparison))
        elif self.markdown:
            print(comparison_markdown(comparison))
        else:
            for table in comparison_tables(comparison):
                print_table(table)
        return 0
