"""The explanation page: what moved the decisions, when, and by how much. Opens from disk, calls no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from awavo.errors import InputError
from awavo.results.page import frame, render
from awavo.results.report import embed
from awavo.results.store import write_bytes

__all__ = ["PageContent", "write_explain_page"]

MEANING = (
    "Influence is a probability: the least chance, over all ways to couple both worlds, that the decision would have "
    "been another one without the factor (total variation of the posterior with and without it). Shares are not "
    "probabilities: they split the joint influence."
)


class PageContent(NamedTuple):
    """What the page shows. `data` holds arrays by name (time, names, value, low, high, shares, together, ...).

    Without `low` and `high` each factor is drawn in a strip of its own. A cell of the ranking is a text or lines of it;
    `necessity` says what that measure means. Without names there are no decisions: a log of forces alone, its path
    coloured by `data["paint"]` from 0 to 1.
    """

    title: str
    subtitle: str
    ranking_head: Sequence[str]
    ranking: Sequence[Sequence[str | Sequence[str]]]
    margins: Sequence[tuple[str, str]]
    notes: Sequence[str]
    command: str
    data: Mapping[str, object]
    calibrated: bool = False
    necessity: str = ""
    alarms: Sequence[str] = ()
    space_note: str = ""
    force_unit: str = "N"
    ranking_title: str = "What moved the decisions"
    margins_title: str = "Margins"
    paint: str = "influence"


def _round(value: object) -> object:
    """Five digits are more than the page shows, and a third of the bytes; numbers that are not finite are refused."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError("the explanation holds numbers that are not finite.")
        return _round(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {k: _round(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_round(v) for v in value]
    return value


def write_explain_page(content: PageContent, out: Path) -> Path:
    """Write the page in one piece and return its path."""
    blank = {name: None for name in ("position", "force", "necessity", "magnitude", "error", "motors", "reference")}
    empty = {"cylinders": [], "fans": [], "segments": [], "alarms": [], "refly": {}}
    data = {**blank, **empty, "unit": "s", **content.data}
    page = render(
        "explain.html",
        **{k: v for k, v in content._asdict().items() if k not in ("data", "calibrated")},
        meaning=MEANING,
        calm=data.get("calm"),
        has_bands="low" in data,
        band_note=", calibrated on simulated flights" if content.calibrated else ", not calibrated",
        has_influence=bool(data["names"]),
        has_error=data["error"] is not None,
        has_motors=data["motors"] is not None,
        refly=list(data["refly"]),
        has_path=data["position"] is not None,
        has_force=data["force"] is not None,
        has_magnitude=data["magnitude"] is not None,
        **frame("explain.js"),
        data=embed({name: _round(value) for name, value in data.items()}),
    )
    write_bytes(out, str(page).encode(errors="backslashreplace"))
    return out
