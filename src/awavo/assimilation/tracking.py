r"""Follow a system on a ring as observations come in: a Kalman filter whose covariance is a band, and its smoother.

The state's Gaussian is a mean and the covariances of each site with its neighbours up to `band` away. Both steps are
solved on windows of sites that overlap, each deciding its core, so time and memory grow with the number of sites:

* forecast: the flow, and :math:`J P J^\top` with its Jacobian from one tangent per colour of sites;
* analysis: what is seen of a site, :math:`y = h(x) + N(0, \sigma^2)` with any pointwise h, is linearised by the slope
  and the rest that it has over the site's own Gaussian (not at its mean), twice: over the forecast, then over the
  analysis (iterated posterior linearisation, Garcia-Fernandez et al. 2015).

What the model gets wrong is read from the innovations: at every analysis the errors of all sites get a common
additive or multiplicative noise, of the size under which the observations are most likely, and regions that still do
not fit are widened by themselves. So a shock that nobody announced is answered when it is first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from awavo.assimilation.engine import measured_reach
from awavo.assimilation.fit import Fit, MisfitError
from awavo.assimilation.lattice import Lattice, make_lattice
from awavo.assimilation.system import System, check_system, num_states, takes_times
from awavo.assimilation.trajectories import index_table, jacobian_entries, tangents
from awavo.errors import InputError

__all__ = ["Analysis", "BandGaussian", "RingFilter", "Tracked", "make_filter", "track"]

CORE, BAND = 16, 12
# Points and weights of Gauss-Hermite quadrature for what is seen of one site.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LINEARISATIONS = 2
# Sizes of the noise that are tried: shares of the prior's standard deviation (additive), of the state (multiplicative).
NOISES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.7, 1.0)
# Squared innovations over their variance, in a window of sites, above which its covariance is widened, by this at most.
REGION, SURPRISING, WIDEST = 5, 1.7, 10.0
# A filter is not believed that needs so large a noise, or has so large innovations, at most of its observations; and
# innovations so small say that the noise is overstated. The first observations, before it knows its way, do not count.
TOO_NOISY, TOO_FAR, TOO_NEAR, FIRST = 0.3, 1.5, 0.5, 4
# A mean stays within so many standard deviations of the prior, a variance above this share of the prior's.
FARTHEST, LEAST = 6.0, 1e-9


class BandGaussian(NamedTuple):
    """A Gaussian on a ring: `band[i, k]` is the covariance of site i with site i + k - b; column b is the variance."""

    mean: Float[Array, " I"]
    band: Float[Array, "I w"]


class Analysis(NamedTuple):
    """A state after its observation.

    `noise` is the size of what was added to the model's errors, `multiplicative` whether as a share of the state;
    `surprise` the mean squared innovation over its variance after that (1 where all is right).
    """

    state: BandGaussian
    forecast: BandGaussian
    noise: Float[Array, ""]
    multiplicative: Bool[Array, ""]
    surprise: Float[Array, ""]


class RingFilter(NamedTuple):
    """The steps of a filter, compiled when first called; all arrays stay on the device.

    Args:
        first: The prior, at the time before the first interval.
        forecast: `forecast(state)` one interval later.
        analyse: `analyse(forecast, observed)`, NaN where nothing was seen.
        smooth: `smooth(state, forecast, later)`: a filtered state given the smoothed one after it; `forecast` is the
            one in its `Analysis`.
    """

    first: BandGaussian
    forecast: Callable[[BandGaussian], BandGaussian]
    analyse: Callable[[BandGaussian, Array], Analysis]
    smooth: Callable[[BandGaussian, BandGaussian, BandGaussian], BandGaussian]


class Tracked(NamedTuple):
    """Filtered means and standard deviations at the times of observation, smoothed ones where asked for.

    `noise`, `multiplicative` and `surprise` are those of every `Analysis`; `fit` judges the whole by them.
    """

    mean: Float[np.ndarray, "K I"]
    std: Float[np.ndarray, "K I"]
    smoothed: Float[np.ndarray, "K I"] | None
    smoothed_std: Float[np.ndarray, "K I"] | None
    noise: Float[np.ndarray, " K"]
    multiplicative: Bool[np.ndarray, " K"]
    surprise: Float[np.ndarray, " K"]
    fit: Fit


class _Windows(NamedTuple):
    """Windows of sites, and the ways between their matrices and the band."""

    lattice: Lattice
    groups: int
    local: Callable[[Array, Array], Array]
    rows: Callable[[Array], Array]
    home: Callable[[Array], Array]
    mirrored: Callable[[Array], Array]
    neighbours: Callable[[Array], Array]
    taper: Float[np.ndarray, " w"]


def _windows(lattice: Lattice, band: int, groups: int) -> _Windows:
    sites, num = lattice.patch_site.shape[1], int(np.prod(lattice.shape))
    whole = len(lattice.patch_site) == groups == 1 and sites == num
    offset = np.arange(sites)[None] - np.arange(sites)[:, None]
    columns = np.arange(sites)[:, None] + np.arange(-band, band + 1)
    if whole:  # one window is the ring itself: the shorter way round counts
        offset, columns = (offset + sites // 2) % sites - sites // 2, columns % sites
    near, column = np.abs(offset) <= band, np.clip(offset + band, 0, 2 * band)
    columns = np.clip(columns, 0, sites - 1)
    step = np.arange(-band, band + 1)
    # Wendland's function: positive definite, so products with it stay covariances; zero beyond the band.
    apart = np.abs(step) / (band + 1)
    taper = (1 - apart) ** 4 * (4 * apart + 1)

    def local(band_of_all, chosen):
        return band_of_all[chosen[:, :, None], column] * near

    def rows(matrix):
        return jnp.take_along_axis(matrix, jnp.asarray(columns)[None], 2)

    def home(values):
        return values.reshape(-1, *values.shape[2:])[index_table(lattice.home)]

    def neighbours(values):
        return jnp.stack([jnp.roll(values, -k, 0) for k in step], 1)

    def mirrored(bands):
        other = jnp.stack([jnp.roll(bands[:, 2 * band - j], -k) for j, k in enumerate(step)], 1)
        return 0.5 * (bands + other)

    return _Windows(lattice, groups, local, rows, home, mirrored, neighbours, taper)


def _over_windows(windows: _Windows, solve: Callable[[Array], Any]) -> Any:
    """`solve(sites)` of every window, a group at a time to save memory; each site's part from its own window."""
    sites = index_table(windows.lattice.patch_site)
    if windows.groups == 1:
        return jax.tree.map(windows.home, solve(sites))
    parts = lax.map(solve, sites.reshape(windows.groups, -1, sites.shape[1]))
    return jax.tree.map(lambda a: windows.home(a.reshape(sites.shape[0], *a.shape[2:])), parts)


