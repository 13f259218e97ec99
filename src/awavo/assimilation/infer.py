"""`infer(system, observed, noise)`: trajectory and parameters of any differentiable system, and whether they fit."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from awavo.assimilation.assimilate import Posterior
from awavo.assimilation.descent import Descent, Found, Observed, annealing, growing, make_descent, polishing
from awavo.assimilation.fit import Fit, MisfitError, check_fit, excess
from awavo.assimilation.local import infer_local, is_local
from awavo.assimilation.observations import check_noise, read_numbers
from awavo.assimilation.system import System, check_system, free_parameters, num_states, takes_times
from awavo.checks import LARGEST_SEED
from awavo.errors import InputError

__all__ = ["Inferred", "Mode", "Start", "infer", "prepare"]

# Squares by which another mode may be worse and still be one to reckon with: exp(-6 / 2) is 5%.
NEARLY = 6.0
# States of the largest system whose steps are solved by matrices, and up to which several starts are always made.
DENSE, SMALL, FEWEST = 512, 24, 5
ENGINES = ("dense", "conjugate gradients")
MOST_DRAWS = 1_000_000
Z90 = 1.6448536269514722


class Start(NamedTuple):
    """A start of one's own: states at all times and parameters; from there on only polished."""

    x: Float[np.ndarray, "T n"]
    theta: Float[np.ndarray, " p"]


class Mode(NamedTuple):
    """One solution that a start ended in, and its least squares."""

    cost: float
    x: Float[np.ndarray, "T n"]
    theta: Float[np.ndarray, " p"]


