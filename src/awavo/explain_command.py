"""`awavo explain`: a decision record, a PX4 log, a run, or a flight task flown now."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import InputError
from awavo.explain_flight import TASKS, explain_record, fly_and_explain, made_by, write_tables
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.results.store import to_plain, write_bytes

__all__ = ["explain", "explain_run_folder"]


def explain(args: Any) -> int:
    """Explain what was given; exit code 1 where a record's decisions do not come out as logged."""
    target = args.target
    if target in TASKS:
        return _emit(args, *fly_and_explain(args))
    path = Path(target)
    if path.is_dir():
        from awavo import api
        from awavo.training.compilation import enable_cache

        enable_cache()
        run = api.load(path, trust=args.trust)
        return _emit(args, *explain_run_folder(run, args.out, episodes=args.episodes))
    if path.suffix == ".mcap":
        return _emit(args, *explain_record(path, args.out or _beside(path), args))
    if path.suffix == ".ulg":
        return _emit(args, *_explain_ulog(path, args.out or _beside(path), args.mass))
    if not path.exists():
        raise InputError(
            f"'{target}': there is no such file or folder; expected FLIGHT.mcap, FLIGHT.ulg, a RUN or FT3."
        )
    raise InputError(f"'{target}' is neither .mcap nor .ulg nor a run folder.")


def _beside(path: Path) -> Path:
    return path.with_name(path.stem + "-explained")


def _emit(args: Any, summary: dict[str, Any], lines: Sequence[str], code: int) -> int:
    if args.json:
        print(json.dumps(to_plain(summary), allow_nan=False))
    else:
        print("\n".join(lines))
    return code


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
        "segments": segments, "rates_hz": found.rates, "not_judged": found.notes, "mass_kg": mass, **made_by(),
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
    made = made_by()
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
    written = write_tables(folder, summary, head, rows)
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
