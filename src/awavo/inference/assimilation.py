r"""Infer the trajectory, the parameters and their uncertainty of a local system on a ring or grid from part of its states.

One pass: (1) annealed projection of the data: q falls from `anneal[0]` to `model_noise`; (2) the search for modes; (3) the
posterior at the end: marginal deviations and an ensemble of draws, which are W2 projections of noise-augmented data.
Everything is a projection of the WVI engine (`projection`). Stages are separate calls, so that a run can be stopped
between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.inference.lattice import Lattice, make_lattice, measure_reach
from awavo.inference.modes import Search, local_chi2, segment_length, segment_solver, segments_around
from awavo.inference.projection import project
from awavo.inference.trajectories import Data, Flow, Step, site_cost, tangent_step

__all__ = ["Belief", "Engine", "Settings", "Stand", "System", "assimilate", "first_stand", "make_data", "make_engine"]


class System(NamedTuple):
    """A local system: `flow(x, theta)` maps states [..., *shape] from one time of observation to the next.

    `coarse` may be a cheaper version for the Jacobian; `reach` is how many sites before and after it a site is felt along
    each axis (measured when None). The prior of the first state is N(prior_mean, prior_std^2) in every site.
    """

    shape: tuple[int, ...]
    flow: Flow
    theta: Float[np.ndarray, " p"]
    prior_mean: float
    prior_std: float
    coarse: Flow | None = None
    reach: tuple[tuple[int, int], ...] | None = None


class Settings(NamedTuple):
    """How to infer. `memory_mb` bounds the arrays of the patches solved at once."""

    model_noise: float = 0.03
    anneal: tuple[float, ...] = (2.0, 1.0, 0.5, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.06)
    polish: int = 3
    core: int = 16
    margin: int = 8
    num_draws: int = 16
    infer_theta: bool = False
    search: Search = Search()
    memory_mb: float = 4096.0
    dtype: str = "float32"
    seed: int = 0


class Stand(NamedTuple):
    """Where an inference stands: all that is needed to go on."""

    x: Float[Array, "T I"]
    theta: Float[Array, " p"]
    stage: int


class Belief(NamedTuple):
    """The posterior: mean and deviation of every state, draws around the mean, and the parameters with covariance."""

    mean: Float[np.ndarray, "T I"]
    std: Float[np.ndarray, "T I"]
    draws: Float[np.ndarray, "r T I"]
    theta: Float[np.ndarray, " p"]
    theta_cov: Float[np.ndarray, "p p"]
    chi2: Float[np.ndarray, " I"]


class Engine(NamedTuple):
    """Compiled stages, the same for all observations of one shape.

    `advance(data, x, theta, q)`, `finish(data, key, x, theta)`, `chi2(data, x, theta)`, and on rings
    `explore(data, round, x, theta, segments)`.
    """

    lattice: Lattice
    settings: Settings
    advance: Callable[..., Any]
    finish: Callable[..., Any]
    chi2: Callable[..., Any]
    explore: Callable[..., Any] | None


def _groups(num_sites: int, num_times: int, settings: Settings) -> int:
    side = settings.core + 2 * settings.margin
    chains = -(-num_sites // settings.core)
    need = 3 * num_times * chains * side**2 * np.dtype(settings.dtype).itemsize / 2**20
    return max(1, int(np.ceil(need / settings.memory_mb)))


def make_data(system: System, value: Float[np.ndarray, "K I"], noise_std: float, settings: Settings) -> Data:
    """Arrays of the observations; NaN is one that is missing."""
    dtype, seen = jnp.dtype(settings.dtype), np.isfinite(value)
    fill = jnp.asarray(np.where(seen, value, 0.0), dtype)
    sites = fill.shape[1]
    mean, var = jnp.full(sites, system.prior_mean, dtype), jnp.full(sites, system.prior_std**2, dtype)
    noise = jnp.full_like(fill, settings.model_noise**2)
    return Data(mean, var, fill, jnp.asarray(seen / noise_std**2, dtype), noise)


def make_engine(system: System, num_times: int, settings: Settings) -> Engine:
    """Build the stages for `num_times` observations of the system."""
    dtype, num_sites = jnp.dtype(settings.dtype), int(np.prod(system.shape))
    flow, coarse = system.flow, system.coarse or system.flow
    reach = system.reach or _measured_reach(system, dtype)
    groups = _groups(num_sites, num_times + 1, settings)
    lattice = make_lattice(system.shape, reach, core=settings.core, margin=settings.margin, groups=groups)
    precision = jnp.eye(len(system.theta), dtype=dtype) * 1e-3 if settings.infer_theta else None

    @jax.jit
    def advance(data, x, theta, q):
        def step(at, q):
            relaxed = data._replace(noise=jnp.maximum(data.noise, q**2))
            made = tangent_step(
                lattice, flow, at[0], at[1], relaxed, coarse=coarse, theta_precision=precision, groups=groups
            )
            return made.move, made.theta if settings.infer_theta else jnp.zeros_like(at[1])

        return project(step, (x, theta), q[None], radius=2 * system.prior_std)

    @jax.jit
    def finish(data, key, x, theta):
        return tangent_step(
            lattice, flow, x, theta, data, coarse=coarse, theta_precision=precision, variance=True, key=key,
            num_draws=settings.num_draws, groups=groups,
        )  # fmt: skip

    @jax.jit
    def chi2(data, x, theta):
        # Seams of patches break the model by a little: judged with a deviation that forgives it.
        cost = site_cost(lattice, flow, x, theta, data._replace(noise=jnp.maximum(data.noise, 0.01)))
        return jnp.sum(cost, 0), jnp.sum(data.weight > 0, 0)

    explore = _explorer(system, reach, num_sites, settings) if len(system.shape) == 1 else None
    return Engine(lattice, settings, advance, finish, chi2, explore)


def _measured_reach(system: System, dtype: Any) -> tuple[tuple[int, int], ...]:
    theta = jnp.asarray(system.theta, dtype)
    noise = jax.random.normal(jax.random.key(0), system.shape, dtype)
    return measure_reach(lambda x: system.flow(x, theta), system.prior_mean + system.prior_std * noise)


def _explorer(system: System, reach: Any, num_sites: int, settings: Settings) -> Callable[..., Any]:
    search = settings.search
    solve = segment_solver(system.flow, system.coarse or system.flow, reach, num_sites, search)
    length = segment_length(num_sites, search)
    per_call = max(1, search.slots // (search.starts + 1))

    @jax.jit
    def best_of(data, key, x, theta, firsts):
        sites = (firsts[:, None] + jnp.arange(length)) % num_sites
        fresh = jnp.tile(jnp.arange(search.starts + 1) > 0, per_call)
        keys = jax.random.split(key, len(fresh))
        many = jnp.repeat(sites, search.starts + 1, 0)
        found, cost = jax.vmap(solve, (0, None, None, None, 0, 0))(keys, x, theta, data, many, fresh)
        best = jnp.argmin(cost.reshape(per_call, -1), 1)
        found = found.reshape(per_call, -1, *found.shape[1:])[jnp.arange(per_call), best]
        for i in range(per_call) if per_call <= 8 else ():
            x = x.at[:, sites[i]].set(found[i])
        if per_call > 8:
            x = x.at[:, sites.reshape(-1)].set(jnp.moveaxis(found, 0, 1).reshape(x.shape[0], -1))
        return x, best > 0

    def explore(data, number, x, theta, firsts):
        """Solve the segments that begin at `firsts`, put the best of each in place; return x and how many changed."""
        key, changed = jax.random.fold_in(jax.random.key(settings.seed), number), 0
        for begin in range(0, len(firsts), per_call):
            chosen = firsts[begin : begin + per_call]
            padded = np.concatenate([chosen, np.repeat(chosen[-1:], per_call - len(chosen))])
            x, better = best_of(data, jax.random.fold_in(key, begin), x, theta, jnp.asarray(padded))
            changed += int(np.sum(np.asarray(better)[: len(chosen)]))
        return x, changed

    return explore


def _flagged(engine: Engine, data: Data, x: Array, theta: Array) -> tuple[np.ndarray, np.ndarray]:
    search = engine.settings.search
    cost, count = (np.asarray(a, float) for a in engine.chi2(data, x, theta))
    ratio = local_chi2(cost, count, search.window)
    length = segment_length(len(ratio), search)
    return ratio, segments_around(ratio > search.threshold, length, search.segment - 2 * search.border - 8)


def first_stand(data: Data, theta: Float[np.ndarray, " p"]) -> Stand:
    """Begin at the observations, and at the prior's mean where there is none."""
    start = jnp.where(data.weight > 0, data.value, data.prior_mean)
    return Stand(jnp.concatenate([start[:1], start]), jnp.asarray(theta, start.dtype), 0)


