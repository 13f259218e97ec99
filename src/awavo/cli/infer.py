"""`awavo infer SYSTEM`: states, also those never observed, and parameters from noisy observations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, Positional, arg

from awavo.checks import LARGEST_SEED, check_range
from awavo.cli.common import Device, Json, print_json
from awavo.errors import InputError, UnknownNameError, did_you_mean
from awavo.files import require_writable
from awavo.types import Fields

if TYPE_CHECKING:
    from awavo.assimilation.observation_files import Observations

__all__ = ["Infer"]

FORCING = 8.0
"""The forcing of the ring where it is known."""
FAILED_SHARE = 0.02
"""Share of the sites that may keep a misfit before the verdict is negative."""
MOST_STATES = 10_000_000
"""Sites of the largest ring of a twin experiment."""
BUILT_IN = ("lorenz96", "lorenz63", "pendulum", "double-pendulum", "ks")
SAME_TIME = 0.01
"""Share of an interval by which the times of a file may be off."""
ONLY_LORENZ96 = {"regime": "G", "unobserved": "1/3", "forcing": "known", "guess": 7.0, "rounds": 8, "memory_mb": 4096.0}
"""Options that mean nothing for another system, and their defaults."""


@dataclass
class Infer:
    """Options of `awavo infer`."""

    system: Annotated[
        Positional[str],
        arg(metavar="SYSTEM", help=f"{', '.join(BUILT_IN)}, or MODULE:SYSTEM of your own, with --data"),
    ]
    states: Annotated[
        int | None, arg(help="sites of a twin experiment: of the ring (default 50), or of ks (default 128)")
    ] = None
    regime: Annotated[str, arg(help="G (noise 1, every 0.125) or D (variance 0.1, every 0.1)")] = "G"
    unobserved: Annotated[str, arg(help="share of the sites that is never observed")] = "1/3"
    forcing: Annotated[str, arg(help="known (8) or infer")] = "known"
    guess: Annotated[float, arg(help="where the inference of the forcing starts")] = 7.0
    seed: Annotated[int, arg(help="seed of the twin experiment and of the search")] = 0
    data: Annotated[
        Path | None, arg(help="own observations: .npz (observed; truth, times, noise), .parquet or .csv")
    ] = None
    noise: Annotated[
        float | None, arg(help="standard deviation of the observations' noise (default: the file's, or the regime's)")
    ] = None
    start: Annotated[float | None, arg(help="time of the prior (default: that of the first row)")] = None
    starts: Annotated[int, arg(help="descents from different starts at most (not lorenz96)")] = 12
    out: Annotated[Path | None, arg(help="folder (default runs/SYSTEM-STATES-seedSEED)")] = None
    draws: Annotated[int, arg(help="members of the posterior ensemble")] = 16
    rounds: Annotated[int, arg(help="rounds of the search for modes at most")] = 8
    dtype: Annotated[str, arg(help="float32 or float64")] = "float32"
    memory_mb: Annotated[float, arg(help="memory for the patches solved at once")] = 4096.0
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False
    folder: Path | None = field(default=None, init=False)

    def run(self) -> int:
        """Write the posterior, the summary and the page; exit code 1 when some region kept a misfit."""
        self.device.apply()
        self._check()
        return self._run_lorenz96() if self.system == "lorenz96" else self._run_system()

    def _run_system(self) -> int:
        """Any other system: its own engine, the same folder and page; exit code 1 when the posterior does not fit."""
        from awavo.assimilation.system import num_states
        from awavo.runs.infer_system import infer_system
        from awavo.runs.system_source import read_problem
        from awavo.training.compilation import enable_cache

        enable_cache()
        problem = read_problem(self.system, self.data, self.noise, self.start, self.seed, self.states)
        short = self.system.replace(":", "-")
        self.folder = out = self.out or Path("runs") / f"{short}-{num_states(problem.system)}-seed{self.seed}"
        require_writable(out)
        _, summary = infer_system(
            problem.system, problem.observed, problem.noise, times=problem.times, start=problem.start,
            truth=problem.truth, theta_truth=problem.theta, num_draws=self.draws, most_starts=self.starts,
            seed=self.seed, out=out, name=self.system,
        )  # fmt: skip
        summary |= {"run": str(out), "report": str(out / "report.html")}
        if self.json:
            print_json(summary)
        else:
            _show_system(summary)
        return 0 if summary["fit"]["good"] else 1

    def _run_lorenz96(self) -> int:
        states = 50 if self.states is None else self.states
        import jax

        from awavo.assimilation.engine import Settings, System
        from awavo.assimilation.modes import SearchSettings, default_slots
        from awavo.assimilation.observation_files import read_observations
        from awavo.assimilation.observations import check_observations
        from awavo.runs.infer import infer_trajectories
        from awavo.runs.memory import check_inference
        from awavo.tasks.lorenz96 import REGIMES, TIME_STEP, lorenz96_system, twin_experiment
        from awavo.training.compilation import enable_cache

        enable_cache()
        if self.regime not in REGIMES:
            raise InputError(f"--regime {self.regime} is not one of {', '.join(REGIMES)}.")
        jax.config.update("jax_enable_x64", self.dtype == "float64")
        regime = REGIMES[self.regime]
        if self.data is None:
            check_inference(states, regime.num_times, self.draws, self.dtype)
            unobserved = _read_share(self.unobserved)
            twin = twin_experiment(states, regime=self.regime, unobserved=unobserved, seed=self.seed)
            observed, truth, began = twin.observed, twin.truth, 0.0
            noise = regime.noise if self.noise is None else self.noise
        else:
            read = read_observations(self.data)
            observed, truth = read.observed, read.truth
            began = self._first_time(read, regime.steps * TIME_STEP)
            noise = self.noise if self.noise is not None else regime.noise if read.noise is None else read.noise
        observed = check_observations(observed, observed.shape[-1:], noise)
        # Squared in the misfit, and all of it in single precision.
        used = np.broadcast_to(noise, observed.shape)[np.isfinite(observed)]
        for end in (used.min(), used.max()):
            check_range("the noise", float(end), 1e-6, 1e6)
        sites = observed.shape[1]
        infer_forcing = self.forcing == "infer"
        system = System(**lorenz96_system(sites, regime.steps, self.guess if infer_forcing else FORCING))
        search = SearchSettings(rounds=self.rounds, slots=default_slots(sites, jax.default_backend()))
        settings = Settings(
            infer_theta=infer_forcing, num_draws=self.draws, memory_mb=self.memory_mb, dtype=self.dtype,
            seed=self.seed, search=search,
        )  # fmt: skip
        self.folder = out = self.out or Path("runs") / f"lorenz96-{sites}-seed{self.seed}"
        require_writable(out)
        made = infer_trajectories(
            system, observed, noise, settings=settings, truth=truth, out=out, name="lorenz96",
            times=began + np.arange(len(observed) + 1) * regime.steps * TIME_STEP,
        )  # fmt: skip
        summary = made.summary | {"run": str(out), "report": str(out / "report.html")}
        misfits = int((made.posterior.chi2 > search.threshold * 1.2).sum())
        if self.json:
            print_json(summary | {"sites_with_misfit": misfits})
        else:
            _show(summary, misfits)
        return 1 if misfits > FAILED_SHARE * sites else 0

    def _first_time(self, read: Observations, interval: float) -> float:
        """When the prior holds: one interval before the first row of the file, whose times must be the regime's."""
        if read.times is None:
            return 0.0
        from awavo.assimilation.observations import read_numbers

        times = read_numbers(read.times, "the times").reshape(-1)
        if len(times) != len(read.observed):
            raise InputError(f"there are {len(times)} times for {len(read.observed)} rows of observations: give each.")
        steps = np.diff(times, prepend=times[:1] - interval)
        if not (np.abs(steps - interval) <= SAME_TIME * interval).all():
            raise InputError(
                f"the times of --data {self.data} are not {interval:g} apart: --regime {self.regime} has a row for "
                "each interval (all NaN where nothing was seen)."
            )
        return float(times[0] - interval)

    def _check(self) -> None:
        """Refuse what can be refused before jax is loaded."""
        if self.system not in BUILT_IN and ":" not in self.system:
            raise UnknownNameError(
                f"no system is named '{self.system}'.{did_you_mean(self.system, BUILT_IN)} Your own is MODULE:NAME."
            )
        if ":" in self.system and self.data is None:
            raise InputError(f"{self.system} needs --data FILE with its observations.")
        if self.system != "lorenz96":
            for name, default in ONLY_LORENZ96.items():
                if getattr(self, name) != default:
                    raise InputError(f"--{name.replace('_', '-')} is an option of lorenz96 only: leave it out.")
        elif self.start is not None:
            raise InputError("--start is no option of lorenz96: its prior holds one interval before the first row.")
        if self.forcing not in ("known", "infer"):
            raise InputError(f"--forcing {self.forcing} is not one of known, infer.")
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"--dtype {self.dtype} is not one of float32, float64.")
        if not self.memory_mb > 0:
            raise InputError(f"--memory-mb {self.memory_mb:g} must be above 0.")
        check_range("--memory-mb", self.memory_mb, 0.0, 1e9)
        if self.states is not None and self.states > MOST_STATES:
            shown = f"{self.states:.3g}" if self.states < 10**18 else "(a huge number)"
            raise InputError(f"--states {shown} is above {MOST_STATES:g}: a larger ring does not fit.")
        check_range("--seed", self.seed, 0, LARGEST_SEED)
        check_range("--draws", self.draws, 0, 10_000)
        check_range("--rounds", self.rounds, 0, 10_000)
        check_range("--starts", self.starts, 1, 10_000)
        check_range("--guess", self.guess, -1e3, 1e3)
        if self.noise is not None and self.noise > 0:
            check_range("--noise", self.noise, 1e-6, 1e6)
        _read_share(self.unobserved)


