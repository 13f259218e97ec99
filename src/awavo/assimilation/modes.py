r"""The search for the right mode where a projection got stuck: segments of the ring, many starts, the best one kept.

A region in a wrong mode shows as a local :math:`\chi^2` (squared residuals over observations) above one. Around each
such region a segment is cut out, closed to a ring of its own with the model mistrusted at the seam, and solved from
several starts, of which the present solution is one. Its ends are tied to the solution around, loosely, as that is
uncertain itself. The inner part of the start with the least squares takes the present one's place.

In hard regions (many neighbours hidden) hardly any start is right at all times, but most are right at some, with a
break of the model between. So the starts are joined: a mosaic takes at each time the states of the start that fits best
around it, and is solved from there. That finds in eight starts what eight separate ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num

from awavo.assimilation.fit import BEYOND, excess
from awavo.assimilation.lattice import Reach, make_lattice
from awavo.assimilation.projection import project
from awavo.assimilation.trajectories import Data, Flow, site_cost, tangent_step

__all__ = [
    "STARTS_PER_JOIN", "SearchSettings", "believed_sites", "default_slots", "inner_sites", "local_chi2",
    "segment_length", "segment_search", "segments_around", "segments_at_once", "sites_near",
]  # fmt: skip

# Variances of the model at the seam and of the ends around the present solution; much smaller ones upset float32.
SEAM_NOISE, TIE = 25.0, 0.05
STARTS_PER_JOIN = 3
# A mosaic compares starts with this standard deviation of the model, by squares up to BROKEN (a break is a break), over
# NEAR times on either side.
MOSAIC_NOISE, BROKEN, NEAR = 0.1, 9.0, 2
# Places of the smaller of two programs, where `slots` are more.
FEW = 512


class SearchSettings(NamedTuple):
    """Settings of the search.

    Sites whose local chi2 is above `threshold` are searched; each search that a site has seen raises its threshold by
    the factor `patience`, as some exceed it by chance, up to `certain`, which none does. A fresh start falls through
    the standard deviations `anneal`, scaled by a factor of its own between 0.4 and 1.6; every start ends with `polish`
    steps at `floor`. A round has `starts` fresh starts for each segment (the last entry holds from there on), then a
    mosaic for every three of them, each annealed from entry `join_from`. `slots` segments are solved at once, or fewer
    where fewer are left (`segments_at_once`).
    """

    rounds: int = 8
    starts: tuple[int, ...] = (2, 4, 8, 12)
    join_from: int = 2
    segment: int = 48
    border: int = 10
    threshold: float = 1.25
    patience: float = 1.1
    certain: float = 1.7
    window: int = 5
    slots: int = 4
    anneal: tuple[float, ...] = (2.0, 1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.06)
    polish: int = 3
    floor: float = 0.03


def _around(a: np.ndarray, window: int) -> np.ndarray:
    """Sums over the sites within `window` of each on the ring."""
    if len(a) <= 2 * window:
        return np.full(len(a), a.sum())
    return np.convolve(np.concatenate([a[-window:], a, a[:window]]), np.ones(2 * window + 1), "valid")


def local_chi2(cost: Float[np.ndarray, " I"], count: Num[np.ndarray, " I"], window: int) -> Float[np.ndarray, " I"]:
    """Squared residuals over observations within `window` sites of each; `cost` and `count` are sums over time."""
    return _around(np.nan_to_num(cost, nan=1e9, posinf=1e9), window) / np.maximum(_around(count, window), 1.0)


def believed_sites(cost: Float[np.ndarray, " I"], count: Num[np.ndarray, " I"], window: int) -> Bool[np.ndarray, " I"]:
    """Sites that no window with a misfit beyond chance holds: in one that does the posterior may be of a wrong mode."""
    inside = _around(count, window)
    wrong = excess(local_chi2(cost, count, window) * inside, inside) > BEYOND
    return np.asarray(_around(wrong.astype(float), window) < 0.5)


def unseen_holes(count: Num[np.ndarray, " I"], window: int) -> Bool[np.ndarray, " I"]:
    """Sites of a ring in a hole so wide that a window in it holds no observation: no misfit could show there."""
    return np.asarray(_around((_around(count, window) < 1).astype(float), window) > 0.5)


def segments_around(bad: np.ndarray, length: int, free: int) -> Int[np.ndarray, " S"]:
    """First sites of segments of `length` whose inner `free` sites cover the bad ones, each region in the middle."""
    num = len(bad)
    places = np.flatnonzero(bad)
    if len(places) == 0:
        return np.zeros(0, int)
    if num <= length:
        return np.zeros(1, int)
    # Begin after the widest gap, so that no region is cut where the numbering wraps.
    gaps = np.diff(np.concatenate([places, places[:1] + num]))
    turn = (int(np.argmax(gaps)) + 1) % len(places)
    places = (np.concatenate([places[turn:], places[:turn] + num])).astype(int)
    starts, first = [], 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] - places[first] >= free:
            middle = (places[first] + places[i - 1]) // 2
            starts.append((middle - length // 2) % num)
            first = i
    return np.asarray(starts)


def sites_near(wrong: Bool[np.ndarray, " I"], distance: int) -> Bool[np.ndarray, " I"]:
    """Sites of the ring within a distance of a wrong one."""
    return np.asarray(_around(wrong.astype(float), distance) > 0.5)


def default_slots(num_sites: int, platform: str) -> int:
    """How many segments to search at once: few on a CPU; where cores are many, as many as keep them busy."""
    return 4 if platform == "cpu" else int(min(max(num_sites // 64, 64), 2048))


def segments_at_once(num: int, starts: int, slots: int) -> Iterator[tuple[int, int]]:
    """Where to begin and how many places to take, until all segments had one: few where all starts find room in them.

    Places to spare share the starts of a segment, down to those of one mosaic; from there on they are wasted.
    """
    few, begin = min(FEW, slots), 0
    while begin < num:
        count = few if (num - begin) * starts <= few * STARTS_PER_JOIN else slots
        yield begin, count
        begin += count


def segment_length(num_sites: int, search: SearchSettings) -> int:
    """Sites of a segment: the whole ring when it is hardly longer."""
    return num_sites if num_sites <= search.segment + 2 * search.border else search.segment


def inner_sites(num_sites: int, search: SearchSettings) -> Bool[np.ndarray, " n"]:
    """The sites of a segment that a search decides: all but its borders."""
    length = segment_length(num_sites, search)
    inner = np.ones(length, bool)
    if length < num_sites:
        inner[: search.border] = inner[-search.border :] = False
    return inner


def segment_search(
    flow: Flow, coarse: Flow, reach: Reach, num_sites: int, search: SearchSettings
) -> Callable[[Array, Array, Array, Array, Data, Array], tuple[Array, Array, Array]]:
    """Return `best_of(key, starts, x, theta, data, sites) -> (x, cost, better)` for one segment; batch it with vmap.

    `sites` are the segment's sites. The present solution is polished and measured first, then as many fresh `starts`
    and the mosaics; `better` says whether one of those won. A ring that is one segment has no seam.
    """
    length = segment_length(num_sites, search)
    lattice = make_lattice((length,), reach, core=length)
    inner, sound = inner_sites(num_sites, search), np.ones(length, bool)
    if length < num_sites:
        # Across the seam the cut-out ring joins sites that are no neighbours: most of the reach is mistrusted there.
        before, after = (round(0.6 * r) for r in reach[0])
        sound[:after] = sound[length - before :] = False
    inner, sound = jnp.asarray(inner), jnp.asarray(sound)

    def best_of(key, starts, x: Array, theta, data: Data, sites):
        x = x[:, sites]
        own = Data(*(a[..., sites] for a in data[:5]))  # theta is held here
        tied = Data(
            jnp.where(inner, own.prior_mean, x[0]), jnp.where(inner, own.prior_var, TIE),
            jnp.where(inner, own.value, x[1:]), jnp.where(inner, own.weight, 1 / TIE), own.noise,
        )  # fmt: skip
        seen = jnp.concatenate([own.weight[:1], own.weight]) > 0
        value = jnp.concatenate([own.value[:1], own.value])
        falling = jnp.asarray([*search.anneal, *[0.0] * search.polish], x.dtype)

        def fresh(key) -> tuple[Array, Array]:
            noise_key, scale_key = jax.random.split(key)
            climate = own.prior_mean + jnp.sqrt(own.prior_var) * jax.random.normal(noise_key, x.shape, x.dtype)
            scale = jnp.exp(jax.random.uniform(scale_key, (), x.dtype, -0.9, 0.5))
            return jnp.where(inner, jnp.where(seen, value, climate), x), scale

        def relaxed(q):
            return tied._replace(
                noise=jnp.where(sound, jnp.maximum(jnp.maximum(q, search.floor) ** 2, own.noise), SEAM_NOISE)
            )

        def step(x, q):
            return tangent_step(lattice, flow, x, theta, relaxed(q), coarse=coarse).move

        def misfit(found) -> Array:
            """At each time, how badly it and its neighbours fit; a break counts, how wide it is does not."""
            cost = jnp.minimum(site_cost(lattice, flow, found, theta, relaxed(MOSAIC_NOISE)), BROKEN)
            total = jnp.convolve(jnp.sum(jnp.where(inner, cost, 0.0), 1), jnp.ones(2 * NEAR + 1, x.dtype))
            return total[NEAR : NEAR + len(x)]

        def attempt(number, carry):
            best, (mosaic, least) = carry
            start, scale = fresh(jax.random.fold_in(key, number))
            # 0 the present solution, 1 a fresh start, 2 a mosaic of what was found so far.
            kind = (number > 0) + (number > starts).astype(int)
            start = jnp.stack([x, start, mosaic])[kind]
            first = jnp.asarray([len(search.anneal), 0, search.join_from])[kind]
            radius = 2 * jnp.max(jnp.sqrt(own.prior_var))
            found = project(step, start, jnp.where(kind == 1, scale, 1.0) * falling, radius=radius, first=first)
            cost = jnp.sum(jnp.where(sound, site_cost(lattice, flow, found, theta, relaxed(0.0)), 0.0))
            made = (jnp.where(inner, found, x), jnp.where(jnp.isfinite(cost), cost, jnp.inf), number > 0)
            best = jax.tree.map(lambda new, old: jnp.where(made[1] < best[1], new, old), made, best)
            local = misfit(found)
            mosaic = jnp.where((local < least)[:, None], found, mosaic)
            return best, (mosaic, jnp.fmin(local, least))

        # One loop over all starts and steps: the step is compiled once.
        worst = ((x, jnp.asarray(jnp.inf, x.dtype), False), (x, jnp.full(len(x), jnp.inf, x.dtype)))
        return lax.fori_loop(0, 1 + starts + starts // STARTS_PER_JOIN, attempt, worst)[0]

    return best_of
