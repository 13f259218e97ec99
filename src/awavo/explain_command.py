"""`awavo explain`: a decision record, a PX4 log, a run, or a flight task flown now."""

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

__all__ = ["explain", "explain_run_folder"]

TASKS = ("FT0", "FT1", "FT2", "FT3")


def explain(args: Any) -> int:
    """Explain what was given; exit code 1 where a record's decisions do not come out as logged."""
    target = args.target
    if target in TASKS:
        return _emit(args, *_fly_and_explain(args))
    path = Path(target)
    if path.is_dir():
        from awavo import api
        from awavo.training.compilation import enable_cache

        enable_cache()
        run = api.load(path, trust=args.trust)
        return _emit(args, *explain_run_folder(run, args.out, episodes=args.episodes))
    if path.suffix == ".mcap":
        return _emit(args, *_explain_record(path, args.out or _beside(path), args))
    if path.suffix == ".ulg":
        return _emit(args, *_explain_ulog(path, args.out or _beside(path), args.mass))
    if not path.exists():
        raise InputError(
            f"'{target}': there is no such file or folder; expected FLIGHT.mcap, FLIGHT.ulg, a RUN or FT3."
        )
    raise InputError(f"'{target}' is neither .mcap nor .ulg nor a run folder.")


def _beside(path: Path) -> Path:
    return path.with_name(path.stem + "-explained")


def _made() -> dict[str, Any]:
    return {"command": command_line(), "commit": source_commit(), "versions": versions(), "device": device_info()}


def _emit(args: Any, summary: dict[str, Any], lines: Sequence[str], code: int) -> int:
    if args.json:
        print(json.dumps(to_plain(summary), allow_nan=False))
    else:
        print("\n".join(lines))
    return code


def _write(out: Path, summary: dict[str, Any], head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Write explanation.json and explanation.csv; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows])
    write_bytes(out / "explanation.json", (json.dumps(to_plain(summary), indent=1, allow_nan=False) + "\n").encode())
    write_bytes(out / "explanation.csv", text.getvalue().encode())
    return [str(out / "explanation.json"), str(out / "explanation.csv")]


def _fly_and_explain(args: Any) -> tuple[dict[str, Any], list[str], int]:
    from awavo.explain.record import require_mcap
    from awavo.explain.recording import record_flight

    require_mcap()
    _check(args)
    out = args.out or Path("runs") / f"explain-{args.target}-seed{args.seed}"
    out.mkdir(parents=True, exist_ok=True)
    record_flight(out / "flight.mcap", task=args.target, seed=args.seed, steps=args.steps, about=_made())
    return _explain_record(out / "flight.mcap", out, args)


def _check(args: Any) -> None:
    from awavo.explain.asking import flight_factor

    for name in args.factor:
        flight_factor(name)
    if args.every < 1 or args.steps < 1:
        raise InputError(f"--every {args.every} and --steps {args.steps} must be >= 1.")
    if not 0 <= args.threshold <= 1:
        raise InputError(f"--threshold {args.threshold:g} must be in [0, 1].")


