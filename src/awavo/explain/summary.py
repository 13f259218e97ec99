"""A flight in words: ranked intervals, margins, saturation, and what could not be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from awavo.explain.flight_report import FlightExplanation
from awavo.explain.intervals import Band
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.flight_path import reference_function
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.frames import wind_name
from awavo.types import Fields, FieldsView

__all__ = [
    "NECESSITY", "Segment", "find_segments", "flight_curves", "flight_margins", "force_text", "mean_band", "not_judged",
    "segment_text", "size_text", "stretches",
]  # fmt: skip

# Influences below this are what a planner shows in calm air: it answers the noise of its own force estimate.
CALM = 0.06
# Nearer to an obstacle than this (m), air that it pushes back cannot be told from wind.
AT_OBSTACLE = 0.6
NECESSITY = (
    "Necessity is the least probability that the plan rated best at that instant would not have been chosen without "
    "the factor; over all plans, each with its own probability, it averages to the influence."
)


class Segment(NamedTuple):
    """A stretch of time in which a factor moved the decisions.

    `named` is what the factor is then: the external force is wind where it is sideways and far from obstacles. `flags`
    are the kinds of alarms that the flight raised: the finding is worth less for each of them.
    """

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
    named: str
    flags: tuple[str, ...] = ()


def mean_band(band: Band, column: int, part: slice = slice(None)) -> dict[str, float]:
    """Mean over decisions of a factor's value and of its bounds; none of them is below 0."""
    return {name: max(0.0, float(np.asarray(x)[part, column].mean())) for name, x in band._asdict().items()}


def force_text(force: np.ndarray, gap: float) -> tuple[str, str]:
    """Name a mean external force (N) met at a distance from the nearest obstacle, and say what it was."""
    side, up = float(np.hypot(force[0], force[1])), float(force[2])
    parts = [f"{side:.1f} N from {wind_name(force)}"] if side >= abs(up) / 2 else []
    parts += [f"{abs(up):.1f} N {'up' if up > 0 else 'down'}"] if abs(up) >= side / 2 else []
    if gap < AT_OBSTACLE:
        parts.append(f"{gap:.2f} m from an obstacle")
    return "wind" if side > abs(up) and gap >= AT_OBSTACLE else "external force", ", ".join(parts)


def stretches(on: np.ndarray, times: np.ndarray, gap: float, least: float) -> list[tuple[int, int]]:
    """Index ranges (both ends included) in which `on` holds, joined over short gaps."""
    found: list[list[int]] = []
    for i in np.flatnonzero(on):
        if found and times[i] - times[found[-1][1]] <= gap:
            found[-1][1] = int(i)
        else:
            found.append([int(i), int(i)])
    return [(a, b) for a, b in found if times[b] - times[a] >= least]


def find_segments(
    found: FlightExplanation,
    log: FlightLog,
    threshold: float = 0.15,
    gap: float = 0.25,
    least: float = 0.1,
    flags: tuple[str, ...] = (),
) -> list[Segment]:
    """Return where a factor's influence was above the threshold, the strongest first.

    Stretches are joined over `gap` seconds and last `least` seconds, as far as decisions were asked that often.
    """
    spacing = float(np.median(np.diff(found.time))) if len(found.time) > 1 else 0.0
    gap, least = max(gap, 1.01 * spacing), 0.0 if spacing > least else least
    by_index = {d.number: d for d in log.decisions}
    forces = found.force
    places = np.array([by_index[i].inputs.body.position for i in found.numbers])
    forest = log.decisions[0].inputs.forest
    segments = []
    for k, name in enumerate(found.names):
        value = np.asarray(found.influence.value)[:, k]
        for a, b in stretches(value >= threshold, found.time, gap, least):
            part = slice(a, b + 1)
            mean, low, high = (float(np.asarray(x)[part, k].mean()) for x in found.influence)
            named = name
            if name == "wind":
                distance = float(_gaps(forest, places[part]).min()) if float(log.params.obstacles_on) > 0 else np.inf
                named, about = force_text(forces[part].mean(0), distance)
            elif name == "obstacles":
                about = _nearest(forest, places[part])
            else:
                about = ""
            motors = tuple(float(x) for x in found.motors[part, 1 + k].mean(0))
            sizes = {unit: mean_band(band, k, part) for unit, band in found.magnitude.items()}
            needed = mean_band(found.necessity, k, part)
            span = (float(found.time[a]), float(found.time[b]))
            segments.append(Segment(name, *span, mean, low, high, about, motors, sizes, needed, named, flags))
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
    """The ranking's lines of a segment."""
    about = f", {segment.about}" if segment.about else ""
    largest = max(segment.motors, key=abs) if segment.motors else 0.0
    moved = ", ".join(f"{size_text(size, unit)} {unit}" for unit, size in segment.magnitude.items())
    flagged = f"\n    in doubt: {', '.join(segment.flags)} (see the alarms)" if segment.flags else ""
    return (
        f"{segment.start:.1f} to {segment.end:.1f} s: {segment.named}{about}, {segment.influence:.2f} "
        f"[{segment.low:.2f}, {segment.high:.2f}], motors up to {largest:+.0f} us\n"
        f"    moved the decision by {moved}; necessity {size_text(segment.necessity, '')}{flagged}"
    )


