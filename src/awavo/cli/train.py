"""`awavo train`: train with a progress bar; the same command again resumes the run."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.checks import check_seconds
from awavo.cli.common import Device, Json, LimitList, Pairs, print_json, read_limits, read_pairs
from awavo.config import TrainConfig, check_config
from awavo.errors import ConfigError
from awavo.files import require_writable
from awavo.interruption import stop_flag
from awavo.types import Fields

__all__ = ["Train"]

# Names of what is planned in, and the setting `planning` that each stands for.
PLANNED_IN = {"learnt": "on", "physics": "physics"}


@dataclass
class Train:
    """Options of `awavo train`."""

    task: Annotated[
        Positional[str],
        arg(metavar="TASK", help="a task (see `awavo list`), a Gymnasium id, MODULE:CLASS of your own, or bridge:ID"),
    ]
    out: Annotated[Path | None, arg(help="run folder (default runs/TASK-ALGO)")] = None
    algo: Annotated[str, arg(help="algorithm (see `awavo list`)")] = "orpo-dr"
    model: Annotated[
        str | None,
        arg(help="what AWaVO plans in: learnt, or physics (the task's own, its parameters identified from the data)"),
    ] = None
    preset: Annotated[str, arg(help="set of defaults: default or paper")] = "default"
    steps: Annotated[
        str | None, arg(help="environment steps of each seed, e.g. 200000 or 2e5 (default: the algorithm's, see docs)")
    ] = None
    seeds: Annotated[int | None, arg(help="number of seeds (default: 10; 2 where planning meets a CPU)")] = None
    seed: Annotated[int, arg(help="number of the first seed")] = 0
    limits: Annotated[LimitList, arg(help="cost limits, one per cost (default: the task's)")] = ()
    sum_limit: Annotated[float | None, arg(help="one limit on the sum of all costs")] = None
    cost_fn: Annotated[str | None, arg(help="MODULE:FUNCTION with the costs of a Gymnasium environment")] = None
    option: Annotated[Pairs, arg(help="setting of the algorithm; repeatable")] = ()
    task_option: Annotated[Pairs, arg(help="option of the task; repeatable")] = ()
    seed_axis: Annotated[str, arg(help="auto, map or vmap")] = "auto"
    checkpoint_seconds: Annotated[float, arg(help="least time between checkpoints, in seconds")] = 20.0
    dry_run: Annotated[bool, arg(help="print the resolved configuration and stop")] = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        return self.out or Path("runs") / f"{self.task.replace('/', '-').replace(':', '-')}-{self.algo}"

    def run(self) -> int:
        """Train and print where the run lies; exit code 130 when it was interrupted."""
        # Before anything that takes time: an import may swallow the exception of a Ctrl-C, but not this flag.
        with stop_flag() as stopping:
            return self._train(stopping)

    def _train(self, stopping: Callable[[], bool]) -> int:
        from awavo.runs.problem import check_names, check_option_names, resolve_config

        check_names(self.task, self.algo, self.preset)
        check_seconds("--checkpoint-seconds", self.checkpoint_seconds)
        config = self._config()  # refuses what can be refused before jax is loaded
        check_option_names(self.algo, config.algo_options)
        out = self.folder
        require_writable(out)
        self.device.apply()
        import jax

        from awavo.runs import api
        from awavo.runs.budget import default_budget, guess_time
        from awavo.runs.progress import follow

        usual = default_budget(self.algo, jax.default_backend(), self.task)
        config = dataclasses.replace(
            config,
            steps=usual.steps if self.steps is None else config.steps,
            seeds=usual.seeds if self.seeds is None else config.seeds,
        )
        config = resolve_config(config)
        if self.dry_run:
            return _dry_run(config)
        if stopping():
            raise KeyboardInterrupt
        began = time.perf_counter()
        updates = api.train_iter(config, out, checkpoint_seconds=self.checkpoint_seconds)
        platform = jax.default_backend()
        last = follow(updates, expected=lambda first: guess_time(config, platform, first.small), quiet=self.json)
        wall = time.perf_counter() - began
        finished = last.phase == "finished"
        if self.json:
            steps = (last.env_steps - last.resumed_at) * config.seeds
            print_json({
                "run": str(out), "task": config.task, "algo": config.algo, "seeds": config.seeds,
                "env_steps": last.env_steps, "wall_s": wall, "compile_s": last.compile_s,
                "steps_per_second": steps / max(wall - last.compile_s, 1e-9), "resumed_at": last.resumed_at,
                "finished": finished,
            })  # fmt: skip
        elif finished:
            print(f"done: {out}  ({wall:.0f} s). Next: awavo evaluate {out}")
        else:
            saved = "saved. The same command resumes from there." if last.env_steps else "nothing was saved yet."
            print(f"stopped at {last.env_steps} steps; {saved}", file=sys.stderr)
        return 0 if finished else 130

    def _config(self) -> TrainConfig:
        config = TrainConfig(
            task=self.task, algo=self.algo, seed=self.seed, preset=self.preset,
            steps=TrainConfig.steps if self.steps is None else _read_steps(self.steps),
            seeds=TrainConfig.seeds if self.seeds is None else self.seeds,
            task_options=read_pairs(self.task_option, "--task-option"),
            algo_options=self._options(), cost_limits=read_limits(self.limits),
            cost_sum_limit=self.sum_limit, cost_fn=self.cost_fn, seed_axis=self.seed_axis,
        )  # fmt: skip
        return check_config(config)

    def _options(self) -> Fields:
        """The algorithm's settings; `--model` is the setting `planning` by the name of what is planned in."""
        options = read_pairs(self.option, "--option")
        if self.model is None:
            return options
        if self.model not in PLANNED_IN:
            raise ConfigError(f"--model {self.model} is not one of {', '.join(PLANNED_IN)}.")
        if self.algo != "awavo":
            raise ConfigError(f"--model is for the algorithm that plans in one, awavo: '{self.algo}' does not.")
        if "planning" in options:
            raise ConfigError(
                f"--model {self.model} and planning={options['planning']} were given: give one of the two."
            )
        return {**options, "planning": PLANNED_IN[self.model]}


def _read_steps(text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = math.nan
    if not 1 <= value < math.inf or value != int(value):
        raise ConfigError(f"--steps {text} is not a whole number >= 1.")
    return int(value)


def _dry_run(config: TrainConfig) -> int:
    """Print what would be trained; the problem is built, so that everything in it is checked."""
    from awavo.runs.memory import check_training
    from awavo.runs.problem import build_problem

    problem = build_problem(config)
    check_training(config, problem)
    per_iteration = problem.settings.num_envs * problem.settings.rollout_length
    iterations = -(-config.steps // per_iteration)
    print_json({
        "config": dataclasses.asdict(config), "cost_names": problem.spec.cost_names,
        "cost_limits": problem.spec.cost_limits, "steps_per_iteration": per_iteration, "iterations": iterations,
        "env_steps": iterations * per_iteration,
    })  # fmt: skip
    return 0
