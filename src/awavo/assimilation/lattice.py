r"""Sites on a ring or a periodic grid: patches that overlap, and colours that let one probe test many sites.

A map is local if site i of its result depends on sites within a reach of i alone. Its Jacobian then follows from one
tangent per colour, where two sites of one colour never touch the same site of the result (Curtis, Powell, Reid 1974).
Patches are boxes of core sites, which share out the lattice, with a margin around them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from awavo.errors import InputError

__all__ = ["Lattice", "Reach", "cut_out_patch", "make_lattice", "measure_reach"]

# For each axis, how many sites before and after it a site is felt.
Reach: TypeAlias = tuple[tuple[int, int], ...]


class Lattice(NamedTuple):
    """Index tables (host arrays, but for the colours of a patch that is cut out). Sites are numbered row by row.

    `colour[i]` is the probe of site i; `patch_site[p, s]` are the sites of a patch, `core[p, s]` is 1 for those that
    the patch decides;
    `within[r, c]` is 1 where site c of a patch reaches site r; `home[i]` is the place of site i in the flattened cores.
    """

    shape: tuple[int, ...]
    reach: Reach
    num_colours: int
    colour: Int[Array | np.ndarray, " I"]
    patch_site: Int[np.ndarray, "P n"]
    core: Float[np.ndarray, "P n"]
    within: Float[np.ndarray, "n n"]
    home: Int[np.ndarray, " I"]


def measure_reach(flow: Callable[[Array], Array], x: Float[Array, "*shape"], tolerance: float = 1e-3) -> Reach:
    """How far one site's change is felt along each axis, before and after it: the entries above `tolerance`.

    Tangents at a few sites of the given state; what lies below the tolerance (of the largest entry) is left out.
    """
    shape = x.shape
    places = [tuple(rng) for rng in np.random.default_rng(0).integers(0, shape, (min(16, x.size), len(shape)))]
    reach = np.zeros((len(shape), 2), int)
    tangent = jax.jit(lambda v: jax.jvp(flow, (x,), (v,))[1])
    for place in places:
        felt = np.abs(np.asarray(tangent(jnp.zeros_like(x).at[place].set(1.0))))
        hit = np.argwhere(felt > tolerance * felt.max())
        for axis, size in enumerate(shape):
            # The shorter way round the ring.
            offset = (hit[:, axis] - place[axis] + size // 2) % size - size // 2
            reach[axis] = np.maximum(reach[axis], [-offset.min(), offset.max()])
    return tuple((int(a), int(b)) for a, b in reach)


def _axis_colours(size: int, spacing: int) -> np.ndarray:
    """Number the sites of an axis so that equal numbers are at least `spacing` apart, around the ring too."""
    blocks = max(size // spacing, 1)
    edges = np.linspace(0, size, blocks + 1).astype(int)
    return np.concatenate([np.arange(b - a) for a, b in itertools.pairwise(edges)])


def _axis_patches(size: int, core: int, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """Sites [patches, n] along one axis and which of them are core: one patch for a short axis."""
    if size <= 2 * (core + 2 * margin):
        return np.arange(size)[None], np.ones((1, size))
    count = -(-size // core)
    edges = np.linspace(0, size, count + 1).astype(int)
    longest = int(np.diff(edges).max())
    offset = np.arange(-margin, longest + margin)
    sites = (edges[:-1, None] + offset) % size
    return sites, ((offset >= 0) & (offset < np.diff(edges)[:, None])).astype(float)


def _product(tables: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Row-major site numbers of all combinations of per-axis tables [a_i, b_i]: [prod a, prod b]."""
    result = np.zeros((1, 1), int)
    for table, size in zip(tables, shape, strict=True):
        result = (result[:, None, :, None] * size + table[None, :, None, :]).reshape(
            result.shape[0] * table.shape[0], result.shape[1] * table.shape[1]
        )
    return result


def make_lattice(shape: tuple[int, ...], reach: Reach, *, core: int = 16, margin: int = 8, groups: int = 1) -> Lattice:
    """Build the tables for a ring (one axis) or a periodic grid, given how far the map reaches along each axis."""
    if len(shape) != len(reach):
        raise InputError(f"the lattice has {len(shape)} axes but the reach names {len(reach)}: give one pair per axis.")
    for size, (before, after) in zip(shape, reach, strict=True):
        if size < before + after + 1:
            raise InputError(f"an axis of {size} sites is shorter than the map's reach {before + after + 1}: use more.")
    colours, patches, cores = [], [], []
    for size, (before, after) in zip(shape, reach, strict=True):
        colours.append(_axis_colours(size, before + after + 1))
        sites, inner = _axis_patches(size, core, margin)
        patches.append(sites)
        cores.append(inner)
    counts = [int(c.max()) + 1 for c in colours]
    colour = _product([c[:, None] for c in colours], tuple(counts))[:, 0]
    patch_site = _product(patches, shape)
    # Groups that do not come out even are filled up with patches that decide nothing.
    patch_site = np.concatenate([patch_site, patch_site[:1].repeat(-len(patch_site) % groups, 0)])
    inner = np.ones((1, 1))
    for table in cores:
        inner = (inner[:, None, :, None] * table[None, :, None, :]).reshape(len(inner) * len(table), -1)
    # All patches are alike: one mask of the Jacobian's entries serves them all.
    within = np.ones((patch_site.shape[1], patch_site.shape[1]), np.float32)
    places = np.unravel_index(patch_site[0], shape)
    for axis, (size, (before, after)) in enumerate(zip(shape, reach, strict=True)):
        gap = (places[axis][:, None] - places[axis] + before) % size - before
        within *= (gap >= -before) & (gap <= after)
    home = np.zeros(int(np.prod(shape)), int)
    where = np.argwhere(inner > 0)
    home[patch_site[where[:, 0], where[:, 1]]] = where[:, 0] * patch_site.shape[1] + where[:, 1]
    return Lattice(shape, reach, int(np.prod(counts)), colour, patch_site, inner.astype(np.float32), within, home)


def cut_out_patch(lattice: Lattice, before: int, after: int) -> Lattice:
    """A short ring that holds one patch of a long one, with so many sites before and after it, but for their colours.

    These depend on which patch it is.
    """
    size = lattice.patch_site.shape[1]
    length = before + size + after
    sites, home = before + np.arange(size), np.zeros(length, int)
    home[sites] = np.arange(size)
    return lattice._replace(
        shape=(length,), colour=home[:0], patch_site=sites[None], core=np.ones((1, size), np.float32), home=home
    )