def _read_share(text: str) -> float:
    """A share such as 1/3 or 0.25; its parts are read as floats, whose size no exponent can blow up."""
    over, slash, under = text.partition("/")
    try:
        value = float(over) / (float(under) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if math.isnan(value):
        raise InputError(f"--unobserved {text} is not a share such as 1/3 or 0.25.")
    if not 0 <= value < 1:
        raise InputError(f"--unobserved {text} is not in [0, 1).")
    return value


def _show(summary: Fields, misfits: int) -> None:
    scores = summary.get("scores")
    spent = f"{summary['solve_s']:.2f} s ({summary['compile_s']:.0f} s to compile)"
    print(f"{summary['states']} states, {summary['times']} times: {spent}")
    if scores:
        print(
            f"never observed: RMSE {scores['rmse']:.3f}, lost {scores['lost']:.2%}, "
            f"inside 90% intervals {scores['coverage90']:.1%}"
        )
    if summary["theta_inferred"]:
        (low, high), value = summary["theta_interval"][0], summary["theta"][0]
        print(f"forcing {value:.3f}, 90% interval [{low:.3f}, {high:.3f}]")
    print(f"largest local chi2 {summary['largest_chi2']:.2f}; {misfits} sites keep a misfit")
    if summary["not_believed"]:
        print(f"note: {summary['not_believed']} sites are not believed: their intervals are the prior's")
    print(f"posterior and page: {summary['report']}")


def _show_system(summary: Fields) -> None:
    scores, fit = summary.get("scores"), summary["fit"]
    print(f"{summary['states']} states, {summary['times']} times: {summary['solve_s']:.2f} s (compiling included)")
    if scores:
        print(f"{summary['scored']}: RMSE {scores['rmse']:.4g}, inside 90% intervals {scores['coverage90']:.1%}")
    if summary["theta_inferred"]:
        names = summary["theta_names"] or [f"theta[{i}]" for i in range(len(summary["theta"]))]
        for name, value, (low, high) in zip(names, summary["theta"], summary["theta_interval"], strict=True):
            print(f"{name} {value:.4g}, 90% interval [{low:.4g}, {high:.4g}]")
    for line in fit["problems"]:
        print(f"NOT TO BE BELIEVED: {line}")
    for line in fit["notes"]:
        print(f"note: {line}")
    chi2 = f"{fit['chi2']:.2f}" if fit["chi2"] < 1e4 else f"{fit['chi2']:.3g}"
    print(f"chi2 {chi2} per observation; posterior and page: {summary['report']}")
