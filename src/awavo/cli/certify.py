"""`awavo certify`: certificates of a run, a second look at stored ones, or the proof of an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from awavo.checks import LARGEST_SEED, check_range
from awavo.cli.common import MOST_EPISODES, Device, Json, Trust, check_run_folder, print_json, print_notes
from awavo.errors import InputError, confidence_text, share_text
from awavo.runs.progress import doing
from awavo.types import FieldsView

__all__ = ["Certify"]

STYLES = {"proved": "green", "supported": "green", "undecided": "yellow", "refuted": "red"}


@dataclass
class Certify:
    """Options of `awavo certify`."""

    target: Annotated[Positional[str], arg(metavar="RUN|operator", help="run folder, or the word operator")]
    name: Annotated[
        Positional[str | None], arg(metavar="NAME", help="with operator: logistic, log, affine, power or MODULE:NAME")
    ] = None
    episodes: Annotated[int, arg(help="fresh episodes of each seed (at most, with --anytime)")] = 1_000
    delta: Annotated[float, arg(help="all bounds hold together with probability 1 - delta")] = 0.05
    anytime: Annotated[
        FlagCreatePairsOff[bool], arg(help="stop as soon as every policy is decided, as by default where it plans")
    ] = False
    no_anytime: Annotated[FlagCreatePairsOff[bool], arg(help="play all episodes, also of a policy that plans")] = False
    max_violation: Annotated[float | None, arg(help="largest accepted P(cost > limit)")] = None
    seed: Annotated[int, arg(help="seed of the fresh episodes")] = 2_000_003
    recheck: Annotated[bool, arg(help="compute the stored certificates again and compare")] = False
    temperature: Annotated[float, arg(help="with operator log: lam as a share of the range")] = 0.15
    kappa: Annotated[float, arg(help="with operator power: the exponent")] = 0.1
    trust: Trust = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Certify; exit code 1 when no policy is certified safe, something is refuted, or a recheck differs."""
        self._check()
        if self.target != "operator":
            if self.name is not None:
                raise InputError(f"'{self.name}' was not expected: give one RUN, or `operator NAME`.")
            check_run_folder(self.target)
        self.device.apply()
        if self.target == "operator":
            with doing("proving"):
                return self._prove_operator()
        from awavo.results.certificate_record import favourable
        from awavo.runs import api
        from awavo.training.compilation import enable_cache

        enable_cache()
        run = api.load(self.target, trust=self.trust)
        print_notes(run.notes)
        if self.recheck:
            return self._show_recheck(run.path, run.recheck())
        anytime = self.anytime if self.anytime or self.no_anytime else None
        result = run.certify(
            episodes=self.episodes, delta=self.delta, anytime=anytime, max_violation=self.max_violation, seed=self.seed
        )
        page = run.report()
        if self.json:
            print_json({"run": self.target, "report": str(page), "favourable": favourable(result), **result})
        else:
            _show_certificates(result, self.target, page)
        return 0 if favourable(result) else 1

    def _check(self) -> None:
        """Refuse what can be refused before jax is loaded."""
        if self.anytime and self.no_anytime:
            raise InputError("--anytime and --no-anytime were given: give one of the two, or none.")
        check_range("--episodes", max(self.episodes, 20), 20, MOST_EPISODES)  # too few are refused with the plan
        check_range("--seed", self.seed, 0, LARGEST_SEED - MOST_EPISODES)  # every batch of episodes adds one
        # Smaller shares of delta than this are zero in the arithmetic of the bounds.
        check_range("--delta", self.delta, 1e-12, 1 - 1e-12)
        # The ranges that training accepts for the same two settings.
        check_range("--temperature", self.temperature, 1e-6, 1e3)
        check_range("--kappa", self.kappa, 1e-3, 1e3)

    def _show_recheck(self, path: Path, differences: Mapping[str, Sequence[str]]) -> int:
        if self.json:
            print_json({"run": str(path), "agrees": not differences, "differences": differences})
        else:
            for name, found in differences.items():
                print(f"{name}: {'; '.join(found)}")
            verdict = "the record does NOT hold up" if differences else "every certificate was found again"
            print(f"{path}: {verdict}")
        return 1 if differences else 0

    def _prove_operator(self) -> int:
        from awavo.formal.operator_proof import certify_operator
        from awavo.inference.operators import make_operator

        if self.name is None:
            raise InputError("`awavo certify operator` needs a name: logistic, log, affine, power or MODULE:NAME.")
        found = certify_operator(make_operator(self.name, temperature=self.temperature, kappa=self.kappa))
        if self.json:
            print_json({"operator": self.name, "certificates": [c.as_dict() for c in found]})
        else:
            for c in found:
                print(f"{c.verdict:<10} {c.claim}\n{'':<10} {c.reason}")
        return 1 if any(c.verdict == "refuted" for c in found) else 0


def _show_certificates(result: FieldsView, run: str, page: Path) -> None:
    """Print one line per certificate and the statement about the delivered policy."""
    from rich.console import Console
    from rich.table import Table

    table = Table("certificate", "verdict", "found", title=f"certificates of {run}")
    for entry in result["certificates"]:
        style = STYLES[entry["verdict"]]
        # rich would read a bracket in the reason as a style
        table.add_row(entry["name"], f"[{style}]{entry['verdict']}[/{style}]", entry["reason"].replace("[", "\\["))
    console = Console()
    console.print(table)
    console.print(_counts("the policies and their limits", result["counts"]["policy"]))
    console.print(_counts("the method and its parts, not the limits", result["counts"]["method"]))
    seed, plan = result["delivered_seed"], result["plan"]
    if seed is None:
        console.print("no policy is certified to keep all its limits.", style="red")
    else:
        entry = next(c for c in result["certificates"] if c["name"] == f"safety.seed_{seed}")
        console.print(
            f"deliver seed {seed}: certified to keep every limit on its mean episode cost, "
            f"{confidence_text(plan['delta'])} confidence jointly over all seeds and costs "
            f"({result['episodes'][str(seed)]} fresh episodes)."
        )
        for row in entry["details"]["costs"]:
            console.print(
                f"single episodes: {row['violation']:.1%} of them are above the limit {row['limit']:g} of "
                f"{row['cost']}, at most {share_text(row['violation_bounds'][1], True)} with that confidence.",
                style="yellow" if row["violation"] else "",
                highlight=False,
            )
    console.print(
        f"page: {page}   ({result['wall_s']:.0f} s)   check again: awavo certify {run} --recheck", style="dim"
    )


def _counts(about: str, counts: Mapping[str, int]) -> str:
    found = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    return f"claims about {about}: {found or 'none'}."
