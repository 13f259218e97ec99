"""What all figures share: style, saving as SVG and PNG with their provenance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from awavo.results.plots import COLORS, DASHES, LIMIT_COLOR, STYLE

__all__ = ["COLORS", "DASHES", "LIMIT_COLOR", "new_figure", "save"]

TITLES: dict[Any, Any] = {"axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left"}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure in the house style, without a window."""
    with rc_context({**STYLE, **TITLES}):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=160)
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, base: Path, about: str) -> list[Path]:
    """Write BASE.svg and BASE.png; `about` goes into their metadata and small below the figure."""
    figure.supxlabel(about.replace("$", r"\$"), fontsize=6.0, color="#55616f", x=0.01, ha="left")
    base.parent.mkdir(parents=True, exist_ok=True)
    paths = [base.with_name(f"{base.name}.svg"), base.with_name(f"{base.name}.png")]
    with rc_context(STYLE):
        figure.savefig(paths[0], metadata={"Description": about, "Creator": "AWaVO", "Date": None})
        figure.savefig(paths[1], metadata={"Description": about, "Software": "AWaVO"})
    return paths