def _linearised(
    see: Callable[[Array], Array], mean: Float[Array, " I"], variance: Float[Array, " I"]
) -> tuple[Float[Array, " I"], Float[Array, " I"], Float[Array, " I"]]:
    """Mean, slope and the variance that is left of what is seen of each site, over its Gaussian."""
    std = jnp.sqrt(variance)
    weights, nodes = jnp.asarray(WEIGHTS, mean.dtype), jnp.asarray(NODES, mean.dtype)
    seen = jax.vmap(lambda node: see(mean + std * node))(nodes)
    middle = weights @ seen
    slope = (weights * nodes) @ seen / std
    return middle, slope, jnp.maximum(weights @ (seen - middle) ** 2 - slope**2 * variance, 0.0)


def _scaled(windows: _Windows, band: Float[Array, "I w"], factor: Float[Array, " I"]) -> Float[Array, "I w"]:
    """The covariance of errors that are multiplied site by site."""
    return band * factor[:, None] * windows.neighbours(factor)


def _check(system: System, noise: Any) -> None:
    if check_system(system) != num_states(system) or len(system.shape) != 1 or system.layout != "ring":
        raise InputError("a filter follows a ring (layout='ring', one axis) whose sites are each seen by themselves.")
    if takes_times(system):
        raise InputError("a filter's flow is the same in every interval: give one without times, flow(x, theta).")
    if np.size(noise) != 1:
        raise InputError(f"noise has {np.size(noise)} numbers: a filter takes one standard deviation for all sites.")
    if not 0 < float(noise) < np.inf:
        raise InputError(f"noise={noise} is not a standard deviation: give one above 0.")
    if num_states(system) < 2 * BAND + 1:
        raise InputError(f"a ring of {num_states(system)} sites is shorter than {2 * BAND + 1}: use infer.")
    if system.observe is not None:
        rng, theta = np.random.default_rng(0), jnp.asarray(system.theta, jnp.float32)
        x, other = rng.standard_normal((2, *system.shape)) * np.asarray(system.prior_std) + np.asarray(
            system.prior_mean
        )
        same = rng.random(system.shape) < 0.5
        one, two = (system.observe(jnp.asarray(a, jnp.float32), theta) for a in (x, np.where(same, x, other)))
        if not np.array_equal(np.asarray(one)[same], np.asarray(two)[same], equal_nan=True):
            raise InputError("what is seen of one site hangs on others: a filter needs an observe that acts on each.")


