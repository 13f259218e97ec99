"""`awavo report`: one self-contained page about runs, or about inferences of trajectories."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.cli.common import Json, Limits, print_json, print_notes
from awavo.errors import InputError
from awavo.files import require_writable
from awavo.runs.progress import doing

__all__ = ["Report"]


@dataclass
class Report:
    """Options of `awavo report`."""

    run_folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="run folders")]
    out: Annotated[Path | None, arg(help="file to write (default: report.html in the first run folder)")] = None
    figure: Annotated[bool, arg(help="also write a figure as PNG and SVG beside it")] = False
    limits: OmitArgPrefixes[Limits] = field(default_factory=Limits)
    json: Json = False

    def run(self) -> int:
        """Write the page and print its path."""
        if not self.run_folders:
            raise InputError("no run folder was given: expected at least one RUN.")
        out = self.run_folders[0] / "report.html" if self.out is None else self.out
        if out.suffix.lower() not in (".html", ".htm"):
            # It would take the place of whatever has that name: a configuration, a table.
            raise InputError(f"--out '{out}' is no name of a page: expected one that ends with .html.")
        require_writable(out.parent)
        with doing("writing the page"):
            written = [out, *self._write(out)]
        if self.json:
            print_json({"written": [str(path) for path in written], "bytes": out.stat().st_size})
        else:
            print("\n".join(map(str, written)))
        return 0

    def _write(self, out: Path) -> list[Path]:
        """Write the page of what the folders hold; return what was written beside it."""
        from awavo.results.report import write_report
        from awavo.results.store import load_run
        from awavo.results.trajectory_page import is_inference, write_inference_report

        if all(is_inference(folder) for folder in self.run_folders):
            write_inference_report(self.run_folders, out)
            return []
        runs = [load_run(path) for path in self.run_folders]
        print_notes(f"{run.path}: {note}" for run in runs for note in run.notes)
        write_report(runs, out, rule=self.limits.rule())
        if not self.figure:
            return []
        from awavo.results.plots import learning_figure, save_figure

        return list(save_figure(learning_figure(runs), out.with_suffix(""), runs))
