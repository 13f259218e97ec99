"""`awavo explain`: why a controller decided so, from a flight record, a PX4 log, a run, or a task flown now."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from awavo.checks import check_range
from awavo.cli.common import Device, Json, Trust, print_json
from awavo.errors import InputError
from awavo.runs.progress import doing

if TYPE_CHECKING:
    from awavo.runs.explain import Explanation

__all__ = ["Explain"]

# What each kind of target is asked with; the other options would change nothing.
RECORD = frozenset({"factor", "every", "threshold"})
USED = {
    "a task flown now": RECORD | {"seed", "steps"},
    "a flight record": RECORD,
    "a PX4 log": frozenset({"mass"}),
    "a run folder": frozenset({"episodes"}),
}


@dataclass
class Explain:
    """Options of `awavo explain`."""

    target: Annotated[
        Positional[str],
        arg(metavar="FLIGHT.mcap|FLIGHT.ulg|RUN|FT3", help="decision record, PX4 log, run folder, or task to fly now"),
    ]
    out: Annotated[Path | None, arg(help="folder (default: beside the file, in the run, or runs/explain-TASK)")] = None
    factor: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME", help="wind, obstacles, drag, mass or obstacle:N; repeatable (default: wind, obstacles)"),
    ] = ()
    every: Annotated[
        int | None, arg(help="explain every so many decisions (default: every fifth, at most 240 of a flight)")
    ] = None
    threshold: Annotated[float, arg(help="influence from which a stretch of time is listed")] = 0.15
    seed: Annotated[int, arg(help="seed of a task flown now")] = 0
    steps: Annotated[int, arg(help="decisions of a task flown now")] = 600
    episodes: Annotated[int, arg(help="episodes of each seed of a RUN")] = 8
    mass: Annotated[float | None, arg(help="mass in kg, for forces from a PX4 log in N")] = None
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write explanation.json, .csv and .html, print the ranking; exit code 1 where a record does not replay."""
        check_range("--episodes", self.episodes, 1, 10_000)
        if not Path(self.target).exists() and not self.target.startswith("FT"):
            raise InputError(
                f"'{self.target}': there is no such file or folder; expected FLIGHT.mcap, FLIGHT.ulg, a RUN or FT3."
            )
        Device(device="cpu").apply()
        with doing("explaining"):
            found = self._explain()
        if self.json:
            print_json(found.summary)
        else:
            print("\n".join(found.lines))
        return 0 if found.replays else 1

    def _explain(self) -> Explanation:
        from awavo.runs.explain import explain_run_folder
        from awavo.runs.explain_flight import explain_record, fly_and_explain
        from awavo.runs.explain_ulog import explain_ulog
        from awavo.tasks.quadrotor.flight import FLIGHT_TASKS

        path = Path(self.target)
        if self.target in FLIGHT_TASKS:
            self._refuse_unused("a task flown now")
            return fly_and_explain(
                self.target, self.out, seed=self.seed, steps=self.steps, factors=self.factor, every=self.every,
                threshold=self.threshold,
            )  # fmt: skip
        if path.is_dir():
            from awavo.runs import api
            from awavo.training.compilation import enable_cache

            self._refuse_unused("a run folder")
            enable_cache()
            return explain_run_folder(api.load(path, trust=self.trust), self.out, episodes=self.episodes)
        if path.suffix == ".mcap":
            self._refuse_unused("a flight record")
            return explain_record(path, self.out, factors=self.factor, every=self.every, threshold=self.threshold)
        if path.suffix == ".ulg":
            self._refuse_unused("a PX4 log")
            return explain_ulog(path, self.out, mass=self.mass)
        if path.exists():
            raise InputError(f"'{self.target}' is neither .mcap nor .ulg nor a run folder.")
        raise InputError(
            f"'{self.target}': there is no such file or folder; expected FLIGHT.mcap, FLIGHT.ulg, a RUN or FT3."
        )

    def _refuse_unused(self, kind: str) -> None:
        """Refuse an option that this kind of target does not have: its answer would be to another question."""
        for option in fields(self):
            asked = getattr(self, option.name) != option.default
            if asked and option.name in frozenset().union(*USED.values()) - USED[kind]:
                has = ", ".join(f"--{name}" for name in sorted(USED[kind]))
                raise InputError(f"--{option.name} does nothing for {kind}, which has {has}: leave it out.")
