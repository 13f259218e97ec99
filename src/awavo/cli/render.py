"""`awavo render`: one episode of a run or of a task, as data, picture and video with the costs counting up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from awavo.checks import LARGEST_SEED, check_range
from awavo.cli.common import Device, Json, Pairs, Trust, print_json, print_notes, read_pairs
from awavo.runs.progress import doing

__all__ = ["Render"]


@dataclass
class Render:
    """Options of `awavo render`."""

    target: Annotated[Positional[str], arg(metavar="RUN|TASK", help="run folder, or the name of a built-in task")]
    out: Annotated[Path | None, arg(help="folder (default: the run's, or renders/TASK)")] = None
    policy: Annotated[str, arg(help="of a TASK: random, or for the quadrotor track or awavo")] = "random"
    seed: Annotated[int, arg(help="seed of the episode")] = 0
    steps: Annotated[int | None, arg(help="steps to play (default: to the end of the episode)")] = None
    video: Annotated[str, arg(help="gif, mp4 (needs ffmpeg, or the extra render) or none")] = "gif"
    task_option: Annotated[Pairs, arg(help="option of the task; repeatable")] = ()
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write the record, picture.png and the video, and print where they are."""
        check_range("--seed", self.seed, 0, LARGEST_SEED)
        check_range("--steps", 1 if self.steps is None else self.steps, 1, 1_000_000)
        Device(device="cpu").apply()
        from awavo.registry import HOST_TASKS, TASKS
        from awavo.runs import api
        from awavo.runs.render import check_request, render_run, render_task

        check_request(self.video, self.steps)
        with doing("rendering an episode"):
            if self.target in TASKS or self.target in HOST_TASKS:
                made = render_task(
                    self.target, self.out or Path("renders") / self.target, policy=self.policy, seed=self.seed,
                    steps=self.steps, video=self.video, options=read_pairs(self.task_option, "--task-option"),
                )  # fmt: skip
            else:
                run = api.load(self.target, trust=self.trust)
                made = render_run(run, self.out, seed=self.seed, steps=self.steps, video=self.video)
        print_notes(made.notes)
        if self.json:
            shown = {key: made.record[key] for key in ("task", "seed", "ended", "return", "costs")}
            print_json({**shown, "written": made.written})
        else:
            print("\n".join(map(str, made.written)))
        return 0