def flight_curves(log: FlightLog) -> dict[str, np.ndarray]:
    """Tilt (degrees), distance to the reference (m) and, where there are obstacles, to the nearest one, by decision."""
    times = np.array([float(d.inputs.time) for d in log.decisions], np.float32)
    attitude = np.array([d.inputs.body.attitude for d in log.decisions])
    position = np.array([d.inputs.body.position for d in log.decisions])
    up = np.clip(1 - 2 * (attitude[:, 1] ** 2 + attitude[:, 2] ** 2), -1, 1)
    wanted = np.asarray(reference_function(log.reference)(jnp.asarray(times), log.params).position).T
    found = {"tilt": np.degrees(np.arccos(up)), "error": np.linalg.norm(position - wanted, axis=1)}
    if float(log.params.obstacles_on) > 0:
        found["clearance"] = _gaps(log.decisions[0].inputs.forest, position).min(1)
    return found


def flight_margins(log: FlightLog) -> Fields:
    """Least clearance, largest tilt and saturation over the flight, each with its time where it has one."""
    params = log.params
    times = np.array([float(d.inputs.time) for d in log.decisions])
    curves = flight_curves(log)
    tilt = curves["tilt"]
    forces = float(params.thrust_coefficient) * np.array([d.inputs.body.rotors for d in log.decisions]) ** 2
    high, low = forces >= 0.98 * float(params.thrust_max), forces <= 1.02 * float(params.thrust_min)
    found: Fields = {
        "tilt_deg": {
            "largest": float(tilt.max()),
            "limit": float(np.degrees(params.tilt_limit)),
            "time": float(times[tilt.argmax()]),
        },
        "saturated_share": float((high | low).any(1).mean()),
        "duration_s": float(times[-1] - times[0]),
    }
    if "clearance" in curves:
        gap = curves["clearance"]
        found["clearance_m"] = {
            "least": float(gap.min()), "limit": float(params.clearance), "time": float(times[gap.argmin()]),
        }  # fmt: skip
    found["tracking_rms_m"] = float(np.sqrt(np.mean(np.square(curves["error"]))))
    return found


def not_judged(log: FlightLog, found: FlightExplanation, replay: FieldsView) -> list[str]:
    """Say what this explanation leaves open."""
    notes = list(log.missing)
    if replay["decisions"] < replay["of"]:
        notes.append(f"{replay['decisions']} of {replay['of']} decisions were made again, evenly spread")
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
            "and a wrong thrust cannot be told apart, nor either from a steady vertical force"
        )
    few = int((found.effective_size < 16).sum())
    if few:
        notes.append(f"{few} decisions rest on fewer than 16 effective candidates")
    notes.append(
        f"influences below {CALM} are as large as in calm air, where the planner answers its estimator's noise"
    )
    return notes
