"""`awavo demo`: train, evaluate, report, explain: the whole tour in a few minutes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from awavo.cli.common import Device, Json, print_json
from awavo.interruption import stop_flag

__all__ = ["Demo"]


@dataclass
class Demo:
    """Options of `awavo demo`."""

    out: Annotated[Path, arg(help="run folder")] = Path("runs/demo")
    steps: Annotated[int, arg(help="environment steps of each seed")] = 120_000
    seeds: Annotated[int, arg(help="number of seeds")] = 4
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        return self.out

    def run(self) -> int:
        """Run the tour."""
        self.device.apply()
        began = time.perf_counter()
        with stop_flag():  # before jax is imported, as in `awavo train`
            from awavo.cli.show import show_evaluation
            from awavo.runs import api
            from awavo.runs.explain import explain_run_folder
            from awavo.runs.progress import follow

            config = api.configure("cartpole", "orpo-dr", steps=self.steps, seeds=self.seeds)
            last = follow(api.train_iter(config, self.out), quiet=self.json)
        if last.phase != "finished":
            saved = "saved. The same command resumes from there." if last.env_steps else "nothing was saved yet."
            print(f"stopped; {saved}", file=sys.stderr)
            return 130
        run = api.load(self.out)
        result = run.evaluate()
        page = run.report()
        explanation = explain_run_folder(run)
        wall = time.perf_counter() - began
        if self.json:
            made = {"run": str(self.out), "report": str(page), "wall_s": wall}
            print_json({**made, **result["greedy"], "explanation": explanation.summary["factors"]})
        else:
            show_evaluation(result, config.task, config.algo)
            print("why the policies act so, with a push halfway through each episode:")
            print("\n".join(f"  {line}" for line in explanation.lines))
            print(f"report page: {page}   ({wall:.0f} s in all)")
        return 0
