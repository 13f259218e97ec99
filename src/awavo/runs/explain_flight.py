"""Why a flight went as it did: fly a task now, or take a decision record; ranking, tables and the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from awavo.checks import LARGEST_SEED, check_range
from awavo.errors import InputError
from awavo.explain.flight_factors import named_factors
from awavo.explain.flight_report import FlightExplanation, explain_log, spacing
from awavo.explain.mcap_file import require_mcap
from awavo.explain.mismatch import alarm_text, log_hindsight
from awavo.explain.record import read_log
from awavo.explain.recording import record_flight, replay_log
from awavo.explain.refly import pieces, refly_all
from awavo.explain.summary import (
    NECESSITY,
    find_segments,
    flight_margins,
    mean_band,
    not_judged,
    segment_text,
)  # fmt: skip
from awavo.files import new_folder, require_writable
from awavo.provenance import stamp
from awavo.results.explain_page import write_explain_page
from awavo.runs.explain import Explanation, write_tables
from awavo.runs.flight_page import flight_page, margin_rows
from awavo.runs.progress import doing
from awavo.training.compilation import enable_cache

__all__ = ["explain_record", "fly_and_explain"]

MOST_AGAIN = 1200
"""Decisions of a record that are made again, evenly spread; shorter records are as a whole."""
MOST_STEPS = 1_000_000
"""Decisions of a flight at most."""


def fly_and_explain(
    task: str,
    out: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    steps: int = 600,
    factors: Sequence[str] = (),
    every: int | None = None,
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
    out = new_folder(Path("runs") / f"explain-{task}-seed{seed}" if out is None else Path(out))
    with doing(f"flying {task} for {steps} decisions"):
        record_flight(out / "flight.mcap", task=task, seed=seed, steps=steps, about=stamp())
    return explain_record(out / "flight.mcap", out, factors=factors, every=every, threshold=threshold)


def _check(factors: Sequence[str], every: int | None, threshold: float) -> None:
    named_factors(factors)
    if every is not None and every < 1:
        raise InputError(f"--every {every} must be >= 1.")
    if not 0 <= threshold <= 1:
        raise InputError(f"--threshold {threshold:g} must be in [0, 1].")


def _beside(path: Path) -> Path:
    return path.with_name(path.stem + "-explained")


def explain_record(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    factors: Sequence[str] = (),
    every: int | None = None,
    threshold: float = 0.15,
    again: bool = True,
) -> Explanation:
    """Replay and explain a decision record.

    Args:
        path: The record, FLIGHT.mcap.
        out: Folder for explanation.json, .csv and .html (default: FLIGHT-explained beside the record).
        factors: Names of what to leave out: wind, obstacles, drag, mass or obstacle:N (default: wind, obstacles).
        every: Explain every so many decisions (default: every fifth, at most 240 of a flight).
        threshold: Influence from which a stretch of time is listed.
        again: Fly it again in the model, with everything and without each factor.
    """
    enable_cache()
    _check(factors, every, threshold)
    path = Path(path)
    out = _beside(path) if out is None else Path(out)
    require_writable(out)
    with doing("1 of 4: reading and looking back on the flight"):
        log = read_log(path)
        names = named_factors(factors, log.decisions[0].inputs.forest)
        seen, alarms = log_hindsight(log)
    again_every = -(-len(log.decisions) // MOST_AGAIN)
    with doing("2 of 4: replaying", -(-len(log.decisions) // again_every), "decisions") as work:
        replay = replay_log(log, again_every, work.advance)._asdict()
    every = spacing(len(log.decisions)) if every is None else every
    with doing("3 of 4: deciding again without each factor", -(-len(log.decisions) // every), "decisions") as work:
        found = explain_log(log, names, every, seen, work.advance)
    segments = find_segments(found, log, threshold, flags=tuple(a.kind for a in alarms))
    margins = flight_margins(log)
    notes = not_judged(log, found, replay)
    reflown = {}
    if again:
        with doing("4 of 4: flying it again without each factor", pieces(log, names), "seconds") as work:
            reflown = refly_all(log, names, seen, work.advance)
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
        "asked_every": every, "segments": [s._asdict() for s in segments], "alarms": [a._asdict() for a in alarms],
        "flown_again_rms_m": {n: float(np.sqrt(np.mean(r.error**2))) for n, r in reflown.items()},
        "margins": margins, "not_judged": notes, **stamp(),
    }  # fmt: skip
    written = write_tables(out, summary, *_flight_rows(found))
    content = flight_page(log, found, segments, margins, notes, summary["command"], alarms, reflown, seen)
    page = write_explain_page(content, out / "explanation.html")
    summary["written"] = [*written, str(page)]
    lines = [f"alarm: {alarm_text(a)}" for a in alarms]
    lines += [segment_text(s) for s in segments] or ["no factor's influence passed the threshold"]
    if segments:
        lines.append(NECESSITY)
    lines += [f"{name}: {value}" for name, value in margin_rows(margins, reflown)]
    lines.append(f"temperature {temperature:g}, {size:.0f} effective candidates of {log.config.num_candidates}")
    same = replay["decisions"] - len(replay["differing"])
    lines.append(f"replay: {same} of {replay['decisions']} decisions came out bit by bit as logged")
    lines += [f"not judged: {note}" for note in notes]
    return Explanation(summary, [*lines, f"page: {page}"], replays=not replay["differing"])


def _flight_rows(found: FlightExplanation) -> tuple[list[str], list[list[float]]]:
    """Head and rows of the table: one row for each decision that was asked."""
    head = ["decision", "time_s", "force_x_N", "force_y_N", "force_z_N"]
    for name in found.names:
        head += [f"{name}_{part}" for part in ("influence", "low", "high", "believed", "share")]
        for title in ("necessity", *(unit.replace("/", "_") for unit in found.magnitude)):
            head += [f"{name}_{title}", f"{name}_{title}_low", f"{name}_{title}_high"]
        head += [f"{name}_motor{m + 1}_us" for m in range(4)]
    rows = []
    for k, index in enumerate(found.numbers):
        row = [int(index), float(found.time[k]), *map(float, found.force[k])]
        for i in range(len(found.names)):
            row += [float(np.asarray(x)[k, i]) for x in (*found.influence, found.believed, found.shares)]
            for band in (found.necessity, *found.magnitude.values()):
                row += [max(0.0, float(np.asarray(x)[k, i])) for x in band]
            row += [float(x) for x in found.motors[k, 1 + i]]
        rows.append(row)
    return head, rows
