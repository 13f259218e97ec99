r"""Few particles for a weighted cloud: it is halved along slices ascended for it, and its halves along their own.

Along a slice a measure :math:`\nu` of weighted points is cut into two cells of given mass (a point at the edge belongs
to both); of the slices looked at, the one whose cells keep the most of the spread in their means is taken. Each half
is cut again along slices of its own until there are P cells of equal mass. With :math:`\gamma_{pk}` the mass of point k
in cell p, the particles are the means of the cells **in the whole space**, and

.. math::

    x_p = P \sum_k \gamma_{pk}\, y_k, \qquad
    \sum_{pk} \gamma_{pk} \lvert x_p - y_k \rvert^2
        = \sum_k w_k \lvert y_k \rvert^2 - \frac1P \sum_p \lvert x_p \rvert^2 \;\ge\; W_2^2 .

The coupling of a slice, lifted, as in the sliced generalised geodesic (Mahey et al. 2023), but the slice is looked for,
not drawn, and every cell has its own. Slices are ascended first, up the distance along them between the cell and one
point: in many dimensions random ones see no cluster. Nothing is random here, and no step has a length to choose.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.transport.defining import Defining
from awavo.transport.slices import unit_slices

__all__ = ["compress", "cut"]

# How far a step of ascent turns a slice that is not a straight line.
CURVED_STEP = 0.2
# Halvings of the range in which an edge is looked for.
BISECTIONS = 18


def cut(
    masses: Float[Array, "... K"], places: Float[Array, "... K"], share: Float[Array, "..."]
) -> Float[Array, "... K"]:
    """The masses of the points that lie first along `places`, up to that share of the whole.

    The edge is found by bisection, which needs no order of the points; those at the edge give the same part each.
    """
    target = share * jnp.sum(masses, -1)

    def before(edge: Float[Array, "..."]) -> Float[Array, "... K"]:
        return jnp.where(places < edge[..., None], masses, 0.0)

    def step(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        short = jnp.sum(before(middle), -1) <= target
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = jax.lax.fori_loop(0, BISECTIONS, step, (jnp.min(places, -1), jnp.max(places, -1)))
    inside = before(low)
    edge = jnp.where((places >= low[..., None]) & (places <= high[..., None]), masses, 0.0)
    part = (target - jnp.sum(inside, -1)) / jnp.maximum(jnp.sum(edge, -1), 1e-30)
    return inside + jnp.clip(part, 0.0, 1.0)[..., None] * edge


def compress(
    points: Float[Array, "K D"],
    weights: Float[Array, " K"],
    slices: Float[Array, "L c"],
    num: int,
    *,
    defining: Defining,
    num_steps: int = 2,
    looked: int = 2,
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """`num` particles of equal weight for the weighted points, and the cost of the coupling that leads to them.

    `slices` are where the ascents begin, dealt to the cells in turn, `looked` to each (four are 1% nearer than two and
    twice the work, one is 2% further); `num_steps` of 0 takes them as they are. Where the defining function is linear a
    step is a power step of the covariance: one or two turn the slices to the wide directions and leave them apart.
    """
    total = jnp.sum(weights)
    centre = weights @ points / total
    centred = points - centre  # small numbers: the cost is a difference of squares
    features = defining.features(points)
    slices = unit_slices(jax.lax.stop_gradient(slices))

    def ascend(masses: Float[Array, "R K"], rows: Float[Array, "R c"]) -> Float[Array, "R c"]:
        """Every slice up the distance along it between its cell and one point: its variance, which needs no sorting."""

        def distance(rows: Float[Array, "R c"]) -> Float[Array, ""]:
            places = defining.project(features, rows)
            mean = jnp.sum(masses * places, 1, keepdims=True) / jnp.maximum(jnp.sum(masses, 1, keepdims=True), 1e-30)
            return jnp.sum(masses * (places - mean) ** 2)

        def step(_: int, rows: Float[Array, "R c"]) -> Float[Array, "R c"]:
            turned = unit_slices(jax.grad(distance)(rows))
            return turned if defining.linear else unit_slices((1 - CURVED_STEP) * rows + CURVED_STEP * turned)

        return jax.lax.fori_loop(0, num_steps, step, rows)

    def halve(
        masses: Float[Array, "C K"], shares: Float[Array, " C"], rows: Float[Array, "C l c"]
    ) -> Float[Array, "C 2 K"]:
        """Every cell cut in two along the best of its slices; all cells and slices in one product each."""
        count, looked = rows.shape[:2]
        ascended = ascend(jnp.repeat(masses, looked, 0), rows.reshape(count * looked, -1))
        places = defining.project(features, ascended).reshape(count, looked, -1)
        # Unequal halves: which end the larger one lies at matters.
        places = jnp.concatenate([places, -places], 1) if num & (num - 1) else places
        first = cut(jnp.broadcast_to(masses[:, None], places.shape), places, shares[:, None])
        halves = jnp.stack([first, masses[:, None] - first], 2)
        means = (halves.reshape(-1, masses.shape[1]) @ centred).reshape(*halves.shape[:3], -1)
        kept = jnp.sum(jnp.sum(means**2, 3) / jnp.maximum(jnp.sum(halves, 3), 1e-30), 2)
        # Equal halves are the same either way: no rounding is to choose between them.
        worth = kept * jnp.where(jnp.arange(places.shape[1]) < looked, 1.0, 1.0 - 1e-4)
        return jnp.take_along_axis(halves, jnp.argmax(worth, 1)[:, None, None, None], 1)[:, 0]

    generations = (num - 1).bit_length()
    sizes = _sizes(num, generations)
    # Cells in a table of fixed size, halves side by side: one program for all generations.
    masses = jnp.zeros((2**generations, points.shape[0])).at[0].set(weights / total)
    if generations:
        half = 2 ** (generations - 1)
        shares = jnp.asarray((sizes[:-1, :half] + 1) // 2 / np.maximum(sizes[:-1, :half], 1), jnp.float32)
        dealt = slices[np.arange(half * looked).reshape(half, looked) % slices.shape[0]]

        def generation(masses: Float[Array, "C K"], share: Float[Array, " H"]) -> tuple[Float[Array, "C K"], None]:
            return halve(masses[:half], share, dealt).reshape(masses.shape), None

        masses, _ = jax.lax.scan(generation, masses, shares)
    cells = masses[np.flatnonzero(sizes[-1])]
    # Rounding of the sums must not make a cell lighter than the others.
    particles = cells @ centred / jnp.sum(cells, 1, keepdims=True)
    spread = weights @ jnp.sum(centred**2, 1) / total
    return particles + centre, spread - jnp.sum(particles**2) / num


def _sizes(num: int, generations: int) -> np.ndarray:
    """Particles that each cell of each generation stands for `[G + 1, 2^G]`: the larger half first, 0 where none is."""
    sizes = np.zeros((generations + 1, 2**generations), int)
    sizes[0, 0] = num
    for before, after in itertools.pairwise(sizes):
        half = before[: len(before) // 2]
        after[0::2], after[1::2] = (half + 1) // 2, half // 2
    return sizes
