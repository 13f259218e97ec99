"""Why the policies of a run act as they do, from the run to tables and a page; what all explanations write."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from awavo.errors import InputError
from awavo.explain.factors import Factor
from awavo.explain.run_explanation import (
    NECESSITY,
    PolicyTrace,
    explain_policies,
    policy_costs,
    policy_notes,
    policy_summary,
)
from awavo.explain.task_factors import TASK_PUSHES, task_factors
from awavo.files import require_writable
from awavo.provenance import stamp
from awavo.results.explain_page import PageContent, write_explain_page
from awavo.results.store import to_plain, write_bytes, write_table
from awavo.runs.api import Run
from awavo.runs.progress import doing
from awavo.types import Fields, FieldsView

__all__ = ["Explanation", "explain_run_folder", "write_tables"]


class Explanation(NamedTuple):
    """What was found: the content of explanation.json with the files written, and the same in sentences.

    `replays` is False where a record's decisions did not come out bit by bit as logged.
    """

    summary: Fields
    lines: list[str]
    replays: bool = True


def write_tables(out: Path, summary: FieldsView, head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Write explanation.json and explanation.csv; return their paths."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows])
    write_bytes(
        out / "explanation.json",
        (json.dumps(to_plain(summary), indent=1, allow_nan=False) + "\n").encode(),
        make_folder=True,
    )
    write_bytes(out / "explanation.csv", text.getvalue().encode())
    return [str(out / "explanation.json"), str(out / "explanation.csv")]


def explain_run_folder(run: Run, out: str | os.PathLike[str] | None = None, *, episodes: int = 8) -> Explanation:
    """Explain the policies of a run on CartPole or Acrobot: episodes with a push halfway, all seeds.

    Writes explanation.json, .csv and .html and explanations.parquet into `out` (default: into the run).
    """
    if episodes < 1:
        raise InputError(f"--episodes {episodes} must be >= 1.")
    factors = task_factors(run.config.task, run.config.task_options)
    folder = run.path if out is None else Path(out)
    require_writable(folder)
    problem = run.problem
    assert problem.env is not None, "every task with factors is functional"
    steps = problem.spec.horizon
    with doing("explaining", len(run.states), "seeds") as work:
        traces = explain_policies(
            problem.env, problem.algorithm, work.each(run.states), factors, push=TASK_PUSHES[run.config.task],
            episodes=episodes, steps=steps,
        )  # fmt: skip
    names = [factor.name for factor in factors]
    found = policy_summary(traces, names)
    costs = policy_costs(traces, problem.spec.cost_names)
    notes = policy_notes(problem.algorithm.plan is not None)
    about = {f.name: f.about for f in factors}
    summary = {
        "run": str(run.path), "task": run.config.task, "algo": run.config.algo, "factors": found,
        "about": about, "push_at_step": steps // 2, "episodes_per_seed": episodes,
        "costs": costs, "necessity": NECESSITY, "not_judged": notes, **stamp(),
    }  # fmt: skip
    head = ["seed", "episode", "step", *(f"{n} {k}" for n in names for k in ("influence", "share", "necessity"))]
    rows = [
        [seed, e, t, *(float(x[e, t, i]) for i in range(len(names)) for x in (tr.influence, tr.shares, tr.necessity))]
        for seed, tr in zip(run.seeds, traces, strict=True)
        for e in range(episodes)
        for t in np.flatnonzero(tr.running[e])
    ]
    written = write_tables(folder, summary, head, rows)
    write_table(folder / "explanations.parquet", {name: [row[i] for row in rows] for i, name in enumerate(head)})
    content = _policy_page(run, traces[0], factors, found, costs, notes, summary["command"])
    page = write_explain_page(content, folder / "explanation.html")
    summary["written"] = [*written, str(folder / "explanations.parquet"), str(page)]
    lines = [
        f"{name}: influence {_mean_text(row)}, up to {row['largest']:.2f}, "
        f"share {row['share']:+.2f}, necessity {_mean_text(row['necessity'])} ({about[name]})"
        for name, row in _strongest_first(found)
    ]
    lines += [NECESSITY, *(f"{name}: {value}" for name, value in _cost_rows(run, costs))]
    return Explanation(summary, [*lines, *(f"not judged: {note}" for note in notes), f"page: {page}"])


def _strongest_first(found: Mapping[str, Fields]) -> list[tuple[str, Fields]]:
    return sorted(found.items(), key=lambda item: -item[1]["mean"])


def _mean_text(row: FieldsView, digits: int = 2) -> str:
    return f"{row['mean']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def _cost_rows(run: Run, costs: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    limits = zip(costs.items(), run.problem.spec.cost_limits, strict=True)
    return [
        (f"cost {name}", f"{_mean_text(row, 1)} an episode with the push (limit {limit:g})")
        for (name, row), limit in limits
    ]


def _policy_page(
    run: Run,
    trace: PolicyTrace,
    factors: Sequence[Factor],
    found: Mapping[str, Fields],
    costs: Mapping[str, Mapping[str, float]],
    notes: Sequence[str],
    command: str,
) -> PageContent:
    """The page shows the first episode of the first seed as curves, and all of them in the table."""
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
        for n, r in _strongest_first(found)
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
