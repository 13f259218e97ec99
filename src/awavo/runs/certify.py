"""From a run on disk to its certificates, and back: what the command line and the Python interface share."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from awavo.checks import LARGEST_SEED, check_range
from awavo.errors import InputError, RunFolderError
from awavo.formal.certificate import differences, digest
from awavo.formal.episodes import tail_length
from awavo.formal.operator_proof import require_operator
from awavo.formal.run_certificates import Findings, Plan, Subject, certify_subject
from awavo.inference.operators import make_operator
from awavo.provenance import command_line, source_commit, versions
from awavo.registry import TASKS, resolve, task_options
from awavo.results.certificate_record import FORMAT, PROVENANCE, binding, count_verdicts, read_record, why_unbound
from awavo.results.curves import learning_curve
from awavo.results.store import to_plain
from awavo.runs.evaluate import Evaluator
from awavo.runs.problem import Problem, functional_env
from awavo.runs.progress import Doing, doing
from awavo.types import Fields, FieldsView

__all__ = ["certify_run", "compare_records", "read_plan", "recheck_run", "require_certified_operator"]

Say = Callable[[str], None]
# Episodes played between two looks. A planned one costs a hundred times more, so that one looks often; environments
# outside of JAX are made anew for each batch.
BATCH, PLANNED_BATCH, PLANNED_HOST_BATCH = 250, 4, 25
MAX_EPISODES = 1_000_000


def _operator_of(settings: Any, operator: Any) -> Any:
    """The operator a run uses: the caller's, or the one its settings name; None where the algorithm has none."""
    if operator is not None or not hasattr(settings, "operator"):
        return operator
    return make_operator(settings.operator, temperature=settings.temperature)


def require_certified_operator(settings: Any, operator: Any = None) -> None:
    """Refuse an operator whose conditions are refuted, with the counter-example, before anything is trained."""
    used = _operator_of(settings, operator)
    if used is not None:
        require_operator(used)


