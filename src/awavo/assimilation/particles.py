r"""Many-moded posteriors of small systems as particles, moved by A-GSWD to the likelihood-weighted measure.

The Gaussian engine describes one mode. Here the unknowns are the first state and the parameters,
:math:`u = (x_0, \theta)`, of a model without noise. Candidates are drawn around every mode that descents have found
(a mixture of multivariate t, heavier in the tails than any mode) and weighted by what they are worth,

.. math::  \nu = \sum_k w_k \delta(u_k), \qquad w_k \propto e^{-J(u_k)/2} / \pi(u_k),

and particles that begin as draws of the first mode descend :math:`\text{A-GSWD}_2^2(q, \nu)` (`inference.wvi`). Their
number in a mode is then its share of the posterior. Where a share is no whole number of particles, the one that stands
for the rest of two modes ends between them, where nothing is: what fits worse than the worst candidate in a thousand by
weight is put to the nearest candidate that fits. Weights need dimensions to be few: the effective number of candidates
says whether they were, and too few are refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from awavo.assimilation.descent import Observed
from awavo.assimilation.fit import MisfitError
from awavo.assimilation.infer import Inferred, infer, prepare
from awavo.assimilation.system import System, flat_flow, flat_observe, free_parameters, num_states
from awavo.errors import InputError
from awavo.inference.wvi import effective_sample_size, move_particles
from awavo.transport import orthogonal_slices
from awavo.transport.defining import Linear

__all__ = ["MOST_UNKNOWNS", "Particles", "infer_particles"]

MOST_UNKNOWNS = 12
LEAST_EFFECTIVE = 50.0
# Degrees of freedom and width of the candidates around a mode, and the share that is spread evenly over the modes.
DEGREES, WIDER, EVENLY = 5, 1.3, 0.5
NUM_SLICES, NUM_STEPS = 64, 200
NOWHERE = 1e-3  # share of the posterior that fits worse than a particle may


class Particles(NamedTuple):
    """Equal particles of the posterior: trajectories, parameters, the modes they came from and how they came about.

    `shares` are the posterior's shares of the modes by weight, `effective` the effective number of candidates, and
    `distance` what is left of the sliced distance, in standard deviations. `gaussian` is what the Gaussian engine says.
    """

    times: Float[np.ndarray, " T"]
    states: Float[np.ndarray, "P T n"]
    theta: Float[np.ndarray, "P p"]
    shares: Float[np.ndarray, " M"]
    effective: float
    distance: float
    gaussian: Inferred

    def interval(self, share: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper quantiles [T, n] of each marginal."""
        low, high = np.quantile(self.states, [0.5 - share / 2, 0.5 + share / 2], 0)
        return low, high


@lru_cache(maxsize=16)
def _programs(shape: tuple, flow: Any, observe: Any, free: tuple[int, ...], num_theta: int) -> Any:
    system = System(shape, flow, observe=observe)
    step, see, places = flat_flow(system), flat_observe(system), np.asarray(free, int)
    num = num_states(system)

    def states(u, observed: Observed):
        theta = observed.theta.at[places].set(u[num:])

        def advance(x, pair):
            x = step(x, theta, pair[0], pair[1])
            return x, x

        pairs = jnp.stack([observed.times[:-1], observed.times[1:]], 1)
        return jnp.concatenate([u[None, :num], lax.scan(advance, u[:num], pairs)[1]]), theta

    def residual(u, observed: Observed):
        x, theta = states(u, observed)
        seen = jax.vmap(see, (0, None, 0))(x, theta, observed.times)
        prior = jnp.concatenate([observed.prior_mean, observed.theta[places]])
        spread = jnp.concatenate([observed.prior_std, observed.theta_std])
        seen = jnp.where(observed.seen, (seen - observed.value) / observed.noise, 0.0)
        return jnp.concatenate([(u - prior) / spread, seen.reshape(-1)])

    @jax.jit
    def around(modes, observed):
        """Covariances of the modes and their least squares."""
        slope = jax.vmap(jax.jacfwd(residual), (0, None))(modes, observed)
        squares = jnp.sum(jax.vmap(residual, (0, None))(modes, observed) ** 2, 1)
        return jnp.linalg.inv(jnp.einsum("mrd,mre->mde", slope, slope)), squares

    @jax.jit
    def cost(candidates, observed):
        return lax.map(lambda u: jnp.sum(residual(u, observed) ** 2), candidates, batch_size=256)

    return around, cost, jax.jit(jax.vmap(states, (0, None)))


@jax.jit
def _move(start: Array, candidates: Array, weights: Array, slices: Array) -> tuple[Array, Array]:
    return move_particles(start, candidates, weights, slices, defining=Linear(), num_steps=NUM_STEPS)


