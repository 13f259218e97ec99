"""`awavo export`: a run's policy as files for machines that do not train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from awavo.cli.common import Device, Json, Trust, check_run_folder, print_json

__all__ = ["Export"]


@dataclass
class Export:
    """Options of `awavo export`."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN", help="run folder")]
    out: Annotated[Path | None, arg(help="new folder (default: RUN/export)")] = None
    seed: Annotated[int | None, arg(help="seed whose policy to write (default: the first)")] = None
    onnx: Annotated[bool, arg(help="write the actor as ONNX too (extra 'onnx')")] = True
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write the files and their manifest, and print them."""
        check_run_folder(self.run_folder)
        Device(device="cpu").apply()
        from awavo.results.store import read_json
        from awavo.runs import api
        from awavo.runs.export import export_run

        path = export_run(api.load(self.run_folder, trust=self.trust), self.out, seed=self.seed, onnx=self.onnx)
        files = read_json(path)["files"]
        if self.json:
            print_json({"manifest": str(path), "files": files})
            return 0
        for name, entry in files.items():
            gap = entry.get("largest_difference")
            differs = "" if gap is None else f", largest difference to the trained actor {gap:.1e}"
            print(f"{path.parent / name}  {entry['bytes']:,} bytes{differs}")
        print(path)
        return 0
