"""Why a flight went as it did: fly a task now, or take a decision record or a PX4 log; ranking, tables and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awavo.checks import LARGEST_SEED, check_range
from awavo.control.flight_planner import FACTORS
from awavo.errors import InputError
from awavo.explain.calibration import load_calibrations
from awavo.explain.flight_factors import flight_factor
from awavo.explain.flight_report import FlightExplanation, explain_log
from awavo.explain.intervals import Band
from awavo.explain.record import FlightLog, read_log, require_mcap
from awavo.explain.recording import record_flight, replay_log
from awavo.explain.summary import (
    CALM,
    NECESSITY,
    Segment,
    find_segments,
    flight_margins,
    mean_band,
    not_judged,
    segment_text,
    size_text,
)  # fmt: skip
from awavo.explain.ulog import RATE, force_balance, ulog_segments
from awavo.files import new_folder, require_writable
from awavo.provenance import stamp
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.runs.explain import Explanation, write_tables
from awavo.training.compilation import enable_cache

__all__ = ["explain_record", "explain_ulog", "fly_and_explain"]

MOST_STEPS = 1_000_000
"""Decisions of a flight at most."""


def fly_and_explain(
    task: str,
    out: Path | None = None,
    *,
    seed: int = 0,
    steps: int = 600,
    factors: Sequence[str] = (),
    every: int = 5,
    threshold: float = 0.15,
) -> Explanation:
    """Fly a task (FT0 to FT3) in simulation, record it, explain the record; default folder runs/explain-TASK-seedSEED.

    `factors`, `every` and `threshold` as for `explain_record`.
    """
    require_mcap()
    _check(factors, every, threshold)
    check_range("--steps", steps, 1, MOST_STEPS)
    check_range("--seed", seed, 0, LARGEST_SEED)
    enable_cache()
    out = new_folder(Path("runs") / f"explain-{task}-seed{seed}" if out is None else out)
    # Flown with the setting of the planner that the intervals were calibrated for.
    calibrated = load_calibrations()[0].planners[0]
    record_flight(out / "flight.mcap", task=task, seed=seed, steps=steps, config=calibrated, about=stamp())
    return explain_record(out / "flight.mcap", out, factors=factors, every=every, threshold=threshold)


def _check(factors: Sequence[str], every: int, threshold: float) -> None:
    for name in factors:
        flight_factor(name)
    if every < 1:
        raise InputError(f"--every {every} must be >= 1.")
    if not 0 <= threshold <= 1:
        raise InputError(f"--threshold {threshold:g} must be in [0, 1].")


def _beside(path: Path) -> Path:
    return path.with_name(path.stem + "-explained")


def explain_record(
    path: Path, out: Path | None = None, *, factors: Sequence[str] = (), every: int = 5, threshold: float = 0.15
) -> Explanation:
    """Replay and explain a decision record.

    Args:
        path: The record, FLIGHT.mcap.
        out: Folder for explanation.json, .csv and .html (default: FLIGHT-explained beside the record).
        factors: Names of what to leave out: wind, obstacles, drag, mass or obstacle:N (default: wind, obstacles).
        every: Explain every so many decisions.
        threshold: Influence from which a stretch of time is listed.
    """
    enable_cache()
    _check(factors, every, threshold)
    out = _beside(path) if out is None else out
    require_writable(out)
    log = read_log(path)
    replay = replay_log(log)._asdict()
    found = explain_log(log, tuple(factors) or FACTORS, every)
    segments = find_segments(found, log, threshold)
    margins = flight_margins(log)
    notes = not_judged(log, found, replay)
    temperature, size = log.config.temperature, float(found.effective_size.mean())
    columns = list(enumerate(found.names))
    summary = {
        "source": str(path), "about": log.about, "decisions": len(log.decisions), "replay": replay,
        "factors": found.names, "temperature": temperature, "effective_size": size, "calibrated": found.calibrated,
        "mean_influence": {n: mean_band(found.influence, i) for i, n in columns},
        "mean_share": {n: float(found.shares[:, i].mean()) for i, n in columns},
        "mean_magnitude": {n: {u: mean_band(b, i) for u, b in found.magnitude.items()} for i, n in columns},
        "mean_necessity": {n: mean_band(found.necessity, i) for i, n in columns}, "necessity": NECESSITY,
        "largest_shapley_error": float(np.abs(found.shares.sum(1) - found.together).max()),
        "segments": [s._asdict() for s in segments], "margins": margins, "not_judged": notes, **stamp(),
    }  # fmt: skip
    written = write_tables(out, summary, *_flight_rows(found, log))
    content = _flight_page(log, found, segments, margins, notes, summary["command"])
    page = write_explain_page(content, out / "explanation.html")
    summary["written"] = [*written, str(page)]
    lines = [segment_text(s) for s in segments] or ["no factor's influence passed the threshold"]
    if segments:
        lines.append(NECESSITY)
    lines += [f"{name}: {value}" for name, value in _margin_rows(margins)]
    lines.append(f"temperature {temperature:g}, {size:.0f} effective candidates of {log.config.num_candidates}")
    same = replay["decisions"] - len(replay["differing"])
    lines.append(f"replay: {same} of {replay['decisions']} decisions came out bit by bit as logged")
    lines += [f"not judged: {note}" for note in notes]
    return Explanation(summary, [*lines, f"page: {page}"], replays=not replay["differing"])


def explain_ulog(path: Path, out: Path | None = None, *, mass: float | None = None) -> Explanation:
    """Say which forces a PX4 log shows, in N where the mass (kg) is given; writes explanation.json and .csv."""
    if mass is not None and not 0 < mass < 1000:
        raise InputError(f"--mass {mass:g} must be between 0 and 1000 kg.")
    out = _beside(path) if out is None else out
    require_writable(out)
    found = force_balance(path)
    segments = ulog_segments(found)
    seconds = len(found.time) / RATE
    side = np.hypot(found.force[:, 0], found.force[:, 1])
    summary = {
        "source": str(path), "flying_s": seconds, "hover_throttle": found.hover_throttle,
        "mean_force_m_s2_ned": found.force.mean(0), "sideways_rms_m_s2": float(np.sqrt(np.mean(side**2))),
        "segments": segments, "rates_hz": found.rates, "not_judged": found.notes, "mass_kg": mass, **stamp(),
    }  # fmt: skip
    scale, unit = (1.0, "m/s2") if mass is None else (mass, "N")
    head = ["time_s", "north_m_s2", "east_m_s2", "down_m_s2"]
    rows = [[float(t), *map(float, f)] for t, f in zip(found.time, found.force, strict=True)]
    summary["written"] = write_tables(out, summary, head, rows)
    lines = [
        f"{s['start_s']:.0f} to {s['end_s']:.0f} s: sideways force {scale * s['sideways_m_s2']:.2f} "
        f"[{scale * s['low']:.2f}, {scale * s['high']:.2f}] {unit} from {s['from']}"
        for s in segments
    ]
    lines.append(f"{seconds:.1f} s of flight, hover throttle {found.hover_throttle:.2f}")
    lines += [f"not judged: {note}" for note in found.notes]
    return Explanation(summary, [*lines, *summary["written"]])


def _flight_rows(found: FlightExplanation, log: FlightLog) -> tuple[list[str], list[list[float]]]:
    """Head and rows of the table: one row for each decision that was asked."""
    by_index = {d.number: d for d in log.decisions}
    head = ["decision", "time_s", "force_x_N", "force_y_N", "force_z_N"]
    for name in found.names:
        head += [f"{name}_influence", f"{name}_low", f"{name}_high", f"{name}_share"]
        for title in ("necessity", *(unit.replace("/", "_") for unit in found.magnitude)):
            head += [f"{name}_{title}", f"{name}_{title}_low", f"{name}_{title}_high"]
        head += [f"{name}_motor{m + 1}_us" for m in range(4)]
    rows = []
    for k, index in enumerate(found.numbers):
        row = [int(index), float(found.time[k]), *map(float, by_index[index].inputs.belief.mean[:3])]
        for i in range(len(found.names)):
            row += [*(float(np.asarray(x)[k, i]) for x in found.influence), float(found.shares[k, i])]
            for band in (found.necessity, *found.magnitude.values()):
                row += [max(0.0, float(np.asarray(x)[k, i])) for x in band]
            row += [float(x) for x in found.motors[k, 1 + i]]
        rows.append(row)
    return head, rows


def _margin_rows(margins: Mapping[str, Any]) -> list[tuple[str, str]]:
    tilt = margins["tilt_deg"]
    rows = [("largest tilt", f"{tilt['largest']:.1f} deg at {tilt['time']:.1f} s (limit {tilt['limit']:.0f})")]
    if "clearance_m" in margins:
        gap = margins["clearance_m"]
        rows.append(("least clearance", f"{gap['least']:.2f} m at {gap['time']:.1f} s (limit {gap['limit']:.2f})"))
    rows.append(("a rotor at its bound", f"{margins['saturated_share']:.1%} of the decisions"))
    if "tracking_rms_m" in margins:
        rows.append(("tracking error (rms)", f"{margins['tracking_rms_m']:.3f} m"))
    return rows


def _flight_page(
    log: FlightLog,
    found: FlightExplanation,
    segments: Sequence[Segment],
    margins: Mapping[str, Any],
    notes: Sequence[str],
    command: str,
) -> PageContent:
    """Everything that the page draws; it opens at the decision that the factors moved most."""
    by_index = {d.number: d for d in log.decisions}
    chosen = [by_index[i] for i in found.numbers]
    forest = chosen[0].inputs.forest
    shown = (np.abs(forest.x) < 100) & (float(log.params.obstacles_on) > 0)
    columns = zip(forest.x[shown], forest.y[shown], forest.radius[shown], forest.height[shown], strict=True)
    names = ("x", "y", "radius", "height")
    peak = int(np.argmax(found.together))
    about = log.about
    steps = f"{len(log.decisions)} decisions" + (f" of {about['steps']}" if "steps" in about else "")
    data = {
        "names": list(found.names), "time": found.time,
        **{k: np.asarray(v) for k, v in found.influence._asdict().items()},
        "shares": found.shares, "together": found.together, "motors": found.motors, "effective": found.effective_size,
        "temperature": log.config.temperature, "calm": CALM, "start": peak,
        "necessity": _plain_band(found.necessity),
        "magnitude": {unit: _plain_band(band) for unit, band in found.magnitude.items()},
        "position": np.array([d.inputs.body.position for d in chosen]),
        "force": np.array([d.inputs.belief.mean[:3] for d in chosen]),
        "force_std": np.sqrt(np.array([np.diagonal(d.inputs.belief.covariance)[:3] for d in chosen])),
        "cylinders": [dict(zip(names, map(float, row), strict=True)) for row in columns],
        "fans": [fan._asdict() for fan in found.fans], "segments": [s._asdict() for s in segments],
    }  # fmt: skip
    ranking = [
        (
            f"{s.start:.1f} to {s.end:.1f} s", s.factor, s.about, f"{s.influence:.2f} [{s.low:.2f}, {s.high:.2f}]",
            size_text(s.necessity, ""), [f"{size_text(size, unit)} {unit}" for unit, size in s.magnitude.items()],
            [" / ".join(f"{m:+.0f}" for m in pair) for pair in (s.motors[:2], s.motors[2:])],
        )
        for s in segments
    ]  # fmt: skip
    head = ("when", "factor", "what", "influence [90%]", "necessity", "moved by", "motors 1 to 4, us")
    title = f"Why the planner flew so: {about.get('task', 'flight')}"
    subtitle = f"{steps}, seed {about.get('seed', '–')}; x is east, y north."
    return PageContent(
        title, subtitle, head, ranking, _margin_rows(margins), notes, command, data, found.calibrated, NECESSITY
    )


def _plain_band(band: Band) -> dict[str, np.ndarray]:
    """A band as the page draws it: nothing below 0."""
    return {name: np.maximum(np.asarray(value), 0.0) for name, value in band._asdict().items()}
