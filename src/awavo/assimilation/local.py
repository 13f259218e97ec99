"""`infer` for systems whose sites feel their neighbours only: patches of the lattice, in units that suit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from awavo.assimilation.assimilate import AssimilationState, Posterior, assimilate, first_state, suspicious
from awavo.assimilation.descent import Observed
from awavo.assimilation.engine import Engine, Settings, make_data, reuse_engine
from awavo.assimilation.fit import BEYOND, Fit
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.assimilation.observations import check_observations
from awavo.assimilation.system import System, free_parameters, num_states
from awavo.assimilation.trajectories import Data

__all__ = ["infer_local", "is_local", "local_fit", "local_settings", "rescale"]

# The standard deviation of a site for which the noises of `Settings` were chosen, and a noise that is small there.
USUAL_STD, SMALL_NOISE = 3.64, 0.3
# Sites with a local chi2 above this keep a misfit, and the share of them that makes the whole doubtful.
MISFIT, DOUBTFUL = 1.5, 0.02


def is_local(system: System, numbers: Observed, timed: bool) -> bool:
    """Whether patches can solve it: sites seen themselves, a flow without times, one interval before the first."""
    return system.layout != "global" and system.observe is None and not timed and not numbers.seen[0].any()


@lru_cache(maxsize=32)
def _in_units(flow: Callable[..., Array], unit: float, shift: float) -> Callable[..., Array]:
    return lambda x, theta: (flow(shift + unit * x, theta) - shift) / unit


def rescale(system: System) -> tuple[System, float, float]:
    """The system in units in which a site's standard deviation is that of Lorenz-96; the unit and the shift.

    In these the model noises of the stages are right. A mean far from 0 is taken off, as it costs single precision.
    """
    unit = float(np.median(np.asarray(system.prior_std, float))) / USUAL_STD
    mean = float(np.median(np.asarray(system.prior_mean, float)))
    shift = mean if abs(mean) > 10 * unit * USUAL_STD else 0.0
    if unit == 1.0 and shift == 0.0:
        return system, 1.0, 0.0
    return (
        system._replace(
            flow=_in_units(system.flow, unit, shift),
            coarse=None if system.coarse is None else _in_units(system.coarse, unit, shift),
            prior_mean=(np.asarray(system.prior_mean, float) - shift) / unit,
            prior_std=np.asarray(system.prior_std, float) / unit,
            model_noise=np.asarray(system.model_noise, float) / unit,
        ),
        unit,
        shift,
    )


def local_settings(system: System, noise: float, num_draws: int, seed: int) -> Settings:
    """Settings for noise of this size (in the units of `rescale`): a noise that is small needs a tighter model."""
    tight = min(1.0, noise / SMALL_NOISE)
    base, sites = Settings(), num_states(system)
    search = SearchSettings(slots=default_slots(sites, jax.default_backend()))
    reach = 10 if system.reach is None else max(max(pair) for pair in system.reach)
    return base._replace(
        model_noise=base.model_noise * tight, margin=max(base.margin, round(0.8 * reach)), num_draws=num_draws,
        infer_theta=len(free_parameters(system)) > 0, search=search._replace(floor=search.floor * tight),
        tightness=tight, seed=seed,
    )  # fmt: skip


def local_fit(
    chi2: Float[np.ndarray, " I"],
    believed: Bool[np.ndarray, " I"],
    overall: float,
    finite: bool,
    doubt: float = MISFIT,
    off: Sequence[float] | Float[np.ndarray, " p"] = (),
    names: tuple[str, ...] = (),
) -> Fit:
    """Judge a posterior on a lattice by its local chi2: a few regions in a wrong mode are told, many are refused.

    So are parameters that end `off` standard deviations of their prior from its mean, where that is no chance.
    """
    if not finite:
        told = "the states are not finite: narrow prior_std, or observe more often than the flow doubles its errors."
        return Fit(False, np.inf, np.inf, False, (told,), ())
    bad, lost = np.flatnonzero(chi2 > MISFIT), np.flatnonzero(~believed)
    worst, problems = float(chi2.max()), []
    for i, far in enumerate(np.abs(off)):
        if far <= BEYOND:
            continue
        name = names[i] if names else f"theta[{i}]"
        problems.append(f"{name} ends {far:.3g} standard deviations of its prior from the prior's mean: widen "
                        "theta_std, or the model is wrong (give model_noise).")  # fmt: skip
    if len(bad) > DOUBTFUL * len(chi2) + 1:
        problems.append(f"{len(bad)} of {len(chi2)} sites do not fit (local chi2 above {MISFIT:g}: {_listed(bad)}): a "
                        "wrong mode there, a wrong model (give model_noise), or noise understated.")  # fmt: skip
    if problems:
        return Fit(False, overall, worst, True, tuple(problems), ())
    notes = []
    if len(lost):
        notes.append(f"{len(lost)} of {len(chi2)} sites are not believed ({_listed(lost)}): what was seen around them "
                     "does not fit, or nothing was seen there, so that the mode may be wrong; their intervals are the "
                     "prior's.")  # fmt: skip
    rest = np.where(believed, chi2, 0.0)
    if rest.max() > doubt:
        notes.append(f"sites around {int(np.argmax(rest))} fit less well than chance mostly allows (local chi2 "
                     f"{rest.max():.2f}): this may be a wrong mode there.")  # fmt: skip
    return Fit(True, overall, worst, True, (), tuple(notes))


def _listed(sites: np.ndarray) -> str:
    return ", ".join(map(str, sites[:8])) + (", ..." if len(sites) > 8 else "")


def _last(engine: Engine, data: Data, state: AssimilationState) -> Posterior:
    item = None
    for item, _ in assimilate(engine, data, state):  # noqa: B007
        pass
    assert isinstance(item, Posterior)
    return item


def infer_local(
    system: System, numbers: Observed, num_draws: int, seed: int, begin_at: tuple[np.ndarray, np.ndarray] | None
) -> tuple[Posterior, Fit]:
    """The posterior in the system's own units, and the verdict on it."""
    scaled, unit, shift = rescale(system)
    value = np.where(numbers.seen, (numbers.value - shift) / unit, np.nan)[1:]
    noise = np.asarray(numbers.noise)[1:] / unit
    typical = float(np.median(noise[numbers.seen[1:]]))
    if system.layout == "ring":
        check_observations(value, system.shape, typical)
    settings = local_settings(system, typical, num_draws, seed)
    data = make_data(scaled, value, noise, settings)
    engine, _ = reuse_engine(scaled, data, settings)
    state = first_state(data, np.asarray(system.theta, float))
    if begin_at is not None:
        x = (np.asarray(begin_at[0], float).reshape(len(value) + 1, -1) - shift) / unit
        theta = jnp.asarray(begin_at[1], state.x.dtype)
        done = len(settings.anneal)
        state = state._replace(x=jnp.asarray(x, state.x.dtype), theta=theta, stage=done)
        engine = engine._replace(search=None)
    doubt = suspicious(len(value[0]), int(numbers.seen.sum()), settings.search.window)
    posterior = _last(engine, data, state)
    seen = np.asarray(numbers.seen)[1:]
    residual = (np.nan_to_num(value) - posterior.mean[1:])[seen] / noise[seen]
    finite = bool(np.isfinite(posterior.mean).all() and np.isfinite(posterior.std).all())
    overall = float(np.mean(residual**2))
    free = free_parameters(system)
    off = np.zeros(len(posterior.theta))
    off[free] = (posterior.theta - numbers.theta)[free] / numbers.theta_std
    fit = local_fit(posterior.chi2, posterior.believed, overall, finite, doubt, off, system.theta_names)
    return posterior._replace(
        mean=shift + unit * posterior.mean, std=unit * posterior.std, draws=shift + unit * posterior.draws
    ), fit
