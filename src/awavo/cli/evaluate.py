"""`awavo evaluate`: fresh episodes of every seed of a run, greedy and stochastic."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.checks import LARGEST_SEED, check_range
from awavo.cli.common import MOST_EPISODES, Device, Json, Limits, Trust, check_run_folder, print_json, print_notes

__all__ = ["Evaluate"]


@dataclass
class Evaluate:
    """Options of `awavo evaluate`."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN", help="run folder")]
    episodes: Annotated[int | None, arg(help="episodes of each seed (default: 100, behind a bridge 10)")] = None
    seed: Annotated[int, arg(help="seed of the evaluation")] = 1_000_003
    stochastic: Annotated[bool, arg(help="report the stochastic policy (both are always written)")] = False
    trust: Trust = False
    planner: Annotated[bool, arg(help="decide by inference where the algorithm can; else by its actor alone")] = True
    limits: OmitArgPrefixes[Limits] = field(default_factory=Limits)
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Evaluate, write evaluation.json, print a table; exit code 1 unless enough seeds are within limits."""
        rule = self.limits.rule()
        if self.episodes is not None:
            check_range("--episodes", self.episodes, 1, MOST_EPISODES)
        check_range("--seed", self.seed, 0, LARGEST_SEED)
        check_run_folder(self.run_folder)
        self.device.apply()
        from awavo.cli.show import show_evaluation
        from awavo.runs import api
        from awavo.training.compilation import enable_cache

        enable_cache()
        run = api.load(self.run_folder, trust=self.trust)
        print_notes(run.notes)
        result = run.evaluate(self.episodes, seed=self.seed, planner=self.planner, rule=rule)
        policy = "stochastic" if self.stochastic else "greedy"
        if self.json:
            print_json({"run": str(self.run_folder), "policy": policy, **result[policy]})
        else:
            show_evaluation(result, run.config.task, run.config.algo, rule)
        return 0 if rule.holds(result[policy]["feasible_seeds"], len(run.seeds)) else 1
