r"""Few particles for a weighted cloud: it is halved along slices ascended for it, and its halves along their own.

Along a slice a measure :math:`\nu` of weighted points is cut into two cells of given mass (a point at the edge belongs
to both), and the cell that keeps the most of the spread in its means, over all slices looked at, is the one cut. Each
half is cut again along slices of its own until there are P cells of equal mass. With :math:`\gamma_{pk}` the mass of
point k in cell p, the particles are the means of the cells **in the whole space**, and

.. math::

    x_p = P \sum_k \gamma_{pk}\, y_k, \qquad
    \sum_{pk} \gamma_{pk} \lvert x_p - y_k \rvert^2
        = \sum_k w_k \lvert y_k \rvert^2 - \frac1P \sum_p \lvert x_p \rvert^2 \;\ge\; W_2^2 .

The coupling of a slice, lifted, as in the sliced generalised geodesic (Mahey et al. 2023), but the slice is looked for,
not drawn, and every cell has its own. Slices are ascended first, up their own distance between the cell and its mean:
in many dimensions random ones see no cluster. Nothing is random here, and no step has a length to choose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.transport.defining import Defining
from awavo.transport.slices import unit_slices

__all__ = ["compress", "cut"]

# How far a step of ascent turns a slice that is not a straight line.
CURVED_STEP = 0.2
# Halvings of the range in which an edge is looked for: what float32 can tell.
BISECTIONS = 24


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
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """`num` particles of equal weight for the weighted points, and the cost of the coupling that leads to them.

    `slices` are where the ascents begin; `num_steps` of 0 takes them as they are. The whole looks at all of them, its
    halves at half of them each, so that every generation of cells costs the same. Where the defining function is linear
    a step is a power step of the covariance: one or two turn the slices to the wide directions and leave them apart.
    """
    total = jnp.sum(weights)
    centre = weights @ points / total
    centred = points - centre  # small numbers: the cost is a difference of squares
    features = defining.features(points)
    slices = unit_slices(jax.lax.stop_gradient(slices))

    def ascend(masses: Float[Array, " K"], rows: Float[Array, "l c"]) -> Float[Array, "l c"]:
        mean = defining.features((masses @ points / jnp.sum(masses))[None])

        def distance(rows: Float[Array, "l c"]) -> Float[Array, ""]:
            """Sum over slices of W2^2 between the cell and its mean: a coupling with one point needs no sorting."""
            return jnp.sum(masses * (defining.project(features, rows) - defining.project(mean, rows)) ** 2)

        share = 1.0 if defining.linear else CURVED_STEP
        for _ in range(num_steps):
            rows = unit_slices((1 - share) * rows + share * unit_slices(jax.grad(distance)(rows)))
        return rows

    def halve(
        masses: Float[Array, " K"], share: Float[Array, ""], rows: Float[Array, "l c"], either: bool
    ) -> Float[Array, "2 K"]:
        places = defining.project(features, ascend(masses, rows))
        # Unequal halves: which end the larger one lies at matters.
        places = jnp.concatenate([places, -places]) if either else places
        first = cut(jnp.broadcast_to(masses, places.shape), places, share)
        halves = jnp.stack([first, masses - first], 1)
        means = halves @ centred
        kept = jnp.sum(means**2, 2) / jnp.maximum(jnp.sum(halves, 2), 1e-30)
        return halves[jnp.argmax(jnp.sum(kept, 1))]

    masses, sizes, rows = (weights / total)[None], [num], slices
    while max(sizes) > 1:
        whole = jnp.asarray([i for i, size in enumerate(sizes) if size == 1], jnp.int32)
        split = [i for i, size in enumerate(sizes) if size > 1]
        larger = [(sizes[i] + 1) // 2 for i in split]
        either = any(sizes[i] % 2 for i in split)
        shares = jnp.asarray([part / sizes[i] for part, i in zip(larger, split, strict=True)], jnp.float32)
        halves = jax.vmap(lambda m, s, rows=rows, either=either: halve(m, s, rows, either))(
            masses[jnp.asarray(split, jnp.int32)], shares
        )
        masses = jnp.concatenate([masses[whole], halves.reshape(-1, masses.shape[1])])
        sizes = [1] * len(whole) + [n for part, i in zip(larger, split, strict=True) for n in (part, sizes[i] - part)]
        rows = rows[: max(1, rows.shape[0] // 2)]
    # Rounding of the sums must not make a cell lighter than the others.
    particles = masses @ centred / jnp.sum(masses, 1, keepdims=True)
    spread = weights @ jnp.sum(centred**2, 1) / total
    return particles + centre, spread - jnp.sum(particles**2) / num
