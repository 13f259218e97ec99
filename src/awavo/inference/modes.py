r"""The search for the right mode where a projection got stuck: segments of the ring, many starts, the best one kept.

A region in a wrong mode shows as a local :math:`\chi^2` (squared residuals over observations) above one. Around each
such region a segment is cut out, closed to a ring of its own with the model mistrusted at the seam, and solved from
several starts, of which the present solution is one. Its ends are tied to the solution around, loosely, as that is
uncertain itself. The inner part of the start with the least squares takes the present one's place.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from awavo.inference.lattice import make_lattice
from awavo.inference.projection import project
from awavo.inference.trajectories import Data, Flow, site_cost, tangent_step

__all__ = ["Search", "local_chi2", "segment_length", "segment_solver", "segments_around"]

# Variances of the model at the seam and of the ends around the present solution; much smaller ones upset float32.
SEAM_NOISE, TIE = 25.0, 0.05


class Search(NamedTuple):
    """Settings of the search.

    Sites whose local chi2 is above `threshold` are searched; each search that a site has seen raises its threshold by
    the factor `patience`, as some exceed it by chance. A fresh start falls through the deviations `anneal`, scaled by
    a factor of its own between 0.4 and 1.6; every start ends with `polish` steps. `slots` starts are solved at once.
    """

    rounds: int = 12
    starts: int = 2
    segment: int = 48
    border: int = 10
    threshold: float = 1.25
    patience: float = 1.1
    window: int = 5
    slots: int = 8
    anneal: tuple[float, ...] = (2.0, 1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.06)
    polish: int = 3


def local_chi2(cost: Float[np.ndarray, " I"], count: Float[np.ndarray, " I"], window: int) -> Float[np.ndarray, " I"]:
    """Squared residuals over observations within `window` sites of each; `cost` and `count` are sums over time."""

    def box(a):
        wide = np.concatenate([a[-window:], a, a[:window]]) if len(a) > 2 * window else np.tile(a, 3)
        if len(a) <= 2 * window:
            return np.full(len(a), a.sum())
        return np.convolve(wide, np.ones(2 * window + 1), "valid")

    return box(np.nan_to_num(cost, nan=1e9, posinf=1e9)) / np.maximum(box(count), 1.0)


def segments_around(bad: np.ndarray, length: int, free: int) -> Int[np.ndarray, " S"]:
    """First sites of segments of `length` whose inner `free` sites cover the bad ones, each region in the middle."""
    num = len(bad)
    places = np.flatnonzero(bad)
    if len(places) == 0:
        return np.zeros(0, int)
    if num <= length:
        return np.zeros(1, int)
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


def segment_length(num_sites: int, search: Search) -> int:
    """Sites of a segment: the whole ring when it is hardly longer."""
    return num_sites if num_sites <= search.segment + 2 * search.border else search.segment


def segment_solver(flow: Flow, coarse: Flow, reach: tuple[tuple[int, int], ...], num_sites: int, search: Search):
    """Return `solve(key, x, theta, data, sites) -> (x, cost)` of one start on one segment; batch it with vmap.

    `sites` are the segment's sites. Without a key the present solution is polished and judged. A ring that is one
    segment has no seam.
    """
    length = segment_length(num_sites, search)
    lattice = make_lattice((length,), reach, core=length)
    inner, sound = np.ones(length, bool), np.ones(length, bool)
    if length < num_sites:
        before, after = (round(0.6 * r) for r in reach[0])
        inner[: search.border] = inner[-search.border :] = False
        sound[:after] = sound[length - before :] = False
    inner, sound = jnp.asarray(inner), jnp.asarray(sound)

    def solve(key, x, theta, data: Data, sites):
        x = x[:, sites]
        own = Data(*(a[..., sites] for a in data))
        tied = Data(
            jnp.where(inner, own.prior_mean, x[0]), jnp.where(inner, own.prior_var, TIE),
            jnp.where(inner, own.value, x[1:]), jnp.where(inner, own.weight, 1 / TIE), own.noise,
        )  # fmt: skip
        start, schedule = x, jnp.zeros(search.polish, x.dtype)
        if key is not None:
            noise_key, scale_key = jax.random.split(key)
            climate = own.prior_mean + jnp.sqrt(own.prior_var) * jax.random.normal(noise_key, x.shape, x.dtype)
            seen = jnp.concatenate([own.weight[:1], own.weight]) > 0
            start = jnp.where(seen, jnp.concatenate([own.value[:1], own.value]), climate)
            scale = jnp.exp(jax.random.uniform(scale_key, (), x.dtype, -0.9, 0.5))
            schedule = jnp.concatenate([scale * jnp.asarray(search.anneal, x.dtype), schedule])
            start = jnp.where(inner, start, x)

        def relaxed(q):
            return tied._replace(noise=jnp.where(sound, jnp.maximum(q**2, own.noise), SEAM_NOISE))

        def step(x, q):
            return tangent_step(lattice, flow, x, theta, relaxed(q), coarse=coarse).move

        found = project(step, start, schedule, radius=2 * jnp.max(jnp.sqrt(own.prior_var)))
        cost = jnp.sum(jnp.where(sound, site_cost(lattice, flow, found, theta, relaxed(0.0)), 0.0))
        return jnp.where(inner, found, x), jnp.where(jnp.isfinite(cost), cost, jnp.inf)

    return solve
