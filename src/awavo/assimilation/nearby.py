"""Steps of a long ring in some places only: where a search changed the states, which elsewhere have settled.

Each chosen patch is cut out with enough sites around it that its step is that of the whole ring: a joined step hangs
on the model's steps at sites that the patch reaches or is reached by, and these on the sites that reach them. The flow
is felt a little beyond its reach, so that twice that is taken: what falls to a thousandth within the reach falls to a
millionth within twice of it. A program serves any number of patches, as it takes a chunk of them at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from awavo.assimilation.lattice import Lattice, cut_out_patch
from awavo.assimilation.modes import sites_near
from awavo.assimilation.projection import project
from awavo.assimilation.system import System
from awavo.assimilation.trajectories import Data, index_table, tangent_step

__all__ = ["Nearby", "Patches", "farthest", "make_nearby", "relaxed", "share_taken"]

# Share of a joined step that is taken, as whole ones swing.
DAMPED = 0.6
# Patches that are solved at once: on a CPU as many as its cache holds, elsewhere as many as keep its cores busy.
CHUNK, CHUNK_ELSEWHERE = 8, 1024


def relaxed(data: Data, q: Float[Array, ""]) -> Data:
    """Annealing: the model is believed less than it deserves until the states are near."""
    return data._replace(noise=jnp.maximum(data.noise, q**2))


def share_taken(joined: Float[Array, ""]) -> Float[Array, ""]:
    """The share of a step that is taken."""
    return 1 - (1 - DAMPED) * joined


def farthest(data: Data) -> Float[Array, ""]:
    """How far a step may move a state."""
    return 2 * jnp.sqrt(jnp.max(data.prior_var))


class Patches(NamedTuple):
    """Numbers of patches, of which the first `chunks` rows are to be solved: one shape whatever their number."""

    rows: Int[Array, "rows chunk"]
    chunks: Int[Array, ""]


class Nearby(NamedTuple):
    """Steps around chosen sites: `advance(data, x, theta, q, joined, patches)`, where `patches` come from `choose`."""

    lattice: Lattice
    window: int  # sites that are cut out for a patch
    chunk: int
    advance: Any

    def choose(self, sites: Bool[np.ndarray, " I"]) -> Patches | None:
        """The patches that decide these sites or one as near as a patch is wide.

        None where what is cut out for them would hold more sites than the whole ring, which then costs less.
        """
        core = self.lattice.core > 0
        table = self.lattice.patch_site[: len(core)]  # without those that fill up the last group
        number = np.flatnonzero((sites_near(sites, table.shape[1])[table] & core).any(1))
        most = len(sites) // self.window
        if len(number) > most:
            return None
        rows = np.resize(number if len(number) else [0], (-(-max(most, 1) // self.chunk), self.chunk))
        return Patches(jnp.asarray(rows, jnp.int32), jnp.asarray(-(-len(number) // self.chunk), jnp.int32))


def make_nearby(system: System, lattice: Lattice, joins: bool, options: dict[str, str] | None) -> Nearby:
    """Steps of some patches of a ring whose sites are alike and whose parameters are known."""
    ((before, after),) = lattice.reach
    num_sites, size = lattice.shape[0], lattice.patch_site.shape[1]
    chunk = CHUNK if jax.default_backend() == "cpu" else CHUNK_ELSEWHERE
    # Sites reached by the patch and reaching it, and around all of them those that are felt there.
    first, last = before + 2 * after, after + 2 * before
    ring = cut_out_patch(lattice, first, last)
    window = np.arange(ring.shape[0]) - first

    def moves(data: Data, x: Array, theta: Array, joined: Array, patches: Patches) -> Float[Array, "T I"]:
        table, colour = index_table(lattice.patch_site), index_table(lattice.colour)
        core = jnp.asarray(lattice.core > 0)

        def solve(sites):
            own = Data(*(a[..., sites] for a in data[:5]))
            # Probed with the sites that they are probed with in the whole ring: what leaks from these is the same then.
            made = tangent_step(
                ring._replace(colour=colour[sites]), system.flow, x[:, sites], theta, own, coarse=system.coarse,
                joined=joined if joins else None,
            )  # fmt: skip
            return made.move[:, first : first + size]

        def some(row, total):
            number = patches.rows[row]
            sites = (table[number, :1] + window) % num_sites
            target = jnp.where(core[number], table[number], num_sites)
            return total.at[:, target].set(jnp.moveaxis(jax.vmap(solve)(sites), 0, 1), mode="drop")

        return lax.fori_loop(0, patches.chunks, some, jnp.zeros_like(x))

    @partial(jax.jit, compiler_options=options)
    def advance(data, x, theta, q, joined, patches):
        def step(x, q):
            return share_taken(joined) * moves(relaxed(data, q), x, theta, joined, patches)

        return project(step, x, q[None], radius=farthest(data))

    return Nearby(lattice, len(window), chunk, advance)
