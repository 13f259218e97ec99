"""The compiled stages of an inference on a lattice: advance, measure the misfit, search, finish."""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Float

from awavo.assimilation.descent import CHEAP
from awavo.assimilation.lattice import Lattice, Reach, make_lattice, measure_reach
from awavo.assimilation.modes import SearchSettings, inner_sites, segment_length, segment_search
from awavo.assimilation.nearby import Nearby, farthest, make_nearby, relaxed, share_taken
from awavo.assimilation.projection import project
from awavo.assimilation.system import System
from awavo.assimilation.trajectories import Data, site_cost, tangent_step
from awavo.errors import InputError

__all__ = [
    "Engine", "Later", "Settings", "System", "compile_engine", "make_data", "make_engine", "measured_reach",
    "reuse_engine", "seconds_later",
]  # fmt: skip

# Standard deviation of the model that its seams between patches are forgiven, in units of `Settings`: on rings, where a
# misfit starts a search, and elsewhere, where it is a verdict.
SEAMS, WIDE_SEAMS = 0.1, 0.3
# Margins over the shorter reach that joined steps need (Lorenz-96, reach 5 and 10: 8 is enough; Kuramoto-Sivashinsky,
# 12 both ways: 20, at four times the work).
JOINED_MARGIN = 1.5
# Sites from which on a ring is long, on the platforms where that was measured: where only some places of it change,
# steps are taken around these alone. On shorter rings compiling these takes longer than they save.
LONG = {"cpu": 7_000}
# What runs often is compiled nearly as well as can be, in a quarter less time.
BRISK = {"xla_backend_optimization_level": "1"}
# What the patches of a ring that a CPU solves together may take: eight of them over 32 times, in single precision.
CACHE_MB = 3.2
# Compiled engines that are kept.
KEPT = 8
# Standard deviation of the prior of parameters that are inferred without a `theta_std`.
WIDE_STD = 30.0


class Settings(NamedTuple):
    """How to infer.

    Args:
        model_noise: Standard deviation of the error of the dynamics in one step.
        anneal: Model noises of the first stages, from loose to tight.
        polish: Stages at the end, with the noise of the model itself.
        core: Sites of a patch that it decides.
        margin: Sites around them that it solves with them.
        num_draws: Draws from the posterior, for its intervals.
        infer_theta: Infer the parameters of the dynamics too: those with a `theta_std`, or all with one of 30.
        search: How regions left in a wrong mode are searched.
        memory_mb: Bound on the arrays of the patches solved at once.
        tightness: Share of the smallest model noises (0.03 of the search, 0.1 at seams) where noise is small.
        dtype: "float32" or "float64".
        seed: Seed of the search and of the draws.
    """

    model_noise: float = 0.01
    anneal: tuple[float, ...] = (2.0, 1.0, 0.5, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.06)
    polish: int = 3
    core: int = 16
    margin: int = 8
    num_draws: int = 16
    infer_theta: bool = False
    search: SearchSettings = SearchSettings()
    memory_mb: float = 4096.0
    tightness: float = 1.0
    dtype: str = "float32"
    seed: int = 0


class Engine(NamedTuple):
    """Stages for all observations of one shape, as `jax.jit` makes them; `compile_engine` puts compiled ones in place.

    `advance(data, x, theta, q, joined)`, `chi2(data, x, theta)`, `finish(data, key, x, theta)`, and on rings
    `search(data, key, starts, x, theta, firsts)`. On long rings `nearby` takes the steps of `advance` in some places.
    """

    lattice: Lattice
    settings: Settings
    advance: Any
    chi2: Any
    search: Any
    finish: Any
    joins: bool = True  # whether joined steps converge here
    nearby: Nearby | None = None


