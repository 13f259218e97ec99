"""`awavo explain`: a decision record, a PX4 log, a run, or a flight task flown now."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import InputError
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.results.store import to_plain, write_bytes
from awavo.runs.explain_flight import TASKS, explain_record, fly_and_explain, made_by, write_tables

__all__ = ["explain", "explain_run_folder"]


def explain(args: Any) -> int:
    """Explain what was given; exit code 1 where a record's decisions do not come out as logged."""
    target = args.target
    if target in TASKS:
        return _emit(args, *fly_and_explain(args))
    path = Path(target)
    if path.is_dir():
        from awavo.runs import api
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

    from awavo.explain.run_explanation import explain_policies
    from awavo.explain.run_summary import NECESSITY, policy_costs, policy_notes, policy_summary
    from awavo.explain.task_factors import TASK_PUSHES, task_factors

    if episodes < 1:
        raise InputError(f"--episodes {episodes} must be >= 1.")
    factors = task_factors(run.config.task, run.config.task_options)
    problem = run.problem
    steps = problem.spec.horizon
    push = TASK_PUSHES[run.config.task]
    traces = explain_policies(
        problem.env, problem.algorithm, run.states, factors, push=push, episodes=episodes, steps=steps
    )
    names = [factor.name for factor in factors]
    found = policy_summary(traces, names)
    costs = policy_costs(traces, problem.spec.cost_names)
    notes = policy_notes(run.problem.algorithm.plan is not None)
    made = made_by()
    folder = run.path if out is None else out
    summary = {
        "run": str(run.path), "task": run.config.task, "algo": run.config.algo, "factors": found,
        "about": {f.name: f.about for f in factors}, "push_at_step": steps // 2, "episodes_per_seed": episodes,
        "costs": costs, "necessity": NECESSITY,
        "not_judged": notes, **made,
    }  # fmt: skip
    head = ["seed", "episode", "step", *(f"{n} {k}" for n in names for k in ("influence", "share", "necessity"))]
    rows = [
        [seed, e, t, *(float(x[e, t, i]) for i in range(len(names)) for x in (tr.influence, tr.shares, tr.necessity))]
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
        _policy_page(run, traces[0], factors, found, costs, notes, made["command"]), folder / "explanation.html"
    )
    summary["written"] = [*written, str(folder / "explanations.parquet"), str(page)]
    about = {f.name: f.about for f in factors}
    lines = [
        f"{name}: influence {_mean_text(row)}, up to {row['largest']:.2f}, "
        f"share {row['share']:+.2f}, necessity {_mean_text(row['necessity'])} ({about[name]})"
        for name, row in sorted(found.items(), key=lambda item: -item[1]["mean"])
    ]
    lines += [NECESSITY, *(f"{name}: {value}" for name, value in _cost_rows(run, costs))]
    return summary, [*lines, *(f"not judged: {note}" for note in notes), f"page: {page}"], 0


def _mean_text(row: Any, digits: int = 2) -> str:
    return f"{row['mean']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def _cost_rows(run: Any, costs: Any) -> list[tuple[str, str]]:
    limits = zip(costs.items(), run.problem.spec.cost_limits, strict=True)
    return [
        (f"cost {name}", f"{_mean_text(row, 1)} an episode with the push (limit {limit:g})")
        for (name, row), limit in limits
    ]


def _policy_page(
    run: Any, trace: Any, factors: Sequence[Any], found: Any, costs: Any, notes: Sequence[str], command: str
) -> PageContent:
    from awavo.explain.run_summary import NECESSITY

    on = trace.running[0]
    at = run.problem.spec.horizon // 2
    data = {
        "names": [f.name for f in factors], "time": np.flatnonzero(on).astype(float), "value": trace.influence[0][on],
        "best": trace.necessity[0][on], "shares": trace.shares[0][on], "together": trace.together[0][on],
        "unit": "step", "push": float(at), "start": int(np.argmax(trace.together[0][on])),
    }  # fmt: skip
    about = {f.name: f.about for f in factors}
    ranking = [
        (n, about[n], _mean_text(r), f"{r['largest']:.2f}", _mean_text(r["necessity"]), f"{r['share']:+.2f}")
        for n, r in sorted(found.items(), key=lambda item: -item[1]["mean"])
    ]
    head = ("factor", "what", "influence, mean [95%]", "largest", "necessity [95%]", "Shapley share")
    subtitle = (
        f"{run.config.algo}: the table is over all seeds and episodes, the curves are the first episode of seed "
        f"{run.seeds[0]}; every episode is pushed at step {at}."
    )
    return PageContent(
        f"Why the policy acts so: {run.config.task}", subtitle, head, ranking, _cost_rows(run, costs), notes, command,
        data, necessity=NECESSITY,
    )  # fmt: skip
