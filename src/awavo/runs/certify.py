"""From a run on disk to its certificates, and back: what the command line and the Python interface share."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from awavo.errors import InputError
from awavo.formal.certificate import digest
from awavo.formal.episodes import tail_length
from awavo.formal.operator_proof import require_operator
from awavo.formal.run_certificates import Findings, Plan, Subject, certify_subject
from awavo.formal.store import read_plan, recheck, record
from awavo.inference.operators import make_operator
from awavo.provenance import command_line, source_commit, versions
from awavo.registry import TASKS, resolve, task_options
from awavo.results.curves import learning_curve
from awavo.runs.evaluate import Evaluator
from awavo.runs.problem import functional_env
from awavo.training.evaluation import Episodes

__all__ = ["certify_run", "recheck_run", "require_certified_operator"]


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


def certify_run(run: Any, **options: Any) -> dict[str, Any]:
    """Certify a loaded run; the content of certificates.json."""
    plan = _check_plan(Plan(**options))
    began = time.perf_counter()
    findings = _findings(run, plan)
    stamp = {
        "env_steps": run.env_steps,
        "command": command_line(),
        "commit": source_commit(),
        "versions": versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "wall_s": round(time.perf_counter() - began, 2),
    }
    return record(findings, plan, stamp)


def recheck_run(run: Any, content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Compute stored certificates again with the plan they were made with, and compare."""
    return recheck(content, _findings(run, _check_plan(read_plan(content))).certificates)


def _check_plan(plan: Plan) -> Plan:
    if plan.episodes < 20:
        raise InputError(f"episodes={plan.episodes} is too few to certify anything: give at least 20.")
    if not 0 < plan.delta < 1:
        raise InputError(f"delta={plan.delta} is not between 0 and 1: 0.05 is 95% confidence.")
    if plan.max_violation is not None and not 0 <= plan.max_violation <= 1:
        raise InputError(f"max_violation={plan.max_violation} is not a probability.")
    return plan


def _findings(run: Any, plan: Plan) -> Findings:
    problem = run.problem
    batches: dict[tuple[int, int], list[Episodes]] = {}
    evaluators: dict[int, Evaluator] = {}

    def play(index: int, batch: int, num: int) -> tuple[np.ndarray, np.ndarray]:
        # All seeds are played together, once for each batch.
        if (batch, num) not in batches:
            evaluator = evaluators.setdefault(num, Evaluator(problem, run.seeds, num))
            batches[batch, num] = evaluator.play(run.states, True, plan.seed + batch)
        totals = batches[batch, num][index]
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
    )
    return certify_subject(subject, plan)


def _without_limit(run: Any) -> Any:
    """The same built-in task with a horizon that no discounted return feels; None where the task has no such option."""
    config, settings = run.config, run.problem.settings
    if config.task not in TASKS or run.problem.env is None or not hasattr(settings, "discount"):
        return None
    if "horizon" not in task_options(resolve(config.task, TASKS, "task")):
        return None
    horizon = run.problem.spec.horizon + tail_length(settings.discount) + 1
    options = {**config.task_options, "horizon": horizon}
    longer = dataclasses.replace(config, task_options=options, cost_limits=run.problem.spec.cost_limits)
    return functional_env(longer if config.cost_sum_limit is None else dataclasses.replace(longer, cost_limits=None))