def make_filter(system: System, noise: float, *, memory_mb: float = 4096.0, dtype: str = "float32") -> RingFilter:
    """A filter of a ring whose sites are seen, each by itself, with noise of this standard deviation.

    Args:
        system: Its flow over one interval, what is seen of it (`observe`, pointwise, or the state itself), its prior.
        noise: Standard deviation of the observations' noise.
        memory_mb: What the matrices of the windows may take at a time.
        dtype: Of all arrays.
    """
    _check(system, noise)
    kind, sites = jnp.dtype(dtype), num_states(system)
    theta = jnp.asarray(system.theta, kind)
    reach = system.reach or measured_reach(system, kind)
    margin = BAND + max(max(pair) for pair in reach) // 2 + 3
    side = CORE + 2 * margin
    groups = max(1, int(np.ceil(6 * -(-sites // CORE) * side**2 * kind.itemsize / 2**20 / memory_mb)))
    lattice = make_lattice(system.shape, reach, core=CORE, margin=margin, groups=groups)
    windows = _windows(lattice, BAND, groups)
    prior_mean, prior_std, own = (
        jnp.asarray(np.broadcast_to(np.asarray(a, float), system.shape), kind)
        for a in (system.prior_mean, system.prior_std, system.model_noise)
    )
    taper = jnp.asarray(windows.taper, kind)
    within, eye = jnp.asarray(lattice.within, kind), jnp.eye(lattice.patch_site.shape[1], dtype=kind)
    coarse = system.coarse or system.flow

    def see(x):
        return x if system.observe is None else jnp.asarray(system.observe(x, theta), kind)

    def jacobian(mean):
        probe = tangents(lattice, coarse, mean[None], theta)[1][0]
        flat = lax.optimization_barrier(probe.reshape(-1))
        return lambda chosen: flat[jacobian_entries(lattice, chosen)] * within

    def variance(band):
        return jnp.maximum(band[:, BAND], LEAST * prior_std**2)

    def precisely(function):
        # TF32 products lose the covariances of a long chain: full precision on every device.
        def run(*arguments):
            with jax.default_matmul_precision("highest"):
                return function(*arguments)

        return jax.jit(run)

    def forecast(state):
        entries = jacobian(state.mean)

        def solve(chosen):
            step = entries(chosen)
            return windows.rows(step @ windows.local(state.band, chosen) @ jnp.swapaxes(step, 1, 2))

        band = windows.mirrored(_over_windows(windows, solve)) * taper
        band = band.at[:, BAND].add(own**2)
        # No forecast knows less than the prior.
        shrink = jnp.minimum(1.0, prior_std / jnp.sqrt(variance(band)))
        return BandGaussian(system.flow(state.mean, theta), _scaled(windows, band, shrink))

    def adapted(ahead, value, seen):
        """The forecast with what its innovations say of the model's errors."""
        shapes = jnp.stack([prior_std**2, ahead.mean**2])
        levels = jnp.asarray(NOISES, kind)

        def spread(extra):
            middle, slope, rest = _linearised(see, ahead.mean, variance(ahead.band) + extra)
            return value - middle, slope**2 * (variance(ahead.band) + extra) + rest + noise**2

        def likelihood(choice):
            innovation, expected = spread(levels[choice[0]] ** 2 * shapes[choice[1]])
            return -0.5 * jnp.sum(seen * (innovation**2 / expected + jnp.log(expected)))

        choices = jnp.stack([jnp.tile(jnp.arange(len(NOISES)), 2), jnp.repeat(jnp.arange(2), len(NOISES))], 1)
        best = choices[jnp.argmax(lax.map(likelihood, choices))]
        level, extra = levels[best[0]], levels[best[0]] ** 2 * shapes[best[1]]
        band = ahead.band.at[:, BAND].add(extra)
        innovation, expected = spread(extra)
        square = seen * innovation**2 / expected
        near = [sum(jnp.roll(a, k) for k in range(-REGION, REGION + 1)) for a in (square, seen)]
        ratio = near[0] / jnp.maximum(near[1], 1.0) / SURPRISING
        band = _scaled(windows, band, jnp.sqrt(jnp.clip(ratio, 1.0, WIDEST)))
        told = jnp.sum(square) / jnp.maximum(jnp.sum(seen), 1.0)
        return BandGaussian(ahead.mean, band), level, best[1] == 1, told

    def analyse(ahead, observed):
        seen = jnp.isfinite(observed).astype(kind)
        value = jnp.nan_to_num(observed).astype(kind)
        ahead, level, multiplicative, surprise = adapted(ahead, value, seen)
        state = ahead
        for _ in range(LINEARISATIONS):
            middle, slope, rest = _linearised(see, state.mean, variance(state.band))
            slope = slope * seen
            residual = seen * (value - middle - slope * (ahead.mean - state.mean))
            error = noise**2 + rest

            def solve(chosen, slope=slope, residual=residual, error=error):
                before = windows.local(ahead.band, chosen)
                cross = slope[chosen][:, :, None] * before
                root = jnp.linalg.cholesky(cross * slope[chosen][:, None, :] + error[chosen][:, :, None] * eye)
                both = jnp.concatenate([cross, residual[chosen][:, :, None]], 2)
                gain = solve_triangular(root, both, lower=True)
                turned = jnp.swapaxes(gain[:, :, :-1], 1, 2)
                return (turned @ gain[:, :, -1:])[:, :, 0], windows.rows(before - turned @ gain[:, :, :-1])

            move, band = _over_windows(windows, solve)
            far = FARTHEST * prior_std
            mean = jnp.clip(ahead.mean + move, prior_mean - far, prior_mean + far)
            state = BandGaussian(mean, windows.mirrored(band) * taper)
        return Analysis(state, ahead, level, multiplicative, surprise)

    def smooth(state, ahead, later):
        entries = jacobian(state.mean)
        change, spread = later.mean - ahead.mean, later.band - ahead.band

        def solve(chosen):
            step, now = entries(chosen), windows.local(state.band, chosen)
            floor = LEAST * jnp.max(prior_std) ** 2
            root = jnp.linalg.cholesky(windows.local(ahead.band, chosen) + floor * eye)
            half = solve_triangular(root, step @ now, lower=True)
            gain = jnp.swapaxes(solve_triangular(root, half, lower=True, trans=1), 1, 2)
            move = (gain @ change[chosen][:, :, None])[:, :, 0]
            return move, windows.rows(now + gain @ windows.local(spread, chosen) @ jnp.swapaxes(gain, 1, 2))

        move, band = _over_windows(windows, solve)
        # What is known later never makes a site less certain.
        band = windows.mirrored(band) * taper
        shrink = jnp.minimum(1.0, jnp.sqrt(variance(state.band) / variance(band)))
        return BandGaussian(state.mean + move, _scaled(windows, band, shrink))

    first = BandGaussian(prior_mean, jnp.zeros((sites, 2 * BAND + 1), kind).at[:, BAND].set(prior_std**2))
    return RingFilter(first, precisely(forecast), precisely(analyse), precisely(smooth))


def track(
    system: System,
    observed: Float[np.ndarray, "K I"] | Iterator[np.ndarray],
    noise: float,
    *,
    smooth: bool = False,
    accept_misfit: bool = False,
    memory_mb: float = 4096.0,
    dtype: str = "float32",
) -> Tracked:
    """Filter a ring through a series of observations, one interval apart, the first one interval after the prior.

    Args:
        system: See `make_filter`.
        observed: Observations, NaN where one is missing; an iterator is asked for one row at a time.
        noise: Standard deviation of their noise.
        smooth: Go back as well: every state given all observations. All states are kept in memory for it.
        accept_misfit: Return states that do not fit, marked in `fit`, instead of raising `MisfitError`.
        memory_mb: What the matrices of the windows may take at a time.
        dtype: Of all arrays.
    """
    steps = make_filter(system, noise, memory_mb=memory_mb, dtype=dtype)
    state, means, stds, told, kept = steps.first, [], [], [], []
    for number, row in enumerate(observed):
        row = np.asarray(row, dtype)
        if row.shape != system.shape:
            raise InputError(f"row {number} of the observations has shape {row.shape}, expected {system.shape}.")
        if np.isinf(row).any():
            raise InputError(f"row {number} of the observations holds infinite values: NaN is what is missing.")
        analysis = steps.analyse(steps.forecast(state), jnp.asarray(row))
        state = analysis.state
        means.append(np.asarray(state.mean))
        stds.append(_std(state))
        told.append([float(analysis.noise), float(analysis.multiplicative), float(analysis.surprise)])
        if smooth:
            kept.append((state, analysis.forecast))
    if not means:
        raise InputError("there are no observations: give at least one row.")
    if not np.isfinite(means[-1]).all() or not np.isfinite(stds[-1]).all():
        raise InputError("the filter's states are not finite: check the flow, or observe more often.")
    back = [(means[-1], stds[-1])]
    for (now, _), (_, ahead) in zip(kept[-2::-1], kept[:0:-1], strict=True):
        state = steps.smooth(now, ahead, state)
        back.append((np.asarray(state.mean), _std(state)))
    levels = np.array(told)
    smoothed, smoothed_std = (np.stack(a) for a in zip(*back[::-1], strict=True)) if smooth else (None, None)
    fit = _fit(levels[:, 0], levels[:, 2])
    found = Tracked(
        np.stack(means), np.stack(stds), smoothed, smoothed_std, levels[:, 0], levels[:, 1] > 0, levels[:, 2], fit
    )  # fmt: skip
    if not fit.good and not accept_misfit:
        error = MisfitError(" ".join(fit.problems) + " accept_misfit=True returns it, marked.")
        error.result = found  # type: ignore[assignment]
        raise error
    return found


def _fit(noise: Float[np.ndarray, " K"], surprise: Float[np.ndarray, " K"]) -> Fit:
    """Whether most observations were explained by the model and their noise."""
    added, far = (float(np.median(a[min(FIRST, len(a) - 1) :])) for a in (noise, surprise))
    problems, notes = [], []
    if added >= TOO_NOISY or far > TOO_FAR:
        problems.append(
            f"most observations are explained only by adding {added:.0%} to the model's errors (squared innovations "
            f"{far:.2g} times what is expected): the noise is understated, or the flow or observe is not this system's."
        )
    elif far < TOO_NEAR:
        notes.append(f"squared innovations are {far:.2g} times what is expected: the noise is overstated.")
    return Fit(not problems, far, float(surprise.max()), True, tuple(problems), tuple(notes))


def _std(state: BandGaussian) -> Float[np.ndarray, " I"]:
    return np.sqrt(np.maximum(np.asarray(state.band[:, state.band.shape[1] // 2]), 0.0))