def certify_run(run: Any, on_progress: Say | None = None, **options: Any) -> Fields:
    """Certify a loaded run; the content of certificates.json, without its seal."""
    plan = _check_plan(_complete(run, options))
    began = time.perf_counter()
    stamp = {
        "command": command_line(),
        "commit": source_commit(),
        "versions": versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return _record(run, plan, on_progress) | stamp | {"wall_s": round(time.perf_counter() - began, 2)}


def recheck_run(run: Any, on_progress: Say | None = None) -> dict[str, list[str]]:
    """Make the stored record again, with the plan it was made with, and compare the whole of it.

    A record that was made from other files is not computed again: nothing in it would be about this run.
    """
    stored = read_record(run.path)
    if stored["format"] != FORMAT:
        raise RunFolderError(
            f"'{run.path}/certificates.json' has format {stored['format']}, expected {FORMAT}: an older awavo wrote it "
            f"and bound it to no checkpoint. Run `awavo certify {run.path}` again."
        )
    found = why_unbound(stored, binding(run.path, run.checkpoint_path))
    differences = {"certificates.json": found} if found else {}
    if stored["bound"] != binding(run.path, run.checkpoint_path):
        return differences
    return differences | compare_records(stored, _record(run, _check_plan(read_plan(stored)), on_progress))


def _complete(run: Any, options: FieldsView) -> Plan:
    """The plan of these options. Policies that plan are played in small batches, and only until they are decided."""
    problem, options = run.problem, dict(options)
    plans = _imagines(problem)
    if options.get("anytime") is None:
        options["anytime"] = plans
    planned = PLANNED_HOST_BATCH if problem.env is None else PLANNED_BATCH
    return Plan(**options, batch=planned if plans else BATCH)


def _imagines(problem: Problem) -> bool:
    """Whether every decision imagines many sequences of actions; PaETS does so without a planner beside its policy."""
    settings = problem.settings
    searches = hasattr(settings, "num_sequences") and getattr(settings, "planning", "on") == "on"
    return problem.algorithm.plan is not None or searches


def _record(run: Any, plan: Plan, on_progress: Say | None) -> Fields:
    """Everything in certificates.json that can be computed again."""
    with doing("certifying", plan.episodes * len(run.seeds), "episodes (at most)") as work:
        findings = _findings(run, plan, on_progress, work)
    return to_plain(
        {
            "format": FORMAT,
            "bound": binding(run.path, run.checkpoint_path),
            "plan": plan._asdict(),
            "delivered_seed": findings.delivered,
            "episodes": findings.episodes,
            "returns": findings.returns,
            "counts": count_verdicts((c.name, c.verdict) for c in findings.certificates),
            "skipped": findings.skipped,
            "certificates": [c.as_dict() for c in findings.certificates],
            "env_steps": run.env_steps,
        }
    )


def read_plan(content: FieldsView) -> Plan:
    """The plan of a stored record."""
    plan = content["plan"] if isinstance(content["plan"], dict) else {}
    numbers = {"delta": float, "max_violation": float | None}
    kinds = {name: numbers.get(name, type(default)) for name, default in Plan()._asdict().items()}
    if set(plan) != set(kinds) or not all(isinstance(plan[name], kind) for name, kind in kinds.items()):
        raise RunFolderError(f"certificates.json is damaged: expected a plan of {', '.join(kinds)}. Certify again.")
    return Plan(**plan)


def compare_records(stored: FieldsView, fresh: FieldsView) -> dict[str, list[str]]:
    """Where a stored record differs from the one made again, by field or by certificate."""
    fields = [name for name in dict.fromkeys([*stored, *fresh]) if name not in (*PROVENANCE, "seal", "certificates")]
    nothing = "nothing"
    found = {name: differences(stored.get(name, nothing), fresh.get(name, nothing), name) for name in fields}
    names = [[entry["name"] for entry in record["certificates"]] for record in (stored, fresh)]
    if names[0] != names[1] and set(names[0]) == set(names[1]):
        found["certificates"] = ["they stand in another order, or more than once"]
    old, new = ({entry["name"]: entry for entry in record["certificates"]} for record in (stored, fresh))
    for name in dict.fromkeys([*names[0], *names[1]]):
        if name not in new:
            found[name] = ["is stored but was not found again"]
        elif name not in old:
            found[name] = ["was found but is not stored"]
        else:
            found[name] = differences(old[name], new[name])
    return {name: texts for name, texts in found.items() if texts}


def _check_plan(plan: Plan) -> Plan:
    if plan.episodes < 20:
        raise InputError(f"episodes={plan.episodes} is too few to certify anything: give at least 20.")
    # A stored plan may say anything. Every batch adds one to the seed; smaller shares of delta are zero in the bounds.
    check_range("episodes", plan.episodes, 20, MAX_EPISODES)
    check_range("batch", plan.batch, 1, BATCH)
    check_range("seed", plan.seed, 0, LARGEST_SEED - MAX_EPISODES)
    check_range("delta", plan.delta, 1e-12, 1 - 1e-12)
    if plan.max_violation is not None and not 0 <= plan.max_violation <= 1:
        raise InputError(f"max_violation={plan.max_violation} is not a probability.")
    return plan


def _findings(run: Any, plan: Plan, on_progress: Say | None, work: Doing) -> Findings:
    problem = run.problem

    def say(line: str) -> None:
        work.details = [(line, "")]
        if on_progress is not None:
            on_progress(line)

    evaluators: dict[int, Evaluator] = {}  # one program for each size of batch

    def play(index: int, batch: int, num: int) -> tuple[np.ndarray, np.ndarray]:
        evaluator = evaluators.setdefault(num, Evaluator(problem, run.seeds, num))
        totals = evaluator.play_one(run.states[index], index, True, plan.seed + batch)
        work.advance(min(num, plan.episodes - batch * num))  # those of the last batch beyond them are left out
        return np.asarray(totals.returns, float), np.asarray(totals.costs, float)

    curve = learning_curve(run.data, "return", points=100)
    per_iteration = problem.settings.num_envs * problem.settings.rollout_length
    subject = Subject(
        spec=problem.spec,
        settings=problem.settings,
        algorithm=problem.algorithm,
        states=run.states,
        seeds=run.seeds,
        fingerprint=digest(run.checkpoint_path.read_bytes()),
        play=play,
        env=problem.env,
        long_env=_without_limit(run),
        operator=_operator_of(problem.settings, run.operator),
        steps=curve.env_steps,
        curves=curve.per_seed,
        iterations=run.env_steps // per_iteration,
        say=say,
    )
    return certify_subject(subject, plan)


def _without_limit(run: Any) -> Any:
    """The same built-in task with a horizon that no discounted return feels; None where the task has no such option."""
    config, settings = run.config, run.problem.settings
    if config.task not in TASKS or run.problem.env is None or not hasattr(settings, "discount"):
        return None
    if settings.discount >= 1:  # no horizon is long enough
        return None
    if "horizon" not in task_options(resolve(config.task, TASKS, "task")):
        return None
    horizon = run.problem.spec.horizon + tail_length(settings.discount) + 1
    options = {**config.task_options, "horizon": horizon}
    longer = dataclasses.replace(config, task_options=options, cost_limits=run.problem.spec.cost_limits)
    return functional_env(longer if config.cost_sum_limit is None else dataclasses.replace(longer, cost_limits=None))
