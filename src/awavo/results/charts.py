"""Charts as plain data: what the page's script draws, with nothing about looks except a colour number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from awavo.results.compare import Group, Row
from awavo.results.curves import Curve
from awavo.results.outcome import format_number, outcome_of
from awavo.types import Fields

__all__ = ["LOOK", "curve_chart", "line_chart", "look", "round_numbers", "scatter_chart"]

_COLORS = 8
LOOK = {"color": 0, "dash": 0, "shape": 0}  # of the only run of a page


def line_chart(id: str, title: str, rows: Sequence[Row], curve_fn: Callable[[Row], Curve]) -> Fields:
    """Chart one curve of each run against environment steps."""
    return curve_chart(id, title, [(row.label, look(row), curve_fn(row)) for row in rows])


def curve_chart(id: str, title: str, parts: Sequence[tuple[str, Mapping[str, int], Curve]]) -> Fields:
    """Chart curves, each with its name and its look, against environment steps."""
    series = [
        {
            "name": name,
            **looks,
            "x": round_numbers(curve.env_steps),
            "y": round_numbers(curve.centre),
            "low": round_numbers(curve.low),
            "high": round_numbers(curve.high),
            "lines": [round_numbers(line) for line in curve.per_seed],
        }
        for name, looks, curve in parts
    ]
    limit = parts[0][2].limit if parts else None
    ends = [f"{name} ends at {format_number(_last(curve.centre))}" for name, _, curve in parts]
    against = f", limit {limit:g}" if limit is not None else ""
    return {
        "id": id,
        "kind": "line",
        "title": title,
        "x_label": "environment steps",
        "limit": limit,
        "series": series,
        "summary": f"Line chart of {title} against environment steps{against}. {'; '.join(ends)}.",
    }


def scatter_chart(id: str, group: Group, name: str) -> Fields:
    """Chart the return of every seed against one cost: greedy marks are filled, stochastic ones hollow."""
    series = []
    for row in group.rows:
        modes = ("greedy", "stochastic") if row.outcome.evaluated else ("greedy",)
        for mode in modes:
            outcome = outcome_of(row.run, mode)
            if mode == "stochastic" and not outcome.evaluated:
                continue
            x, y = round_numbers(outcome.values(name)), round_numbers(outcome.returns)
            points = [list(point) for point in zip(x, y, outcome.seeds, strict=True)]
            source = outcome.source.removesuffix(" evaluation")
            label = f"{row.label}, {source}" if len(group.rows) > 1 else source
            series.append({"name": label, **look(row), "hollow": mode != "greedy", "points": points})
    limit = group.limits[name]
    return {
        "id": id,
        "kind": "scatter",
        "title": f"Return against cost {name}",
        "x_label": f"cost {name}",
        "limit": limit,
        "series": series,
        "summary": f"Scatter of return against cost {name}, one mark per seed, limit {limit:g}. Figures in the table.",
    }


def look(row: Row) -> dict[str, int]:
    """Colour, dash and shape of a run: the same in every chart of its group."""
    return {"color": (row.rank - 1) % _COLORS, "dash": (row.rank - 1) % 4, "shape": (row.rank - 1) % 3}


def round_numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Five significant digits, NaN as None: enough to draw, and a quarter of the size."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _last(values: NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else math.nan
