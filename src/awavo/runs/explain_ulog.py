"""Which forces a PX4 log shows: ranking, tables and the page."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from awavo.errors import InputError
from awavo.explain.ulog import RATE, ForceBalance, force_balance, ulog_segments
from awavo.files import require_writable
from awavo.provenance import stamp
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.runs.explain import Explanation, write_tables
from awavo.tasks.quadrotor.frames import flip_vector, map_vector

__all__ = ["explain_ulog"]

POINTS = 1200  # of a curve on the page at most


def explain_ulog(
    path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, mass: float | None = None
) -> Explanation:
    """Say which forces a PX4 log shows, in N where the mass (kg) is given; writes explanation.json, .csv and .html."""
    if mass is not None and not 0 < mass < 1000:
        raise InputError(f"--mass {mass:g} must be between 0 and 1000 kg.")
    path = Path(path)
    out = path.with_name(path.stem + "-explained") if out is None else Path(out)
    require_writable(out)
    found = force_balance(path)
    segments = ulog_segments(found)
    seconds = len(found.time) / RATE
    side = np.hypot(found.force[:, 0], found.force[:, 1])
    throttle = float(np.median(found.hover.throttle))
    summary = {
        "source": str(path), "firmware": found.firmware, "flying_s": seconds, "hover_throttle": throttle,
        "hover_source": found.hover.source, "hover_std": found.hover.std,
        "mean_force_m_s2_ned": found.force.mean(0), "sideways_rms_m_s2": float(np.sqrt(np.mean(side**2))),
        "segments": segments, "rates_hz": found.rates, "not_judged": found.notes, "mass_kg": mass, **stamp(),
    }  # fmt: skip
    scale, unit = (1.0, "m/s2") if mass is None else (mass, "N")
    head = ["time_s", "north_m_s2", "east_m_s2", "down_m_s2"]
    rows = [[float(t), *map(float, f)] for t, f in zip(found.time, found.force, strict=True)]
    written = write_tables(out, summary, head, rows)
    sizes = [
        f"{scale * s['sideways_m_s2']:.2f} [{scale * s['low']:.2f}, {scale * s['high']:.2f}] {unit}" for s in segments
    ]
    spans = [f"{s['start_s']:.0f} to {s['end_s']:.0f} s" for s in segments]
    ranking = [
        (span, "external force", f"from {s['from']}", size, f"{-scale * s['down_m_s2']:+.2f} {unit}")
        for span, s, size in zip(spans, segments, sizes, strict=True)
    ]
    hovers = f"hover throttle {throttle:.2f} ({found.hover.source}, within {1.645 * found.hover.std:.0%})"
    facts = [("flight", f"{seconds:.1f} s"), ("hover throttle", hovers.removeprefix("hover throttle "))]
    facts += [("firmware", found.firmware), *((f"rate of {n}", f"{r:.0f} Hz") for n, r in found.rates.items())]
    page = write_explain_page(
        PageContent(
            f"Which forces met the vehicle: {path.name}", "From a PX4 log; maps show east and north.",
            ("when", "factor", "what", "sideways [90%]", "upwards"), ranking, facts, found.notes, summary["command"],
            _curves(found, scale), force_unit=unit, ranking_title="The strongest sideways forces",
            margins_title="What it rests on", paint="sideways force",
        ),
        out / "explanation.html",
    )  # fmt: skip
    summary["written"] = [*written, str(page)]
    lines = [f"{a}: sideways force {b} from {s['from']}" for a, b, s in zip(spans, sizes, segments, strict=True)]
    lines.append(f"{seconds:.1f} s of flight, {hovers}")
    lines += [f"not judged: {note}" for note in found.notes]
    return Explanation(summary, [*lines, *summary["written"]])


def _curves(found: ForceBalance, scale: float) -> dict[str, object]:
    """Means over as many bins as the page draws, with bands that hold both balances."""
    size = max(1, round(0.1 * RATE), -(-len(found.time) // POINTS))
    starts = np.arange(0, len(found.time) - size + 1, size)

    def means(values: np.ndarray) -> np.ndarray:
        return np.stack([values[i : i + size].mean(0) for i in starts])

    force, other = (scale * map_vector(flip_vector(means(x))) for x in (found.force, found.other))
    doubt = 1.645 * np.hypot(0.1, found.hover.std * means(found.lean))[:, None] * scale
    side = np.hypot(force[:, 0], force[:, 1])
    top = max(float(side.max()), 1e-6)
    return {
        "names": [], "time": means(found.time), "force": force, "start": int(np.argmax(side)),
        "force_low": np.minimum(force, other) - doubt, "force_high": np.maximum(force, other) + doubt,
        "position": None if found.position is None else map_vector(flip_vector(means(found.position))),
        "paint": side / top, "paint_top": f"{top:.2g}",
    }  # fmt: skip
