"""What each command of the command line does."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from awavo.config import TrainConfig, parse_value
from awavo.errors import ConfigError, InputError

__all__ = ["certify", "check_env", "compare", "demo", "doctor", "evaluate", "list_all", "read_pairs", "report", "train"]


def _emit(values: dict[str, Any]) -> None:
    from awavo.results.store import to_plain

    print(json.dumps(to_plain(values), allow_nan=False))


def read_pairs(pairs: Sequence[Any], flag: str) -> dict[str, Any]:
    """Read repeated NAME=VALUE options; tyro hands over one tuple per use of the flag."""
    values = {}
    for pair in (p for item in pairs for p in ((item,) if isinstance(item, str) else item)):
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} '{pair}' is not of the form NAME=VALUE.")
        values[name.replace("-", "_")] = parse_value(text)
    return values


def _count(text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = math.nan
    if not value >= 1 or value != int(value):
        raise ConfigError(f"--steps {text} is not a whole number >= 1.")
    return int(value)


def train(args: Any) -> int:
    """`awavo train`."""
    from awavo.cli.progress import show_progress
    from awavo.runs import api
    from awavo.runs.problem import build_problem, resolve_config

    config = resolve_config(
        TrainConfig(
            task=args.task,
            algo=args.algo,
            steps=_count(args.steps),
            seeds=args.seeds,
            seed=args.seed,
            preset=args.preset,
            task_options=read_pairs(args.task_option, "--task-option"),
            algo_options=read_pairs(args.option, "--option"),
            cost_limits=args.limits or None,
            cost_sum_limit=args.sum_limit,
            cost_fn=args.cost_fn,
            seed_axis=args.seed_axis,
        )
    )
    if args.dry_run:
        return _dry_run(config, build_problem(config))
    out = args.out or Path("runs") / f"{args.task.replace('/', '-').replace(':', '-')}-{args.algo}"
    began = time.perf_counter()
    last = show_progress(api.train_iter(config, out, checkpoint_seconds=args.checkpoint_seconds), quiet=args.json)
    wall = time.perf_counter() - began
    steps = (last.env_steps - last.resumed_at) * config.seeds
    summary = {
        "run": str(out),
        "task": config.task,
        "algo": config.algo,
        "seeds": config.seeds,
        "env_steps": last.env_steps,
        "wall_s": wall,
        "compile_s": last.compile_s,
        "steps_per_second": steps / max(wall - last.compile_s, 1e-9),
        "resumed_at": last.resumed_at,
        "finished": last.phase == "finished",
    }
    if args.json:
        _emit(summary)
    elif last.phase == "finished":
        print(f"done: {out}  ({wall:.0f} s). Next: awavo evaluate {out}")
    else:
        print(f"stopped at {last.env_steps} steps; saved. The same command goes on from there.", file=sys.stderr)
    return 0 if last.phase == "finished" else 130


def _dry_run(config: TrainConfig, problem: Any) -> int:
    import dataclasses

    settings = problem.settings
    per_iteration = settings.num_envs * settings.rollout_length
    iterations = -(-config.steps // per_iteration)
    _emit(
        {
            "config": dataclasses.asdict(config),
            "cost_names": problem.spec.cost_names,
            "cost_limits": problem.spec.cost_limits,
            "steps_per_iteration": per_iteration,
            "iterations": iterations,
            "env_steps": iterations * per_iteration,
        }
    )
    return 0


def evaluate(args: Any) -> int:
    """`awavo evaluate`: exit code 1 when no seed keeps its limits."""
    from awavo.cli.progress import show_evaluation
    from awavo.runs import api
    from awavo.training.compilation import enable_cache

    enable_cache()
    run = api.load(args.run_folder, trust=args.trust)
    result = run.evaluate(args.episodes, seed=args.seed, planner=args.planner)
    shown = result["stochastic" if args.stochastic else "greedy"]
    if args.json:
        _emit({"run": str(args.run_folder), "policy": "stochastic" if args.stochastic else "greedy", **shown})
    else:
        show_evaluation(result, run.config.task, run.config.algo)
    return 0 if shown["feasible_seeds"] > 0 else 1


def certify(args: Any) -> int:
    """`awavo certify`: exit code 1 when no policy is certified safe, something is refuted, or a recheck differs."""
    if args.target == "operator":
        return _certify_operator(args)
    if args.name is not None:
        raise InputError(f"'{args.name}' was not expected: give one RUN, or `operator NAME`.")
    from awavo.cli.progress import show_certificates
    from awavo.runs import api
    from awavo.training.compilation import enable_cache

    enable_cache()
    run = api.load(args.target, trust=args.trust)
    if args.recheck:
        return _recheck(run, args.json)
    from awavo.formal.store import favourable

    result = run.certify(
        episodes=args.episodes,
        delta=args.delta,
        anytime=args.anytime,
        max_violation=args.max_violation,
        seed=args.seed,
    )
    page = run.report()
    if args.json:
        _emit({"run": args.target, "report": str(page), "favourable": favourable(result), **result})
    else:
        show_certificates(result, args.target, page)
    return 0 if favourable(result) else 1


def _recheck(run: Any, as_json: bool) -> int:
    differences = run.recheck()
    if as_json:
        _emit({"run": str(run.path), "agrees": not differences, "differences": differences})
    else:
        for name, found in differences.items():
            print(f"{name}: {'; '.join(found)}")
        print(
            f"{run.path}: {'some certificates do NOT hold up' if differences else 'every certificate was found again'}"
        )
    return 1 if differences else 0


def _certify_operator(args: Any) -> int:
    from awavo.formal.operator_proof import certify_operator
    from awavo.inference.operators import make_operator

    if args.name is None:
        raise InputError("`awavo certify operator` needs a name: log, affine, power or MODULE:NAME.")
    operator = make_operator(args.name, temperature=args.temperature, kappa=args.kappa)
    found = certify_operator(operator)
    if args.json:
        _emit({"operator": args.name, "certificates": [c.as_dict() for c in found]})
    else:
        for c in found:
            print(f"{c.verdict:<10} {c.claim}\n{'':<10} {c.reason}")
    return 1 if any(c.verdict == "refuted" for c in found) else 0


def _load_runs(paths: Sequence[Path]) -> list[Any]:
    from awavo.results.store import load_run

    if not paths:
        raise InputError("no run folder was given: expected at least one RUN.")
    return [load_run(path) for path in paths]


def compare(args: Any) -> int:
    """`awavo compare`."""
    from rich.console import Console

    from awavo.results.compare import compare_runs
    from awavo.results.tables import comparison_dict, comparison_markdown, comparison_tables

    comparison = compare_runs(_load_runs(args.run_folders), threshold=args.threshold)
    if args.json:
        _emit(comparison_dict(comparison))
    elif args.markdown:
        print(comparison_markdown(comparison))
    else:
        for table in comparison_tables(comparison):
            Console().print(table)
    return 0


def report(args: Any) -> int:
    """`awavo report`."""
    from awavo.results.report import write_report
    from awavo.results.trajectory_page import is_inference, write_inference_report

    if args.run_folders and all(is_inference(Path(folder)) for folder in args.run_folders):
        page = write_inference_report(args.run_folders, args.out or args.run_folders[0] / "report.html")
        _emit({"written": [str(page)], "bytes": page.stat().st_size}) if args.json else print(page)
        return 0
    runs = _load_runs(args.run_folders)
    out = args.out or args.run_folders[0] / "report.html"
    write_report(runs, out)
    written = [str(out)]
    if args.figure:
        from awavo.results.plots import learning_figure, save_figure

        written += [str(p) for p in save_figure(learning_figure(runs), out.with_suffix(""), runs)]
    if args.json:
        _emit({"written": written, "bytes": Path(out).stat().st_size})
    else:
        print("\n".join(written))
    return 0


def list_all(args: Any) -> int:
    """`awavo list`."""
    from awavo.errors import MissingExtraError
    from awavo.registry import ALGORITHMS, GPU_TASKS, HOST_TASKS, TASKS, make_host_task, make_task

    tasks = []
    for name, item in (TASKS | HOST_TASKS).items():
        if name in GPU_TASKS:  # slow to build where there is no GPU
            tasks.append({"name": name, "summary": item.summary, "source": item.source, "horizon": None, "limits": {}})
            continue
        try:
            spec = make_task(name).spec if name in TASKS else make_host_task(name, num_envs=1).spec
        except MissingExtraError as error:
            tasks.append({"name": name, "summary": str(error), "source": item.source, "horizon": None, "limits": {}})
            continue
        limits = dict(zip(spec.cost_names, spec.cost_limits, strict=True))
        tasks.append(
            {"name": name, "summary": item.summary, "source": item.source, "horizon": spec.horizon, "limits": limits}
        )
    algorithms = [{"name": n, "summary": i.summary, "source": i.source} for n, i in ALGORITHMS.items()]
    if args.json:
        _emit({"tasks": tasks, "algorithms": algorithms})
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "what", "costs and limits", "steps", "from")
    for t in tasks:
        table.add_row(
            t["name"],
            t["summary"],
            ", ".join(f"{k} <= {v:g}" for k, v in t["limits"].items()),
            str(t["horizon"] or ""),
            t["source"],
        )
    Console().print(table)
    table = Table("algorithm", "what", "from")
    for a in algorithms:
        table.add_row(a["name"], a["summary"], a["source"])
    Console().print(table)
    return 0


def check_env(args: Any) -> int:
    """`awavo check-env`: exit code 1 if an error was found."""
    from awavo.runs.problem import import_function
    from awavo.tasks.check_env import check_env as check

    options = read_pairs(args.task_option, "--task-option")
    findings = check(args.env, cost_fn=import_function(args.cost_fn), steps=args.steps, env_options=options)
    failed = any(f.level == "error" for f in findings)
    if args.json:
        _emit({"env": args.env, "ok": not failed, "findings": [f._asdict() for f in findings]})
    else:
        for f in findings:
            print(f"{f.level}: {f.problem}\n    -> {f.remedy}")
        print(f"{args.env}: {'not usable yet' if failed else 'ready to train'} ({len(findings)} findings)")
    return 1 if failed else 0


def doctor(args: Any) -> int:
    """`awavo doctor`."""
    from awavo.cli.doctor import examine

    findings = examine()
    healthy = all(f["ok"] for f in findings)
    if args.json:
        _emit({"healthy": healthy, "findings": findings})
    else:
        for f in findings:
            print(f"{'ok  ' if f['ok'] else 'FAIL'} {f['name']:<18} {f['detail']}")
    return 0 if healthy else 1


def demo(args: Any) -> int:
    """`awavo demo`: train, evaluate, report, explain."""
    from awavo.cli.progress import show_evaluation, show_progress
    from awavo.runs import api
    from awavo.runs.explain import explain_run_folder

    config = api.configure("cartpole", "orpo-dr", steps=args.steps, seeds=args.seeds)
    began = time.perf_counter()
    last = show_progress(api.train_iter(config, args.out), quiet=args.json)
    if last.phase != "finished":
        print("stopped; saved. The same command goes on from there.", file=sys.stderr)
        return 130
    run = api.load(args.out)
    result = run.evaluate()
    page = run.report()
    explanation, reasons, _ = explain_run_folder(run)
    wall = time.perf_counter() - began
    if args.json:
        _emit(
            {
                "run": str(args.out),
                "report": str(page),
                "wall_s": wall,
                **result["greedy"],
                "explanation": explanation["factors"],
            }
        )
    else:
        show_evaluation(result, config.task, config.algo)
        print("why the policies act so, with a push halfway through each episode:")
        print("\n".join(f"  {line}" for line in reasons))
        print(f"report page: {page}   ({wall:.0f} s in all)")
    return 0
