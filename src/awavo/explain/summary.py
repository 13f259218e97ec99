"""A flight in words: ranked intervals, margins, saturation, and what could not be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from awavo.explain.flight_report import FlightExplanation
from awavo.explain.intervals import Band
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.forest import Forest

__all__ = [
    "NECESSITY", "Segment", "find_segments", "flight_margins", "mean_band", "not_judged", "segment_text", "size_text",
    "wind_name",
]  # fmt: skip

COMPASS = ("E", "NE", "N", "NW", "W", "SW", "S", "SE")
# Influences below this are what a planner shows in calm air: it answers the noise of its own force estimate.
CALM = 0.06
NECESSITY = (
    "Necessity is the least probability that the plan rated best at that instant would not have been chosen without "
    "the factor; over all plans, each with its own probability, it averages to the influence."
)


class Segment(NamedTuple):
    """A stretch of time in which a factor moved the decisions."""

    factor: str
    start: float
    end: float
    influence: float
    low: float
    high: float
    about: str
    motors: tuple[float, ...]
    magnitude: dict[str, dict[str, float]]
    necessity: dict[str, float]


def mean_band(band: Band, column: int, part: slice = slice(None)) -> dict[str, float]:
    """Mean over decisions of a factor's value and of its bounds; none of them is below 0."""
    return {name: max(0.0, float(np.asarray(x)[part, column].mean())) for name, x in band._asdict().items()}


def wind_name(force: np.ndarray) -> str:
    """Say where a force comes from, x being east and y north."""
    angle = np.arctan2(-force[1], -force[0])
    return COMPASS[round(float(angle) / (np.pi / 4)) % 8]


def _runs(on: np.ndarray, times: np.ndarray, gap: float, least: float) -> list[tuple[int, int]]:
    """Index ranges (both ends included) in which `on` holds, joined over short gaps."""
    found: list[list[int]] = []
    for i in np.flatnonzero(on):
        if found and times[i] - times[found[-1][1]] <= gap:
            found[-1][1] = int(i)
        else:
            found.append([int(i), int(i)])
    return [(a, b) for a, b in found if times[b] - times[a] >= least]


def find_segments(
    found: FlightExplanation, log: FlightLog, threshold: float = 0.15, gap: float = 0.25, least: float = 0.1
) -> list[Segment]:
    """Return where a factor's influence was above the threshold, the strongest first.

    Stretches are joined over `gap` seconds and last `least` seconds, as far as decisions were asked that often.
    """
    spacing = float(np.median(np.diff(found.time))) if len(found.time) > 1 else 0.0
    gap, least = max(gap, 1.01 * spacing), 0.0 if spacing > least else least
    by_index = {d.number: d for d in log.decisions}
    forces = np.array([by_index[i].inputs.belief.mean[:3] for i in found.numbers])
    places = np.array([by_index[i].inputs.body.position for i in found.numbers])
    forest = log.decisions[0].inputs.forest
    segments = []
    for k, name in enumerate(found.names):
        value = np.asarray(found.influence.value)[:, k]
        for a, b in _runs(value >= threshold, found.time, gap, least):
            part = slice(a, b + 1)
            mean, low, high = (float(np.asarray(x)[part, k].mean()) for x in found.influence)
            if name == "wind":
                force = forces[part].mean(0)
                about = f"{np.linalg.norm(force):.1f} N from {wind_name(force)}"
            elif name == "obstacles":
                about = _nearest(forest, places[part])
            else:
                about = ""
            motors = tuple(float(x) for x in found.motors[part, 1 + k].mean(0))
            sizes = {unit: mean_band(band, k, part) for unit, band in found.magnitude.items()}
            needed = mean_band(found.necessity, k, part)
            span = (float(found.time[a]), float(found.time[b]))
            segments.append(Segment(name, *span, mean, low, high, about, motors, sizes, needed))
    return sorted(segments, key=lambda s: -s.influence)


def _gaps(forest: Forest, places: np.ndarray) -> np.ndarray:
    """Distance to the surface of every cylinder, over and beside it."""
    out = np.hypot(places[:, :1] - forest.x, places[:, 1:2] - forest.y) - forest.radius
    above = places[:, 2:] - forest.height
    return np.hypot(np.maximum(out, 0), np.maximum(above, 0)) + np.minimum(np.maximum(out, above), 0)


