"""`awavo infer lorenz96`: the states of the ring, the unobserved ones too, from noisy observations."""

from __future__ import annotations

import json
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import InputError

__all__ = ["infer", "read_observations"]


def _share(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"--unobserved {text} is not a share such as 1/3 or 0.25.") from None


def read_observations(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Observations [times, sites], and the truth if there: .npz with `observed` (and `truth`), or a parquet table."""
    if not path.is_file():
        raise InputError(f"--data {path}: there is no such file.")
    if path.suffix == ".npz":
        try:
            with np.load(path) as file:
                if "observed" not in file.files:
                    raise InputError(
                        f"--data {path} has no array 'observed', only {', '.join(file.files) or 'nothing'}."
                    )
                return file["observed"], file["truth"] if "truth" in file.files else None
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"--data {path} cannot be read as .npz ({error}).") from error
    if path.suffix == ".parquet":
        import polars

        try:
            return polars.read_parquet(path).cast(polars.Float64).to_numpy(), None
        except (OSError, polars.exceptions.PolarsError) as error:
            raise InputError(f"--data {path} cannot be read as parquet ({str(error).splitlines()[0]}).") from error
    raise InputError(f"--data {path} is neither .npz nor .parquet.")


def infer(args: Any) -> int:
    """Infer, write the posterior and the report page; exit code 1 when some region kept a misfit."""
    from awavo.errors import UnknownNameError, did_you_mean
    from awavo.results.store import to_plain

    if args.system != "lorenz96":
        raise UnknownNameError(f"no system is named '{args.system}'.{did_you_mean(args.system, ['lorenz96'])}")
    if args.forcing not in ("known", "infer"):
        raise InputError(f"--forcing {args.forcing} is not one of known, infer.")
    if args.dtype not in ("float32", "float64"):
        raise InputError(f"--dtype {args.dtype} is not one of float32, float64.")
    if not args.memory_mb > 0:
        raise InputError(f"--memory-mb {args.memory_mb:g} must be above 0.")
    import jax

    from awavo.runs.infer import infer_trajectories
    from awavo.tasks.lorenz96 import REGIMES, TIME_STEP, lorenz96_slots, lorenz96_system, twin_experiment
    from awavo.training.compilation import enable_cache

    enable_cache()
    if args.regime not in REGIMES:
        raise InputError(f"--regime {args.regime} is not one of {', '.join(REGIMES)}.")
    jax.config.update("jax_enable_x64", args.dtype == "float64")
    regime = REGIMES[args.regime]
    if args.data is None:
        twin = twin_experiment(args.states, regime=args.regime, unobserved=_share(args.unobserved), seed=args.seed)
        observed, truth = twin.observed, twin.truth
    else:
        observed, truth = read_observations(args.data)
    from awavo.assimilation.engine import Settings, System
    from awavo.assimilation.modes import SearchSettings
    from awavo.assimilation.observations import check_observations

    noise = regime.noise if args.noise is None else args.noise
    observed = check_observations(observed, observed.shape[-1:], noise)
    infer_theta = args.forcing == "infer"
    guess = args.guess if infer_theta else 8.0
    system = System(**lorenz96_system(observed.shape[1], regime.steps, guess))
    search = SearchSettings(rounds=args.rounds, slots=lorenz96_slots(observed.shape[1], jax.default_backend()))
    settings = Settings(
        infer_theta=infer_theta, num_draws=args.draws, memory_mb=args.memory_mb, dtype=args.dtype, seed=args.seed,
        search=search,
    )  # fmt: skip
    out = args.out or Path("runs") / f"lorenz96-{observed.shape[1]}-seed{args.seed}"
    made = infer_trajectories(
        system, observed, noise, settings=settings, truth=truth, out=out, name="lorenz96",
        times=np.arange(len(observed) + 1) * regime.steps * TIME_STEP, on_stage=_bar(args.json),
    )  # fmt: skip
    summary = made.summary | {"run": str(out), "report": str(out / "report.html")}
    stuck = int((made.posterior.chi2 > search.threshold * 1.2).sum())
    if args.json:
        print(json.dumps(to_plain(summary | {"sites_with_misfit": stuck}), allow_nan=False))
    else:
        _show(summary, stuck)
    return 1 if stuck > 0.02 * observed.shape[1] else 0


def _bar(quiet: bool) -> Any:
    if quiet:
        return None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        return lambda stage, total, text: console.print(f"{stage:>3}/{total} {text}", highlight=False)
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console)
    task = bar.add_task("compiling", total=None)
    bar.start()

    def show(stage: int, total: int, text: str) -> None:
        bar.update(task, completed=stage, total=total, description=text)
        if stage >= total:
            bar.stop()

    return show


def _show(summary: dict[str, Any], stuck: int) -> None:
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
    print(f"largest local chi2 {summary['largest_chi2']:.2f}; {stuck} sites keep a misfit")
    print(f"posterior and page: {summary['report']}")
