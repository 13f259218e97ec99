"""`awavo bridge install PACKAGE`: an interpreter of its own for environments that cannot live beside jax."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from awavo.cli.common import Json, print_json
from awavo.runs.progress import doing

__all__ = ["Bridge"]


@dataclass
class Bridge:
    """Options of `awavo bridge`."""

    action: Annotated[Positional[Literal["install"]], arg(help="what to do")]
    package: Annotated[Positional[str], arg(metavar="PACKAGE", help="safety-gymnasium")]
    folder: Annotated[Path | None, arg(help="an empty or new folder (default: in the user's data folder)")] = None
    python: Annotated[str | None, arg(help="interpreter to use (default: a fitting one on the PATH or of pyenv)")] = (
        None
    )
    json: Json = False

    def run(self) -> int:
        """Make it ready, and say how to train with it."""
        from awavo.tasks.bridge_install import PACKAGES, install

        with doing(f"installing {self.package}"):
            python = install(self.package, self.folder, self.python)
        if self.json:
            print_json({"package": self.package, "python": str(python)})
            return 0
        option = "" if self.folder is None else f" --task-option python={python}"
        print(f"{self.package} is ready: {python}")
        print(f"Next: awavo train bridge:{PACKAGES[self.package].example} --limits 25{option}")
        return 0
