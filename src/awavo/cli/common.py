"""What several commands share: options about the device and the output, NAME=VALUE pairs, a JSON line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import UseAppendAction, arg

from awavo.checks import MOST_EPISODES, check_size
from awavo.config import parse_value
from awavo.errors import AwavoError, ConfigError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from awavo.results.limits import LimitRule

__all__ = [
    "MOST_EPISODES", "Device", "Json", "LimitList", "Limits", "Pairs", "Trust", "check_run_folder", "print_json",
    "print_notes", "print_table", "read_limits", "read_pairs",
]  # fmt: skip

WIDEST = 10_000  # columns of a table that is printed

Json = Annotated[bool, arg(help="print one JSON line instead of text")]
Trust = Annotated[
    bool, arg(help="let the run's configuration name code that you did not run before: an environment, a cost function")
]
LimitList = Annotated[tuple[str, ...], arg(metavar="LIMIT")]
Pairs = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]


@dataclass
class Limits:
    """What counts as within limits."""

    slack: Annotated[float, arg(help="what a mean cost may exceed its limit by (the paper's tolerance)")] = 0.0
    require: Annotated[str, arg(help="seeds that must be within: all, a share such as 80%, or a number")] = "all"

    def rule(self) -> LimitRule:
        """The rule that these options ask for."""
        from awavo.results.limits import LimitRule

        return LimitRule(self.slack, self.require)


@dataclass
class Device:
    """Where to compute."""

    device: Annotated[str, arg(help="auto, cpu or gpu")] = "auto"
    gpu_memory: Annotated[str, arg(help="share of the GPU's memory to reserve, or 'grow'")] = "grow"
    deterministic: Annotated[bool, arg(help="bit-reproducible GPU kernels (slower)")] = False

    def apply(self) -> None:
        """Set what jax reads when it is first imported: commands import what needs jax only after this."""
        if self.device not in ("auto", "cpu", "gpu"):
            raise AwavoError(f"--device {self.device} is not one of auto, cpu, gpu.")
        flags = os.environ.get("XLA_FLAGS", "")
        if self.device != "auto":
            os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[self.device]
        if self.gpu_memory == "grow":
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        else:
            os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = self.gpu_memory
        # Seeds run on threads of their own; threads inside each small matrix product only get in their way.
        if "xla_cpu_multi_thread_eigen" not in flags:
            flags += " --xla_cpu_multi_thread_eigen=false"
        if self.deterministic:
            flags += " --xla_gpu_deterministic_ops=true"
        os.environ["XLA_FLAGS"] = flags.strip()


def read_pairs(pairs: Sequence[str | Sequence[str]], flag: str) -> dict[str, object]:
    """Read repeated NAME=VALUE options; tyro hands over one tuple per use of the flag."""
    values = {}
    for pair in (p for item in pairs for p in ((item,) if isinstance(item, str) else item)):
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} '{pair}' is not of the form NAME=VALUE.")
        values[name.replace("-", "_")] = parse_value(text)
    return values


def read_limits(words: Sequence[str]) -> tuple[float, ...] | None:
    """Read cost limits, with blanks or commas between them; None where there are none."""
    limits = []
    for text in (part for word in words for part in word.split(",") if part):
        try:
            limits.append(check_size("--limits", float(text)))
        except ValueError as error:
            told = (
                str(error)
                if isinstance(error, AwavoError)
                else f"--limits {text} is not a number: give 30 10 or 30,10."
            )
            raise ConfigError(told) from None
    return tuple(limits) or None


def check_run_folder(path: str | os.PathLike[str]) -> None:
    """Refuse what is no run folder before anything slow is imported."""
    from awavo.results.store import read_config

    read_config(Path(path))


def print_json(values: Mapping[str, object]) -> None:
    """Print one JSON line; numbers that are not finite become null."""
    from awavo.results.store import to_plain

    print(json.dumps(to_plain(values), allow_nan=False))


def print_table(table: Table) -> None:
    """Print a table whole: a narrow terminal may break its lines, but no word, figure or column is cut off.

    An interval without its end would read as another one.
    """
    from rich.console import Console

    console = Console()
    whole = console.options.update(width=WIDEST)
    for column in table.columns:
        sizes = [console.measure(cell, options=whole) for cell in (column.header, *column.cells)]
        column.min_width = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
    needed = console.measure(table, options=whole).minimum
    Console(width=max(console.width, needed)).print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Say on stderr what a run folder cannot be trusted for."""
    for note in notes:
        print(f"note: {printable(note)}", file=sys.stderr)