def _explain_record(path: Path, out: Path, args: Any) -> tuple[dict[str, Any], list[str], int]:
    from awavo.explain.flight_planner import FACTORS
    from awavo.explain.flight_report import explain_log
    from awavo.explain.record import read_log
    from awavo.explain.recording import replay_log
    from awavo.explain.summary import CALM, find_segments, flight_margins, not_judged, segment_text
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
    made = _made()
    band = {key: np.asarray(value).mean(0) for key, value in found.influence._asdict().items()}
    summary = {
        "source": str(path), "about": log.about, "decisions": len(log.decisions), "replay": replay,
        "factors": found.names, "temperature": heat, "effective_size": size, "calibrated": found.calibrated,
        "mean_influence": {n: {k: float(band[k][i]) for k in band} for i, n in enumerate(found.names)},
        "mean_share": {n: float(found.shares[:, i].mean()) for i, n in enumerate(found.names)},
        "largest_shapley_error": float(np.abs(found.shares.sum(1) - found.together).max()),
        "segments": [s._asdict() for s in segments], "margins": margins, "not_judged": notes, **made,
    }  # fmt: skip
    written = _write(out, summary, *_flight_rows(found, log))
    page = write_explain_page(
        _flight_page(log, found, segments, margins, notes, made["command"], CALM), out / "explanation.html"
    )
    summary["written"] = [*written, str(page)]
    lines = [segment_text(s) for s in segments] or ["no factor's influence passed the threshold"]
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
        head += [f"{name}_influence", f"{name}_low", f"{name}_high", f"{name}_share", f"{name}_N", f"{name}_us"]
        head += [f"{name}_motor{m + 1}_us" for m in range(4)]
    rows = []
    for k, index in enumerate(found.numbers):
        row = [int(index), float(found.time[k]), *map(float, by_index[index].inputs.belief.mean[:3])]
        for i in range(len(found.names)):
            row += [float(np.asarray(x)[k, i]) for x in found.influence]
            row += [float(found.shares[k, i]), *(float(found.magnitude[u][k, i]) for u in ("N", "us"))]
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


def _flight_page(
    log: Any, found: Any, segments: Any, margins: Any, notes: Sequence[str], command: str, calm: float
) -> PageContent:
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
        "temperature": log.config.temperature, "calm": calm, "start": peak,
        "position": np.array([d.inputs.body.position for d in chosen]),
        "force": np.array([d.inputs.belief.mean[:3] for d in chosen]),
        "force_std": np.sqrt(np.array([np.diagonal(d.inputs.belief.covariance)[:3] for d in chosen])),
        "cylinders": [dict(zip(names, map(float, row), strict=True)) for row in columns],
        "fans": [fan._asdict() for fan in found.fans], "segments": [s._asdict() for s in segments],
    }  # fmt: skip
    ranking = [
        (
            f"{s.start:.1f} to {s.end:.1f} s", s.factor, s.about, f"{s.influence:.2f} [{s.low:.2f}, {s.high:.2f}]",
            " / ".join(f"{m:+.0f}" for m in s.motors),
        )
        for s in segments
    ]  # fmt: skip
    head = ("when", "factor", "what", "influence [90%]", "motors, us")
    title = f"Why the planner flew so: {about.get('task', 'flight')}"
    subtitle = f"{steps}, seed {about.get('seed', '–')}; x is east, y north."
    return PageContent(
        title, subtitle, head, ranking, _margin_rows(margins), notes, command, data, calibrated=found.calibrated
    )


def _explain_ulog(path: Path, out: Path, mass: float | None) -> tuple[dict[str, Any], list[str], int]:
    from awavo.explain.ulog import force_balance, ulog_segments

    if mass is not None and not 0 < mass < 1000:
        raise InputError(f"--mass {mass:g} must be between 0 and 1000 kg.")
    found = force_balance(path)
    segments = ulog_segments(found)
    side = np.hypot(found.force[:, 0], found.force[:, 1])
    summary = {
        "source": str(path), "flying_s": len(found.time) / 50, "hover_throttle": found.hover_throttle,
        "mean_force_m_s2_ned": found.force.mean(0), "sideways_rms_m_s2": float(np.sqrt(np.mean(side**2))),
        "segments": segments, "rates_hz": found.rates, "not_judged": found.notes, "mass_kg": mass, **_made(),
    }  # fmt: skip
    scale, unit = (1.0, "m/s2") if mass is None else (mass, "N")
    head = ["time_s", "north_m_s2", "east_m_s2", "down_m_s2"]
    rows = [[float(t), *map(float, f)] for t, f in zip(found.time, found.force, strict=True)]
    summary["written"] = _write(out, summary, head, rows)
    lines = [
        f"{s['start_s']:.0f} to {s['end_s']:.0f} s: sideways force {scale * s['sideways_m_s2']:.2f} "
        f"[{scale * s['low']:.2f}, {scale * s['high']:.2f}] {unit} from {s['from']}"
        for s in segments
    ]
    lines.append(f"{len(found.time) / 50:.1f} s of flight, hover throttle {found.hover_throttle:.2f}")
    lines += [f"not judged: {note}" for note in found.notes]
    return summary, [*lines, *summary["written"]], 0