def _groups(shape: tuple[int, ...], num_times: int, settings: Settings) -> int:
    """In how many parts to solve the patches: three arrays [times, patches, n, n] must fit into `memory_mb`.

    On a CPU those of a ring into its cache too, as far as one patch allows: its products wait for memory otherwise.
    """
    side, chains = settings.core + 2 * settings.margin, -(-int(np.prod(shape)) // settings.core)
    need = 3 * num_times * side**2 * np.dtype(settings.dtype).itemsize / 2**20
    cached = len(shape) == 1 and jax.default_backend() == "cpu"
    bound = min(settings.memory_mb, CACHE_MB) if cached else settings.memory_mb
    return -(-chains // max(1, int(bound / need)))


def make_data(
    system: System, value: Float[np.ndarray, "K I"], noise_std: float | np.ndarray, settings: Settings
) -> Data:
    """Arrays of the observations; NaN is one that is missing. Noise is a number, or one per observation."""
    dtype, seen = jnp.dtype(settings.dtype), np.isfinite(value)
    fill = jnp.asarray(np.where(seen, value, 0.0), dtype)
    sites = fill.shape[1]
    mean, std, own = (
        np.broadcast_to(np.asarray(a, float).reshape(-1), (sites,))
        for a in (system.prior_mean, system.prior_std, system.model_noise)
    )
    model = np.broadcast_to(np.maximum(own, settings.model_noise) ** 2, fill.shape)
    weight = seen / np.where(seen, noise_std, 1.0) ** 2
    theta = np.asarray(system.theta, float).reshape(-1)
    theta_std = np.broadcast_to(np.asarray(system.theta_std, float).reshape(-1), theta.shape)
    theta_std = theta_std if theta_std.any() else np.full(theta.shape, WIDE_STD)
    numbers = (mean, std**2, fill, weight, model, theta, theta_std)
    return Data(*(jnp.asarray(a, dtype) for a in numbers))


def make_engine(system: System, num_times: int, settings: Settings) -> Engine:
    """Build the stages for `num_times` observations of the system."""
    dtype, num_sites = jnp.dtype(settings.dtype), int(np.prod(system.shape))
    flow, coarse = system.flow, system.coarse or system.flow
    reach = system.reach or measured_reach(system, dtype)
    groups = _groups(system.shape, num_times + 1, settings)
    lattice = make_lattice(system.shape, reach, core=settings.core, margin=settings.margin, groups=groups)
    joins = len(lattice.patch_site) > 1 and all(settings.margin >= JOINED_MARGIN * min(pair) for pair in reach)

    on_cpu = jax.default_backend() == "cpu"
    often, once = (BRISK, CHEAP) if on_cpu else (None, None)

    @partial(jax.jit, compiler_options=often)
    def advance(data, x, theta, q, joined):
        def step(at, q):
            made = tangent_step(
                lattice, flow, at[0], at[1], relaxed(data, q), coarse=coarse, infer_theta=settings.infer_theta,
                groups=groups, joined=joined if joins else None,
            )  # fmt: skip
            share = share_taken(joined)
            return share * made.move, share * made.theta if settings.infer_theta else jnp.zeros_like(at[1])

        return project(step, (x, theta), q[None], radius=(farthest(data), 2 * data.theta_std))

    alike = len(system.shape) == 1 and system.layout != "lattice"
    forgiven = ((SEAMS if alike else WIDE_SEAMS) * settings.tightness) ** 2

    @partial(jax.jit, compiler_options=once)
    def finish(data, key, x, theta):
        return tangent_step(
            lattice, flow, x, theta, data, coarse=coarse, infer_theta=settings.infer_theta, variance=True, key=key,
            num_draws=settings.num_draws, groups=groups,
        )  # fmt: skip

    @partial(jax.jit, compiler_options=often)
    def chi2(data, x, theta):
        # Seams of patches break the model by a little.
        cost = site_cost(lattice, flow, x, theta, data._replace(noise=jnp.maximum(data.noise, forgiven)))
        return jnp.sum(cost, 0), jnp.sum(data.weight > 0, 0)

    search = _search(system, reach, num_sites, settings) if alike else None
    near = alike and not settings.infer_theta and num_sites >= LONG.get(jax.default_backend(), np.inf)
    nearby = make_nearby(system, lattice, joins, often) if near else None
    return Engine(lattice, settings, advance, chi2, search, finish, joins, nearby)


def measured_reach(system: System, dtype: jnp.dtype) -> Reach:
    """How far a site is felt, at a draw of the prior."""
    theta = jnp.asarray(system.theta, dtype)
    noise = jax.random.normal(jax.random.key(0), system.shape, dtype)
    mean, std = (jnp.broadcast_to(jnp.asarray(a, dtype), system.shape) for a in (system.prior_mean, system.prior_std))
    return measure_reach(lambda x: system.flow(x, theta), mean + std * noise)


def _check_segments(system: System, length: int) -> None:
    """Refuse a ring whose flow cannot be run on a part of it."""
    part = jax.ShapeDtypeStruct((2, length), jnp.float32)
    theta = jax.ShapeDtypeStruct(np.shape(system.theta), jnp.float32)
    try:
        shape = jax.eval_shape(system.flow, part, theta).shape
    except (TypeError, ValueError):
        shape = None
    if shape != part.shape:
        raise InputError(
            f"layout='ring': the flow does not run on a ring of {length} sites, as its parts are solved alone: let it "
            "follow the shape of its states and be alike at every site, or give layout='lattice'."
        )


def _search(system: System, reach: Reach, num_sites: int, settings: Settings) -> Wrapped:
    search = settings.search
    _check_segments(system, segment_length(num_sites, search))
    solve = segment_search(system.flow, system.coarse or system.flow, reach, num_sites, search)
    length, inner = segment_length(num_sites, search), inner_sites(num_sites, search)

    @partial(jax.jit, compiler_options=BRISK if jax.default_backend() == "cpu" else None)
    def best_of(data, key, starts, x, theta, firsts):
        """Solve the segments that begin at `firsts`; each site goes to the one with the least squares."""
        sites = (firsts[:, None] + jnp.arange(length)) % num_sites
        count = len(firsts)
        keys = jax.random.split(key, count)
        found, cost, better = jax.vmap(solve, (0, None, None, None, None, 0))(keys, starts, x, theta, data, sites)
        # Rank 0 is the best segment; `owner` is the best rank that decides a site, `num_sites` no place at all.
        rank = jnp.argsort(jnp.argsort(cost))[:, None]
        owner = jnp.full(num_sites, count).at[sites].min(jnp.where(inner, rank, count))
        target = jnp.where(inner & (owner[sites] == rank), sites, num_sites)
        return x.at[:, target].set(jnp.moveaxis(found, 0, 1), mode="drop"), better

    return best_of


class Later:
    """A stage that is compiled for each shape of its last argument when that first comes; `seconds` is what it took.

    `made` are those that are compiled already.
    """

    def __init__(self, program: Wrapped, made: dict[Any, Any]) -> None:
        self.program, self.seconds, self.made = program, 0.0, made

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        shapes = _shapes(arguments[-1])
        if shapes not in self.made:
            began = time.perf_counter()
            self.made[shapes] = self.program.lower(*arguments).compile()
            self.seconds += time.perf_counter() - began
        return self.made[shapes](*arguments)


def _shapes(argument: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(np.shape(a) for a in jax.tree.leaves(argument))


def seconds_later(engine: Engine) -> float:
    """Seconds that compiling stages took when they were first used."""
    stages = (engine.search, None if engine.nearby is None else engine.nearby.advance)
    return sum(stage.seconds for stage in stages if isinstance(stage, Later))


def compile_engine(
    engine: Engine, data: Data, theta: Float[np.ndarray, " p"], *, search_later: bool = False
) -> tuple[Engine, float]:
    """Compile every stage for the shapes of these data; return them and the seconds it took.

    With `search_later` the search and the steps after it are compiled when some region first needs them: many
    inferences never do.
    """
    began = time.perf_counter()
    x = jax.ShapeDtypeStruct((data.value.shape[0] + 1, data.value.shape[1]), data.value.dtype)
    at = jnp.asarray(theta, x.dtype)
    key, firsts, one = jax.random.key(0), jnp.zeros(engine.settings.search.slots, int), jnp.ones((), x.dtype)
    near = None if engine.nearby is None else engine.nearby.choose(np.zeros(x.shape[1], bool))
    stages = {
        "advance": engine.advance.lower(data, x, at, one, one),
        "chi2": engine.chi2.lower(data, x, at),
        "finish": engine.finish.lower(data, key, x, at),
    }
    if engine.search is not None and not search_later:
        stages["search"] = engine.search.lower(data, key, jnp.asarray(1, jnp.int32), x, at, firsts)
    if engine.nearby is not None and not search_later:
        stages["nearby"] = engine.nearby.advance.lower(data, x, at, one, one, near)
    with ThreadPoolExecutor(2) as pool:
        made: dict[str, Any] = dict(zip(stages, pool.map(lambda a: a.compile(), stages.values()), strict=True))
    if engine.search is not None:
        made["search"] = Later(engine.search, {_shapes(firsts): made["search"]} if "search" in made else {})
    if engine.nearby is not None:
        advance = Later(engine.nearby.advance, {_shapes(near): made["nearby"]} if "nearby" in made else {})
        made["nearby"] = engine.nearby._replace(advance=advance)
    return engine._replace(**made), time.perf_counter() - began


_engines: OrderedDict[Any, Engine] = OrderedDict()


def reuse_engine(system: System, data: Data, settings: Settings) -> tuple[Engine, float]:
    """The compiled engine of this system, observations of this shape and these settings; made once, then kept.

    Returns it and the seconds that compiling took, 0 where it was there. Numbers (priors, parameters, model noise,
    seed) may differ between calls; the flow must be the same function.
    """
    fixed = settings._replace(seed=0, model_noise=0.0)
    key = (
        system.shape, system.flow, system.coarse, system.reach, system.layout, np.size(system.theta), data.value.shape,
        fixed, jax.config.read("jax_enable_x64"),
    )  # fmt: skip
    spent = 0.0
    if key not in _engines:
        made, spent = compile_engine(
            make_engine(system, data.value.shape[0], settings), data, system.theta, search_later=True
        )
        _engines[key] = made
        if len(_engines) > KEPT:
            _engines.popitem(last=False)
    _engines.move_to_end(key)
    return _engines[key]._replace(settings=settings), spent