def infer_particles(
    system: System,
    observed: np.ndarray,
    noise: Any,
    *,
    times: np.ndarray | None = None,
    start: float | None = None,
    num_particles: int = 256,
    num_candidates: int = 8192,
    most_starts: int = 12,
    seed: int = 0,
) -> Particles:
    """Infer the posterior with all modes that were found, of at most 12 unknowns and a model without noise.

    Args:
        system: The system, its priors and what is seen of it.
        observed: Observations `[rows, seen]`, NaN where one is missing.
        noise: Standard deviation of their noise.
        times: Times of the rows.
        start: Time of the prior.
        num_particles: Particles of the result.
        num_candidates: Candidates that are weighted.
        most_starts: Descents, all of which are made, to find the modes.
        seed: Seed.
    """
    free = free_parameters(system)
    size = num_states(system) + len(free)
    if size > MOST_UNKNOWNS:
        raise InputError(f"{size} unknowns are above {MOST_UNKNOWNS}: weights fail there, use `infer`.")
    if np.any(np.asarray(system.model_noise) > 0):
        raise InputError("particles need a model without noise: leave model_noise at 0, or use `infer`.")
    found = infer(
        system, observed, noise, times=times, start=start, seed=seed, most_starts=most_starts,
        fewest_starts=most_starts, accept_misfit=True,
    )  # fmt: skip
    numbers = prepare(system, observed, noise, times, start)
    around, cost, states = _programs(
        system.shape, system.flow, system.observe, tuple(free.tolist()), len(numbers.theta)
    )
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        data = Observed(*(jnp.asarray(a) for a in numbers))
        modes = np.stack([np.concatenate([m.x[0], m.theta[free]]) for m in found.modes])
        covariances, squares = (np.asarray(a) for a in around(jnp.asarray(modes), data))
        candidates, log_density, which = _draw(rng, modes, covariances, squares, num_candidates)
        misfit = np.asarray(cost(jnp.asarray(candidates), data))
        log_weight = -0.5 * misfit - log_density
        log_weight = np.where(np.isfinite(log_weight), log_weight, -np.inf)
        weights = np.exp(log_weight - log_weight.max())
        weights /= weights.sum()
        effective = float(effective_sample_size(jnp.asarray(weights)))
        if effective < LEAST_EFFECTIVE:
            raise MisfitError(
                f"the weights of {num_candidates} candidates are worth {effective:.0f}, at least {LEAST_EFFECTIVE:.0f} "
                "are needed: use more candidates, a shorter window, or `infer`."
            )
        shares = np.bincount(which, weights, len(modes))
    # Moved in units of the weighted candidates' spread along their principal axes, in single precision.
    centre = weights @ candidates
    values, axes = np.linalg.eigh((candidates - centre).T @ (weights[:, None] * (candidates - centre)))
    scale = np.sqrt(np.maximum(values, 1e-12 * values.max()))
    root = np.linalg.cholesky(covariances[0])
    begin = modes[0] + rng.standard_normal((num_particles, size)) @ root.T
    white = [jnp.asarray((a - centre) @ axes / scale, jnp.float32) for a in (begin, candidates)]
    slices = orthogonal_slices(jax.random.key(seed), NUM_SLICES, size)
    moved, left = _move(white[0], white[1], jnp.asarray(weights, jnp.float32), slices)
    ended = centre + (np.asarray(moved, float) * scale) @ axes.T
    with jax.enable_x64(True):
        own = np.asarray(cost(jnp.asarray(ended), data))
        ended = _where_something_is(ended, own, candidates, misfit, weights, (axes / scale))
        x, theta = (np.asarray(a) for a in states(jnp.asarray(ended), data))
    return Particles(np.asarray(numbers.times), x, theta, shares, effective, float(np.sqrt(left)), found)


def _where_something_is(
    particles: np.ndarray, own: np.ndarray, candidates: np.ndarray, misfit: np.ndarray, weights: np.ndarray,
    whiten: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The particles, those that fit worse than nearly all of the posterior at the nearest candidate that does not."""
    order = np.argsort(misfit)
    most = misfit[order[min(np.searchsorted(np.cumsum(weights[order]), 1 - NOWHERE), len(order) - 1)]]
    fits = candidates[misfit <= most]
    lost = ~(own <= most)
    apart = ((particles[lost] @ whiten)[:, None] - fits @ whiten) ** 2
    placed = particles.copy()
    placed[lost] = fits[np.argmin(apart.sum(-1), 1)]
    return placed


def _draw(
    rng: np.random.Generator, modes: np.ndarray, covariances: np.ndarray, squares: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidates of a mixture of multivariate t around the modes, their log-density, and the mode of each."""
    size = modes.shape[1]
    roots = np.linalg.cholesky(covariances) * WIDER
    log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1)
    worth = -0.5 * squares + log_det
    worth = np.exp(worth - worth.max())
    mixture = EVENLY / len(modes) + (1 - EVENLY) * worth / worth.sum()
    drawn = rng.choice(len(modes), count, p=mixture / mixture.sum())
    heavy = np.sqrt(DEGREES / rng.chisquare(DEGREES, count))
    candidates = (
        modes[drawn] + np.einsum("kij,kj->ki", roots[drawn], rng.standard_normal((count, size))) * heavy[:, None]
    )
    logs = []
    for mode, root, det in zip(modes, roots, log_det, strict=True):
        apart = np.linalg.solve(root, (candidates - mode).T)
        logs.append(-det - 0.5 * (DEGREES + size) * np.log1p((apart**2).sum(0) / DEGREES))
    density = np.log(mixture)[:, None] + np.stack(logs)
    # The mode of a candidate is the one nearest to it, not the one it was drawn from.
    top = density.max(0)
    return candidates, top + np.log(np.exp(density - top).sum(0)), np.argmax(np.stack(logs), 0)