def explain_run_folder(
    run: Any, out: Path | None = None, *, episodes: int = 8
) -> tuple[dict[str, Any], list[str], int]:
    """Explain the policies of a run on CartPole or Acrobot: episodes with a push halfway, all seeds."""
    import polars

    from awavo.explain.run_explanation import explain_policy
    from awavo.explain.run_summary import policy_notes, policy_summary
    from awavo.explain.task_factors import TASK_PUSHES, task_factors

    if episodes < 1:
        raise InputError(f"--episodes {episodes} must be >= 1.")
    factors = task_factors(run.config.task)
    problem = run.problem
    steps = problem.spec.horizon
    push = TASK_PUSHES[run.config.task]
    traces = [
        explain_policy(problem.env, problem.algorithm, state, factors, push=push, episodes=episodes, steps=steps)
        for state in run.states
    ]
    names = [factor.name for factor in factors]
    found = policy_summary(traces, names)
    notes = policy_notes(run.problem.algorithm.plan is not None)
    made = _made()
    folder = run.path if out is None else out
    summary = {
        "run": str(run.path), "task": run.config.task, "algo": run.config.algo, "factors": found,
        "about": {f.name: f.about for f in factors}, "push_at_step": steps // 2, "episodes_per_seed": episodes,
        "not_judged": notes, **made,
    }  # fmt: skip
    head = ["seed", "episode", "step", *(f"{n} {k}" for n in names for k in ("influence", "share"))]
    rows = [
        [seed, e, t, *(float(x) for i in range(len(names)) for x in (tr.influence[e, t, i], tr.shares[e, t, i]))]
        for seed, tr in zip(run.seeds, traces, strict=True)
        for e in range(episodes)
        for t in np.flatnonzero(tr.running[e])
    ]
    written = _write(folder, summary, head, rows)
    table = polars.DataFrame({name: [row[i] for row in rows] for i, name in enumerate(head)})
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write_bytes(folder / "explanations.parquet", buffer.getvalue())
    page = write_explain_page(
        _policy_page(run, traces[0], names, found, notes, made["command"]), folder / "explanation.html"
    )
    summary["written"] = [*written, str(folder / "explanations.parquet"), str(page)]
    lines = [
        f"{name}: influence {row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}], up to {row['largest']:.2f}, "
        f"share {row['share']:+.2f}"
        for name, row in sorted(found.items(), key=lambda item: -item[1]["mean"])
    ]
    return summary, [*lines, *(f"not judged: {note}" for note in notes), f"page: {page}"], 0


def _policy_page(run: Any, trace: Any, names: list[str], found: Any, notes: Sequence[str], command: str) -> PageContent:
    on = trace.running[0]
    value = trace.influence[0][on]
    data = {
        "names": names, "time": np.flatnonzero(on).astype(float), "value": value, "low": value, "high": value,
        "shares": trace.shares[0][on], "together": trace.together[0][on], "calm": 0.0, "unit": "steps",
        "start": int(np.argmax(trace.together[0][on])),
    }  # fmt: skip
    ranking = [
        (n, f"{r['mean']:.2f} [{r['low']:.2f}, {r['high']:.2f}]", f"{r['largest']:.2f}", f"{r['share']:+.2f}")
        for n, r in sorted(found.items(), key=lambda item: -item[1]["mean"])
    ]
    head = ("factor", "influence, mean over steps [95% over episodes]", "largest", "Shapley share")
    subtitle = (
        f"{run.config.algo}, first episode of seed {run.seeds[0]}, with a push at step {run.problem.spec.horizon // 2}."
    )
    margins = [
        (f"limit of {n}", f"{v:g}")
        for n, v in zip(run.problem.spec.cost_names, run.problem.spec.cost_limits, strict=True)
    ]
    return PageContent(
        f"Why the policy acts so: {run.config.task}", subtitle, head, ranking, margins, notes, command, data
    )
