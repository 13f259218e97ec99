"""`awavo check-env`: what is wrong with an environment, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from awavo.checks import check_range
from awavo.cli.common import Json, LimitList, Pairs, print_json, read_limits, read_pairs
from awavo.errors import plural
from awavo.runs.progress import doing

__all__ = ["CheckEnv"]


@dataclass
class CheckEnv:
    """Options of `awavo check-env`."""

    env: Annotated[Positional[str], arg(metavar="ID", help="task name, Gymnasium id, or MODULE:CLASS of your own")]
    cost_fn: Annotated[str | None, arg(help="MODULE:FUNCTION with the costs")] = None
    limits: Annotated[LimitList, arg(help="cost limits, one per cost")] = ()
    steps: Annotated[int, arg(help="random steps to take")] = 1000
    task_option: Annotated[Pairs, arg(help="option of the environment; repeatable")] = ()
    json: Json = False

    def run(self) -> int:
        """Print the findings; exit code 1 if there is an error among them."""
        check_range("--steps", self.steps, 1, 10_000_000)
        from awavo.runs.problem import import_function
        from awavo.tasks.check_env import check_env

        options = read_pairs(self.task_option, "--task-option")
        limits = read_limits(self.limits)
        cost_fn = import_function(self.cost_fn)
        with doing(f"checking {self.env}"):
            findings = check_env(self.env, cost_fn=cost_fn, cost_limits=limits, steps=self.steps, env_options=options)
        failed = any(f.level == "error" for f in findings)
        if self.json:
            print_json({"env": self.env, "ok": not failed, "findings": [f._asdict() for f in findings]})
        else:
            for f in findings:
                print(f"{f.level}: {f.problem}\n    -> {f.remedy}")
            print(
                f"{self.env}: {'not usable yet' if failed else 'ready to train'} ({plural(len(findings), 'finding')})"
            )
        return 1 if failed else 0