def _nearest(forest: Forest, places: np.ndarray) -> str:
    gaps = _gaps(forest, places)
    number = int(np.argmin(gaps.min(0)))
    return f"obstacle {number}, nearest {gaps[:, number].min():.2f} m"


def size_text(size: Mapping[str, float], unit: str) -> str:
    """A magnitude with its interval, to the digits that its unit deserves."""
    digits = 0 if unit == "us" else 2
    return f"{size['value']:.{digits}f} [{size['low']:.{digits}f}, {size['high']:.{digits}f}]"


def segment_text(segment: Segment) -> str:
    """The ranking's two lines of a segment."""
    about = f", {segment.about}" if segment.about else ""
    largest = max(segment.motors, key=abs) if segment.motors else 0.0
    moved = ", ".join(f"{size_text(size, unit)} {unit}" for unit, size in segment.magnitude.items())
    return (
        f"{segment.start:.1f} to {segment.end:.1f} s: {segment.factor}{about}, {segment.influence:.2f} "
        f"[{segment.low:.2f}, {segment.high:.2f}], motors up to {largest:+.0f} us\n"
        f"    moved the decision by {moved}; necessity {size_text(segment.necessity, '')}"
    )


def flight_margins(log: FlightLog) -> dict[str, Any]:
    """Least clearance, largest tilt and saturation over the flight, each with its time where it has one."""
    params = log.params
    times = np.array([float(d.inputs.time) for d in log.decisions])
    attitude = np.array([d.inputs.body.attitude for d in log.decisions])
    up = np.clip(1 - 2 * (attitude[:, 1] ** 2 + attitude[:, 2] ** 2), -1, 1)
    tilt = np.degrees(np.arccos(up))
    forces = float(params.thrust_coefficient) * np.array([d.inputs.body.rotors for d in log.decisions]) ** 2
    high, low = forces >= 0.98 * float(params.thrust_max), forces <= 1.02 * float(params.thrust_min)
    position = np.array([d.inputs.body.position for d in log.decisions])
    forest = log.decisions[0].inputs.forest
    found: dict[str, Any] = {
        "tilt_deg": {
            "largest": float(tilt.max()),
            "limit": float(np.degrees(params.tilt_limit)),
            "time": float(times[tilt.argmax()]),
        },
        "saturated_share": float((high | low).any(1).mean()),
        "duration_s": float(times[-1] - times[0]),
    }
    if float(params.obstacles_on) > 0:
        gap = _gaps(forest, position).min(1)
        found["clearance_m"] = {
            "least": float(gap.min()), "limit": float(params.clearance), "time": float(times[gap.argmin()]),
        }  # fmt: skip
    errors = [d.extra.get("error") for d in log.decisions]
    if all(e is not None for e in errors):
        found["tracking_rms_m"] = float(np.sqrt(np.mean(np.square(np.array(errors, float)))))
    return found


def not_judged(log: FlightLog, found: FlightExplanation, replay: Mapping[str, Any]) -> list[str]:
    """Say what this explanation leaves open."""
    notes = list(log.missing)
    if replay["differing"]:
        notes.append(
            f"{len(replay['differing'])} of {replay['decisions']} decisions did not come out bit by bit as logged: "
            "other versions or another processor, or the file was altered"
        )
    if not found.calibrated:
        notes.append(
            "the intervals are not calibrated for these planner settings and factors: they show the spread alone"
        )
    elif not log.about.get("simulated"):
        notes.append("the intervals were calibrated in simulation, not on a vehicle")
    if "wind" in found.names:
        notes.append(
            "wind and the air pushed back by obstacles are one force to the estimator, and so one factor; a wrong mass "
            "looks like a vertical force"
        )
    few = int((found.effective_size < 16).sum())
    if few:
        notes.append(f"{few} decisions rest on fewer than 16 effective candidates")
    notes.append(
        f"influences below {CALM} are as large as in calm air, where the planner answers its estimator's noise"
    )
    return notes
