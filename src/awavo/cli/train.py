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

from awavo.cli.common import Device, Json, Pairs, print_json, read_pairs
from awavo.config import TrainConfig
from awavo.errors import ConfigError
from awavo.interruption import stop_flag

__all__ = ["Train"]


@dataclass
class Train:
    """Options of `awavo train`."""

    task: Annotated[
        Positional[str], arg(metavar="TASK", help="a task (see `awavo list`), a Gymnasium id, or bridge:ID")
    ]
    out: Annotated[Path | None, arg(help="run folder (default runs/TASK-ALGO)")] = None
    algo: Annotated[str, arg(help="algorithm (see `awavo list`)")] = "orpo-dr"
    preset: Annotated[str, arg(help="set of defaults: default or paper")] = "default"
    steps: Annotated[str, arg(help="environment steps of each seed, e.g. 200000 or 2e5")] = "200000"
    seeds: Annotated[int, arg(help="number of seeds")] = 10
    seed: Annotated[int, arg(help="number of the first seed")] = 0
    limits: Annotated[tuple[float, ...], arg(help="cost limits, one per cost (default: the task's)")] = ()
    sum_limit: Annotated[float | None, arg(help="one limit on the sum of all costs")] = None
    cost_fn: Annotated[str | None, arg(help="MODULE:FUNCTION with the costs of a Gymnasium environment")] = None
    option: Annotated[Pairs, arg(help="setting of the algorithm; repeatable")] = ()
    task_option: Annotated[Pairs, arg(help="option of the task; repeatable")] = ()
    seed_axis: Annotated[str, arg(help="auto, map or vmap")] = "auto"
    checkpoint_seconds: Annotated[float, arg(help="least time between checkpoints")] = 20.0
    dry_run: Annotated[bool, arg(help="print the resolved configuration and stop")] = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Train and print where the run lies; exit code 130 when it was interrupted."""
        # Before anything that takes time: an import may swallow the exception of a Ctrl-C, but not this flag.
        with stop_flag() as stopping:
            return self._train(stopping)

    def _train(self, stopping: Callable[[], bool]) -> int:
        self.device.apply()
        from awavo.cli.show import show_progress
        from awavo.runs import api
        from awavo.runs.problem import resolve_config

        config = resolve_config(self._config())
        if self.dry_run:
            return _dry_run(config)
        if stopping():
            raise KeyboardInterrupt
        out = self.out or Path("runs") / f"{self.task.replace('/', '-').replace(':', '-')}-{self.algo}"
        began = time.perf_counter()
        last = show_progress(api.train_iter(config, out, checkpoint_seconds=self.checkpoint_seconds), quiet=self.json)
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
            print(f"stopped at {last.env_steps} steps; saved. The same command resumes from there.", file=sys.stderr)
        return 0 if finished else 130

    def _config(self) -> TrainConfig:
        return TrainConfig(
            task=self.task, algo=self.algo, steps=_read_steps(self.steps), seeds=self.seeds, seed=self.seed,
            preset=self.preset, task_options=read_pairs(self.task_option, "--task-option"),
            algo_options=read_pairs(self.option, "--option"), cost_limits=self.limits or None,
            cost_sum_limit=self.sum_limit, cost_fn=self.cost_fn, seed_axis=self.seed_axis,
        )  # fmt: skip


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