def assimilate(engine: Engine, data: Data, stand: Stand) -> Iterator[tuple[Stand | Belief, str]]:
    """Yield `(stand, text)` after every stage; the last item is `(belief, text)`.

    A stand may be kept and handed in again: what follows is the same as if nothing had stopped.
    """
    settings, (x, theta, stage) = engine.settings, stand
    schedule = [*settings.anneal, *[settings.model_noise] * settings.polish]
    rounds = settings.search.rounds if engine.explore is not None else 0
    end, last = jnp.asarray(settings.model_noise, x.dtype), len(schedule) + rounds
    while stage < len(schedule):
        q = max(schedule[stage], settings.model_noise)
        x, theta = engine.advance(data, x, theta, jnp.asarray(q, x.dtype))
        stage += 1
        yield Stand(x, theta, stage), f"annealing, q = {q:g}"
    while stage < last and engine.explore is not None:
        _, firsts = _flagged(engine, data, x, theta)
        if len(firsts) == 0:
            break
        x, changed = engine.explore(data, stage, x, theta, firsts)
        x, theta = engine.advance(data, x, theta, end)
        stage = stage + 1 if changed else last
        yield Stand(x, theta, stage), f"modes: {len(firsts)} regions, {changed} better"
    for _ in range(2):
        x, theta = engine.advance(data, x, theta, end)
    key = jax.random.fold_in(jax.random.key(settings.seed), 10_000)
    yield _belief(engine, data, x, theta, engine.finish(data, key, x, theta)), "posterior"


def _belief(engine: Engine, data: Data, x: Array, theta: Array, end: Step) -> Belief:
    ratio, _ = _flagged(engine, data, x, theta)
    mean, inferred = np.asarray(x + end.move), engine.settings.infer_theta
    std = np.sqrt(np.maximum(np.asarray(end.variance), 0.0))
    covariance = np.linalg.inv(np.asarray(end.information)) if inferred else np.zeros((len(theta),) * 2)
    theta = np.asarray(theta + end.theta if inferred else theta)
    return Belief(mean, std, mean + np.asarray(end.draws), theta, covariance, ratio)
