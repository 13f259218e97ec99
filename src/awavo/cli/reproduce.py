"""`awavo reproduce`: the paper's comparison figure by figure; the same command again resumes what was stopped."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.cli.common import Device, Json, Limits, print_json
from awavo.errors import UnknownNameError, suggest
from awavo.runs.progress import doing

__all__ = ["Reproduce"]


@dataclass
class Reproduce:
    """Options of `awavo reproduce`."""

    figure: Annotated[
        Positional[str],
        arg(
            metavar="FIGURE|all",
            help="a figure of the paper (learning, flight, interpretation, convergence, lorenz, ablation), the field's "
            "own tasks (safety), an experiment about inference (compression, modes, corridor, amortisation), or all",
        ),
    ]
    budget: Annotated[str, arg(help="quick (for 2 CPU cores) or full (10 seeds, a GPU)")] = "quick"
    seeds: Annotated[int | None, arg(help="number of seeds (default: the budget's)")] = None
    engine: Annotated[str, arg(help="local, or ray (extra 'ray'): one task a seed on a Ray cluster")] = "local"
    out: Annotated[Path | None, arg(help="folder; results found in it are kept (default runs/reproduce-BUDGET)")] = None
    collect: Annotated[bool, arg(help="run nothing: make figures of the results that are there")] = False
    limits: OmitArgPrefixes[Limits] = field(default_factory=Limits)
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Run what is missing, write data, pictures, paragraphs and the page; exit code 1 where nothing is there."""
        from awavo.paper.figures import FIGURES

        if self.figure not in (*FIGURES, "all"):
            raise UnknownNameError(
                f"no figure is named '{self.figure}': expected one of {', '.join(FIGURES)}, or all of them."
                f"{suggest(self.figure, FIGURES)}"
            )
        self.device.apply()
        from awavo.paper.reproduce import reproduce

        out = self.out or Path("runs") / f"reproduce-{self.budget}"
        with doing("reproducing"):
            written = reproduce(
                self.figure,
                out,
                budget=self.budget,
                seeds=self.seeds,
                engine=self.engine,
                collect=self.collect,
                rule=self.limits.rule(),
                say=_silent if self.json else _say,
                # Lines inside a job are for somebody who watches.
                say_more=_say if sys.stdout.isatty() and not self.json else _silent,
            )
        if self.json:
            print_json({"out": str(out), "budget": self.budget, "written": written})
        return 0 if written else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Say nothing."""