class Inferred(NamedTuple):
    """The posterior at the times `times`: Gaussian around its mode, whose fit `fit` judges.

    `std` and `theta_std` are marginal standard deviations, `draws` joint draws of trajectories; `filtered` and
    `filtered_std` use, at each time, what was seen until then (linearised around the whole). `modes` are the distinct
    solutions found, best first. Seconds are those of solving; those of the first call of a shape include compiling.
    A state that is not `believed` lies where the observations do not fit: on a lattice its surroundings are in a wrong
    mode and its `std` is at least the prior's, elsewhere the whole is refused.
    """

    times: Float[np.ndarray, " T"]
    mean: Float[np.ndarray, "T n"]
    std: Float[np.ndarray, "T n"]
    draws: Float[np.ndarray, "r T n"]
    theta: Float[np.ndarray, " p"]
    theta_std: Float[np.ndarray, " p"]
    theta_cov: Float[np.ndarray, "p p"]
    filtered: Float[np.ndarray, "T n"] | None
    filtered_std: Float[np.ndarray, "T n"] | None
    chi2: Float[np.ndarray, " m"]
    fit: Fit
    modes: tuple[Mode, ...]
    engine: str
    solve_s: float
    believed: Bool[np.ndarray, " n"]

    def interval(self, share: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends [T, n] of the interval that holds this share of each marginal."""
        half = float(jax.scipy.special.ndtri(0.5 + share / 2)) * self.std
        return self.mean - half, self.mean + half


@lru_cache(maxsize=16)
def _descent(system: tuple, num_draws: int, dense: bool = True) -> Descent:
    """Programs of all systems that differ in numbers only: a second call of one shape compiles nothing."""
    shape, flow, observe, free, num_theta = system
    theta_std = np.zeros(num_theta)
    theta_std[list(free)] = 1.0
    return make_descent(
        System(shape, flow, np.zeros(num_theta), theta_std=theta_std, observe=observe), num_draws, dense
    )


def prepare(
    system: System, observed: np.ndarray, noise: Any, times: np.ndarray | None = None, start: float | None = None
) -> Observed:
    """Check and arrange the numbers of a problem (host arrays in double precision)."""
    num_seen = check_system(system)
    value = read_numbers(observed, "the observations")
    if value.ndim > 2 and value.shape[1:] == tuple(system.shape):
        value = value.reshape(len(value), -1)
    if value.ndim != 2 or value.shape[1] != num_seen:
        raise InputError(
            f"the observations have shape {list(value.shape)}, expected [times, {num_seen}]: one row per time."
        )
    if np.isinf(value).any():
        raise InputError(f"{int(np.isinf(value).sum())} observations are infinite: mark missing ones as NaN.")
    seen = np.asarray(np.isfinite(value))
    if not seen.any():
        raise InputError("every observation is NaN: at least some must be there.")
    spread = check_noise(noise, seen)
    at = np.arange(1.0, len(value) + 1) if times is None else read_numbers(times, "the times").reshape(-1)
    if len(at) != len(value):
        raise InputError(f"there are {len(at)} times for {len(value)} rows of observations: give one each.")
    begin = (0.0 if times is None else at[0]) if start is None else _start_time(start)
    if begin < at[0]:
        at = np.concatenate([[begin], at])
        value, seen, spread = (np.concatenate([row[:1], row]) for row in (value, seen, spread))
        seen[0] = False
    if len(at) < 2:
        raise InputError("there is 1 time, at least 2 are needed.")
    if not takes_times(system) and np.ptp(np.diff(at)) > 1e-6 * np.ptp(at):
        raise InputError(
            "the times are unevenly spaced, and the flow takes none: write it as flow(x, theta, begin, end)."
        )
    if not np.isfinite(at).all() or (np.diff(at) <= 0).any() or begin > at[0]:
        raise InputError("the times must grow from row to row, and begin no earlier than `start`.")

    def each(value, size):
        return np.broadcast_to(np.asarray(value, float).reshape(-1), (size,)).astype(float)

    num, free = num_states(system), free_parameters(system)
    theta = np.asarray(system.theta, float).reshape(-1)
    arranged: Any = (
        at, np.where(seen, value, 0.0), seen, np.where(seen, spread, 1.0), each(system.prior_mean, num),
        each(system.prior_std, num), each(system.model_noise, num), theta, each(system.theta_std, len(theta))[free],
    )  # fmt: skip
    return Observed(*arranged)


def _start_time(start: Any) -> float:
    try:
        value = float(start)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"start={start!r} is no time: give one finite number, no later than the first row's.")
    return value


def _check_options(seed: int, num_draws: int, engine: str | None) -> None:
    for name, value, most in (("seed", seed, LARGEST_SEED), ("num_draws", num_draws, MOST_DRAWS)):
        if not isinstance(value, int | np.integer) or not 0 <= value <= most:
            raise InputError(f"{name}={value!r} is no whole number from 0 to {most}.")
    if engine not in (None, *ENGINES):
        raise InputError(f"engine={engine!r} is not one of {', '.join(map(repr, ENGINES))}: leave it out to choose.")


def _checked_start(begin_at: tuple[Any, Any], numbers: Observed) -> Start:
    """The start that was given, a pair of states and parameters, in the shapes of the problem."""
    if len(begin_at) != 2:
        raise InputError(f"begin_at holds {len(begin_at)} arrays, expected two: states at all times, and parameters.")
    x, theta = read_numbers(begin_at[0], "the states of begin_at"), read_numbers(begin_at[1], "its parameters")
    rows, num = len(numbers.times), len(numbers.prior_mean)
    if x.shape[:1] != (rows,) or x.size != rows * num or theta.size != len(numbers.theta):
        raise InputError(
            f"begin_at has states of shape {list(x.shape)} and {theta.size} parameters, expected {[rows, num]} (the "
            f"time of the prior first) and {len(numbers.theta)}."
        )
    if not np.isfinite(x).all() or not np.isfinite(theta).all():
        raise InputError("begin_at is not finite: give a start without NaN.")
    return Start(x.reshape(rows, num), theta.reshape(-1))


def infer(
    system: System,
    observed: np.ndarray,
    noise: Any,
    *,
    times: np.ndarray | None = None,
    start: float | None = None,
    num_draws: int = 16,
    most_starts: int = 12,
    fewest_starts: int | None = None,
    seed: int = 0,
    begin_at: Start | tuple[np.ndarray, np.ndarray] | None = None,
    engine: Literal["dense", "conjugate gradients"] | None = None,
    accept_misfit: bool = False,
) -> Inferred:
    """Infer the states of a system at the times of observation, and its parameters, from what was seen.

    Args:
        system: The dynamics, what is seen of it, and its priors.
        observed: Observations `[times, seen]`, NaN where one is missing.
        noise: Standard deviation of their noise: a number, one per column, or one per observation.
        times: Times of the rows (default: 1, 2, ...).
        start: Time of the prior (default: the first of `times`, or 0 where none are given).
        num_draws: Draws of trajectories from the posterior.
        most_starts: Descents at most.
        fewest_starts: Descents at least, to find other modes (default: 5 for up to 24 states, else 1).
        seed: Seed of starts and draws.
        begin_at: A start of one's own, states at all times and parameters, in place of all others.
        engine: How steps are solved: "dense" up to 512 states, else "conjugate gradients", unless said here. Rings and
            lattices have an engine of their own.
        accept_misfit: Return a posterior that does not fit, marked in `fit`, instead of raising `MisfitError`.
    """
    _check_options(seed, num_draws, engine)
    numbers = prepare(system, observed, noise, times, start)
    begin_at = None if begin_at is None else _checked_start(begin_at, numbers)
    began = time.perf_counter()
    if engine is None and is_local(system, numbers, takes_times(system)):
        posterior, fit = infer_local(system, numbers, num_draws, seed, begin_at)
        return _judged(_as_inferred(posterior, fit, numbers, time.perf_counter() - began), accept_misfit)
    key = (system.shape, system.flow, system.observe, tuple(free_parameters(system).tolist()), len(numbers.theta))
    dense = num_states(system) <= DENSE if engine is None else engine == "dense"
    if not dense and num_draws < 4:
        raise InputError(f"num_draws={num_draws} is below 4: intervals of a large system come from its draws.")
    programs = _descent(key, num_draws, dense)
    with jax.enable_x64(True):
        data = Observed(*(jnp.asarray(a) for a in numbers))
        found = _search(programs, data, numbers, system.observe is None, most_starts, fewest_starts, seed, begin_at)
        result = _posterior(programs, data, numbers, free_parameters(system), found, seed, dense)
    return _judged(result._replace(solve_s=time.perf_counter() - began), accept_misfit)


def _judged(result: Inferred, accept_misfit: bool) -> Inferred:
    if not result.fit.good and not accept_misfit:
        error = MisfitError(" ".join(result.fit.problems) + " accept_misfit=True returns it, marked.")
        error.result = result  # type: ignore[assignment]
        raise error
    return result


def _as_inferred(posterior: Posterior, fit: Fit, numbers: Observed, seconds: float) -> Inferred:
    covariance = np.asarray(posterior.theta_cov, float)
    return Inferred(
        np.asarray(numbers.times), posterior.mean, posterior.std, posterior.draws, posterior.theta,
        np.sqrt(np.maximum(np.diagonal(covariance), 0.0)), covariance, None, None, posterior.chi2, fit, (), "lattice",
        seconds, posterior.believed,
    )  # fmt: skip


def _search(
    programs: Descent,
    data: Observed,
    numbers: Observed,
    direct: bool,
    most_starts: int,
    fewest_starts: int | None,
    seed: int,
    begin_at: Start | None,
) -> list[Found]:
    """Descents from different starts, until one fits and small systems have had a second look; best first."""
    num_times, found = len(numbers.times), []
    if begin_at is not None:
        return [programs.descend(data, polishing(num_times), jnp.asarray(begin_at.x), jnp.asarray(begin_at.theta))]
    rng, count = np.random.default_rng(seed), int(numbers.seen.sum())
    least = fewest_starts or (FEWEST if len(numbers.prior_mean) <= SMALL else 1)
    for number in range(max(most_starts, 1)):
        x, theta = _first_guess(numbers, direct, rng if number > 1 else None)
        schedule = (
            growing(num_times) if number % 2 else annealing(num_times, 1.0 if number < 2 else rng.uniform(0.3, 2))
        )
        found.append(programs.descend(data, schedule, jnp.asarray(x), jnp.asarray(theta)))
        best = min(float(f.cost) for f in found)
        if number + 1 >= least and excess(np.array([best]), np.array([count]))[0] < 3.0:
            break
    return sorted(found, key=lambda f: float(f.cost))


def _first_guess(
    numbers: Observed, direct: bool, rng: np.random.Generator | None
) -> tuple[Float[np.ndarray, "T n"], Float[np.ndarray, " p"]]:
    """States where they were seen themselves, joined by lines, else the prior's mean; a draw of it with `rng`."""
    num_times, theta = len(numbers.times), np.array(numbers.theta)
    mean = np.array(numbers.prior_mean)
    if rng is not None:
        mean = mean + np.asarray(numbers.prior_std) * rng.standard_normal(mean.shape)
    x = np.repeat(mean[None], num_times, 0)
    if direct:
        for i in np.flatnonzero(np.asarray(numbers.seen).any(0)):
            rows = np.asarray(numbers.seen)[:, i]
            x[:, i] = np.interp(numbers.times, np.asarray(numbers.times)[rows], np.asarray(numbers.value)[rows, i])
    return x, theta


def _posterior(
    programs: Descent, data: Observed, numbers: Observed, free: np.ndarray, found: list[Found], seed: int, dense: bool
) -> Inferred:
    best, num = found[0], len(numbers.prior_mean)
    smoothed, _ = programs.finish(data, jax.random.fold_in(jax.random.key(seed), 1), best.x, best.theta)
    delta, draws = np.asarray(smoothed.delta[..., 0]), np.moveaxis(np.asarray(smoothed.delta[..., 1:]), -1, 0)
    std = np.sqrt(np.maximum(np.asarray(smoothed.variance), 0.0))
    scale = np.concatenate([numbers.prior_std, numbers.theta_std])
    with np.errstate(invalid="ignore"):
        moving = float(np.max(np.abs(delta) / (std + 1e-6 * scale)))
    x, theta = np.asarray(best.x), np.asarray(best.theta)
    finite = bool(np.isfinite(delta).all() and np.isfinite(std).all() and np.isfinite(x).all())
    if moving < 1.0:
        x, theta = x + delta[:, :num], theta.copy()
        theta[free] += delta[-1, num:]
    seen, model, prior = (np.asarray(r) for r in programs.residuals(data, jnp.asarray(x), jnp.asarray(theta)))
    with np.errstate(over="ignore"):  # the verdict says so
        other = float((model**2).sum() + (prior**2).sum())
    fit = check_fit(seen, np.asarray(numbers.seen), other, finite, moving)
    modes = _distinct(found, std[:, :num] + 1e-6 * numbers.prior_std)
    if len(modes) > 1 and modes[1].cost - modes[0].cost < NEARLY:
        share = 1 / (1 + np.exp(-0.5 * (modes[1].cost - modes[0].cost)))
        told = (
            f"another mode fits nearly as well (about {1 - share:.0%} of the posterior): these intervals are those of "
            "one mode, `infer_particles` holds all of them."
        )
        fit = fit._replace(good=False, problems=(*fit.problems, told))
    covariance = np.zeros((len(theta),) * 2)
    if len(free):
        covariance[np.ix_(free, free)] = np.asarray(smoothed.last)[num:, num:]
    counts = np.maximum(np.asarray(numbers.seen).sum(0), 1)
    filtered = x + np.asarray(smoothed.filtered)[..., :num, 0] if dense else None
    filtered_std = np.sqrt(np.maximum(np.asarray(smoothed.filtered_variance)[:, :num], 0.0)) if dense else None
    return Inferred(
        np.asarray(numbers.times), x, std[:, :num], x + draws[..., :num], theta,
        np.sqrt(np.maximum(np.diagonal(covariance), 0.0)), covariance, filtered, filtered_std,
        (seen**2).sum(0) / counts, fit, modes, "dense" if dense else "conjugate gradients", 0.0,
        np.full(num, fit.good),
    )  # fmt: skip


def _distinct(found: list[Found], std: Float[np.ndarray, "T n"]) -> tuple[Mode, ...]:
    """Solutions that differ by more than their own uncertainty, best first."""
    modes: list[Mode] = []
    for item in found:
        x = np.asarray(item.x)
        if np.isfinite(x).all() and not any(np.abs(x - m.x).max(initial=0, where=std > 0) < 1e-12 for m in modes):
            apart = [np.sqrt(np.mean(((x - m.x) / std) ** 2)) for m in modes]
            if min(apart, default=np.inf) > 1.0:
                modes.append(Mode(float(item.cost), x, np.asarray(item.theta)))
    return tuple(modes)
