"""`awavo explain` on a flight: fly a task now or take a decision record; ranking, tables and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import InputError
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.results.store import to_plain, write_bytes

__all__ = ["TASKS", "explain_record", "fly_and_explain", "made_by", "write_tables"]

TASKS = ("FT0", "FT1", "FT2", "FT3")


def made_by() -> dict[str, Any]:
    """Command, commit, versions and machine of this call."""
    return {"command": command_line(), "commit": source_commit(), "versions": versions(), "device": device_info()}


def write_tables(out: Path, summary: dict[str, Any], head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Write explanation.json and explanation.csv; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows])
    write_bytes(out / "explanation.json", (json.dumps(to_plain(summary), indent=1, allow_nan=False) + "\n").encode())
    write_bytes(out / "explanation.csv", text.getvalue().encode())
    return [str(out / "explanation.json"), str(out / "explanation.csv")]


def fly_and_explain(args: Any) -> tuple[dict[str, Any], list[str], int]:
    """Fly a task in simulation, record it, explain the record: summary, lines and exit code."""
    from awavo.explain.record import require_mcap
    from awavo.explain.recording import record_flight
    from awavo.training.compilation import enable_cache

    require_mcap()
    _check(args)
    enable_cache()
    out = args.out or Path("runs") / f"explain-{args.target}-seed{args.seed}"
    out.mkdir(parents=True, exist_ok=True)
    record_flight(out / "flight.mcap", task=args.target, seed=args.seed, steps=args.steps, about=made_by())
    return explain_record(out / "flight.mcap", out, args)


def _check(args: Any) -> None:
    from awavo.explain.flight_factors import flight_factor

    for name in args.factor:
        flight_factor(name)
    if args.every < 1 or args.steps < 1:
        raise InputError(f"--every {args.every} and --steps {args.steps} must be >= 1.")
    if not 0 <= args.threshold <= 1:
        raise InputError(f"--threshold {args.threshold:g} must be in [0, 1].")


def explain_record(path: Path, out: Path, args: Any) -> tuple[dict[str, Any], list[str], int]:
    """Replay and explain a decision record: summary, lines and exit code."""
    from awavo.control.flight_planner import FACTORS
    from awavo.explain.flight_report import explain_log
    from awavo.explain.record import read_log
    from awavo.explain.recording import replay_log
    from awavo.explain.summary import (
        NECESSITY,
        find_segments,
        flight_margins,
        mean_band,
        not_judged,
        segment_text,
    )
    from awavo.training.compilation import enable_cache

    enable_cache()
    _check(args)
    log = read_log(path)
    replay = replay_log(log)._asdict()
    found = explain_log(log, tuple(args.factor) or FACTORS, args.every)
    segments = find_segments(found, log, args.threshold)
    margins = flight_margins(log)
    notes = not_judged(log, found, replay)
    heat, size = log.config.temperature, float(found.effective_size.mean())
    made = made_by()
    columns = list(enumerate(found.names))
    summary = {
        "source": str(path), "about": log.about, "decisions": len(log.decisions), "replay": replay,
        "factors": found.names, "temperature": heat, "effective_size": size, "calibrated": found.calibrated,
        "mean_influence": {n: mean_band(found.influence, i) for i, n in columns},
        "mean_share": {n: float(found.shares[:, i].mean()) for i, n in columns},
        "mean_magnitude": {n: {u: mean_band(b, i) for u, b in found.magnitude.items()} for i, n in columns},
        "mean_necessity": {n: mean_band(found.necessity, i) for i, n in columns}, "necessity": NECESSITY,
        "largest_shapley_error": float(np.abs(found.shares.sum(1) - found.together).max()),
        "segments": [s._asdict() for s in segments], "margins": margins, "not_judged": notes, **made,
    }  # fmt: skip
    written = write_tables(out, summary, *_flight_rows(found, log))
    page = write_explain_page(
        _flight_page(log, found, segments, margins, notes, made["command"]), out / "explanation.html"
    )
    summary["written"] = [*written, str(page)]
    lines = [segment_text(s) for s in segments] or ["no factor's influence passed the threshold"]
    if segments:
        lines.append(NECESSITY)
    lines += [f"{name}: {value}" for name, value in _margin_rows(margins)]
    lines.append(f"temperature {heat:g}, {size:.0f} effective candidates of {log.config.num_candidates}")
    same = replay["decisions"] - len(replay["differing"])
    lines.append(f"replay: {same} of {replay['decisions']} decisions came out bit by bit as logged")
    lines += [f"not judged: {note}" for note in notes]
    return summary, [*lines, f"page: {page}"], 1 if replay["differing"] else 0


def _flight_rows(found: Any, log: Any) -> tuple[list[str], list[list[Any]]]:
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


def _margin_rows(margins: dict[str, Any]) -> list[tuple[str, str]]:
    tilt = margins["tilt_deg"]
    rows = [("largest tilt", f"{tilt['largest']:.1f} deg at {tilt['time']:.1f} s (limit {tilt['limit']:.0f})")]
    if "clearance_m" in margins:
        gap = margins["clearance_m"]
        rows.append(("least clearance", f"{gap['least']:.2f} m at {gap['time']:.1f} s (limit {gap['limit']:.2f})"))
    rows.append(("a rotor at its bound", f"{margins['saturated_share']:.1%} of the decisions"))
    if "tracking_rms_m" in margins:
        rows.append(("tracking error (rms)", f"{margins['tracking_rms_m']:.3f} m"))
    return rows


def _flight_page(log: Any, found: Any, segments: Any, margins: Any, notes: Sequence[str], command: str) -> PageContent:
    from awavo.explain.summary import CALM, NECESSITY, size_text

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


def _plain_band(band: Any) -> dict[str, Any]:
    return {name: np.maximum(np.asarray(value), 0.0) for name, value in band._asdict().items()}
