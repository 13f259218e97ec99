"""`awavo reproduce`: the paper's comparison figure by figure; the same command again resumes what was stopped."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.cli.common import Device, Json, print_json

__all__ = ["Reproduce"]


@dataclass
class Reproduce:
    """Options of `awavo reproduce`."""

    figure: Annotated[
        Positional[str],
        arg(metavar="FIGURE|all", help="learning, flight, interpretation, convergence, lorenz, ablation, or all"),
    ]
    budget: Annotated[str, arg(help="quick (for 2 CPU cores) or full (10 seeds, a GPU)")] = "quick"
    seeds: Annotated[int | None, arg(help="number of seeds (default: the budget's)")] = None
    engine: Annotated[str, arg(help="local, or ray (extra 'ray'): one task a seed on a Ray cluster")] = "local"
    out: Annotated[Path | None, arg(help="folder; results found in it are kept (default runs/reproduce-BUDGET)")] = None
    collect: Annotated[bool, arg(help="run nothing: make figures of the results that are there")] = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Run what is missing, write data, pictures, paragraphs and the page; exit code 1 where nothing is there."""
        self.device.apply()
        from awavo.paper.reproduce import reproduce

        out = self.out or Path("runs") / f"reproduce-{self.budget}"
        say = _silent if self.json else _say
        # Lines from inside a job are for somebody who watches.
        say_more = say if sys.stdout.isatty() else _silent
        written = reproduce(
            self.figure, out, budget=self.budget, seeds=self.seeds, engine=self.engine, collect=self.collect, say=say,
            say_more=say_more,
        )  # fmt: skip
        if self.json:
            print_json({"out": str(out), "budget": self.budget, "written": written})
        return 0 if written else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Say nothing."""
