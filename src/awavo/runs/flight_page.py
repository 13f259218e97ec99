"""The page of an explained flight record: everything it draws, in the map's frame (east, north, up)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from awavo.explain.flight_report import FlightExplanation
from awavo.explain.hindsight import Hindsight
from awavo.explain.intervals import Band
from awavo.explain.mismatch import Alarm, alarm_text
from awavo.explain.record import FlightLog
from awavo.explain.refly import LONGEST_S, Reflown
from awavo.explain.summary import CALM, NECESSITY, Segment, flight_curves, size_text
from awavo.results.explain_page import PageContent
from awavo.tasks.quadrotor.flight_path import reference_function
from awavo.tasks.quadrotor.frames import map_vector
from awavo.types import FieldsView

__all__ = ["flight_page", "margin_rows"]

Z90 = 1.645
SPACE_NOTE = (
    "Dotted: the reference. Marks are seconds of the flight, arrows the external force (half a metre is 1 N), "
    "N is north. Flown again: the same flight in the model, closed loop, with the force that the record shows and "
    f"without one factor, up to {LONGEST_S:g} s."
)


def margin_rows(margins: FieldsView, reflown: Mapping[str, Reflown]) -> list[tuple[str, str]]:
    """Margins in words, and how the flight went again without each factor."""
    tilt = margins["tilt_deg"]
    rows = [("largest tilt", f"{tilt['largest']:.1f} deg at {tilt['time']:.1f} s (limit {tilt['limit']:.0f})")]
    if "clearance_m" in margins:
        gap = margins["clearance_m"]
        rows.append(("least clearance", f"{gap['least']:.2f} m at {gap['time']:.1f} s (limit {gap['limit']:.2f})"))
    rows.append(("a rotor at its bound", f"{margins['saturated_share']:.1%} of the decisions"))
    if "tracking_rms_m" in margins:
        rows.append(("tracking error (rms)", f"{margins['tracking_rms_m']:.3f} m"))
    for name, found in reflown.items():
        rows.append((f"flown again {name}", f"{np.sqrt(np.mean(found.error**2)):.3f} m (rms)"))
    return rows


def flight_page(
    log: FlightLog,
    found: FlightExplanation,
    segments: Sequence[Segment],
    margins: FieldsView,
    notes: Sequence[str],
    command: str,
    alarms: Sequence[Alarm],
    reflown: Mapping[str, Reflown],
    seen: Hindsight,
) -> PageContent:
    """Everything that the page draws; it opens at the decision that the factors moved most."""
    places = {d.number: i for i, d in enumerate(log.decisions)}
    rows = np.array([places[i] for i in found.numbers])
    chosen = [log.decisions[i] for i in rows]
    forest = chosen[0].inputs.forest
    shown = (np.abs(forest.x) < 100) & (float(log.params.obstacles_on) > 0)
    centres = map_vector(np.stack([forest.x, forest.y, forest.height], -1))[shown]
    columns = zip(centres[:, 0], centres[:, 1], forest.radius[shown], forest.height[shown], strict=True)
    names = ("x", "y", "radius", "height")
    about = log.about
    steps = f"{len(log.decisions)} decisions" + (f" of {about['steps']}" if "steps" in about else "")
    curves = flight_curves(log)
    half = Z90 * np.abs(map_vector(np.sqrt(np.einsum("tii->ti", seen.covariance[rows]))))
    mapped = map_vector(found.force)
    times = jnp.asarray(found.time, jnp.float32)
    wanted = np.asarray(reference_function(log.reference)(times, log.params).position).T
    fans = [{"place": f.place, "paths": {k: map_vector(np.array(p)) for k, p in f.paths.items()}} for f in found.fans]
    data = {
        "names": list(found.names), "time": found.time,
        **{k: np.asarray(v) for k, v in found.influence._asdict().items()},
        "believed": found.believed, "shares": found.shares, "together": found.together, "motors": found.motors,
        "effective": found.effective_size,
        "temperature": log.config.temperature, "calm": CALM, "start": int(np.argmax(found.together)),
        "necessity": _plain_band(found.necessity),
        "magnitude": {unit: _plain_band(band) for unit, band in found.magnitude.items()},
        "position": map_vector(np.array([d.inputs.body.position for d in chosen])), "reference": map_vector(wanted),
        "force": mapped, "force_low": mapped - half, "force_high": mapped + half,
        "error": curves["error"][rows], "tilt": curves["tilt"][rows],
        "tilt_limit": float(np.degrees(log.params.tilt_limit)),
        "clearance": curves["clearance"][rows] if "clearance" in curves else None,
        "clearance_limit": float(log.params.clearance) if "clearance" in curves else None,
        "cylinders": [dict(zip(names, map(float, row), strict=True)) for row in columns],
        "fans": fans,
        "segments": [s._asdict() for s in segments], "alarms": [a._asdict() for a in alarms],
        "refly": {
            name: {"time": r.time[::5], "position": map_vector(r.position[::5]), "error": r.error[::5]}
            for name, r in reflown.items()
        },
    }  # fmt: skip
    ranking = [
        (
            f"{s.start:.1f} to {s.end:.1f} s", s.named, [s.about, *(f"in doubt: {flag}" for flag in s.flags)],
            f"{s.influence:.2f} [{s.low:.2f}, {s.high:.2f}]",
            size_text(s.necessity, ""), [f"{size_text(size, unit)} {unit}" for unit, size in s.magnitude.items()],
            [" / ".join(f"{m:+.0f}" for m in pair) for pair in (s.motors[:2], s.motors[2:])],
        )
        for s in segments
    ]  # fmt: skip
    head = ("when", "factor", "what", "influence [90%]", "necessity", "moved by", "motors 1 to 4, us")
    title = f"Why the planner flew so: {about.get('task', 'flight')}"
    subtitle = f"{steps}, seed {about.get('seed', '–')}, reference {log.reference.kind}; maps show east and north."
    return PageContent(
        title, subtitle, head, ranking, margin_rows(margins, reflown), notes, command, data, found.calibrated,
        NECESSITY, alarms=[alarm_text(a) for a in alarms], space_note=SPACE_NOTE,
    )  # fmt: skip


def _plain_band(band: Band) -> dict[str, np.ndarray]:
    """A band as the page draws it: nothing below 0."""
    return {name: np.maximum(np.asarray(value), 0.0) for name, value in band._asdict().items()}
