r"""Few particles for a weighted cloud: the cells of its best slice, lifted to the space the cloud lives in.

Along a slice the best P points of equal weight for a measure :math:`\nu` are the means of its P cells of equal mass,
and the monotone coupling says which candidates a cell holds. Their mean **in the whole space** is the particle:

.. math::

    x_p = P \sum_k \gamma_{pk}\, y_k, \qquad
    \sum_{pk} \gamma_{pk} \lvert x_p - y_k \rvert^2
        = \sum_k w_k \lvert y_k \rvert^2 - \frac1P \sum_p \lvert x_p \rvert^2 \;\ge\; W_2^2 .

Every slice gives such a bound, and the least one wins: the sliced generalised geodesic (Mahey et al. 2023) from a slice
that is looked for, not drawn. Slices are ascended first, up their own distance between the cloud and its mean: in many
dimensions random ones see no cluster. Nothing is random here, and no step has a length to choose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.transport.defining import Defining
from awavo.transport.slices import unit_slices

__all__ = ["best_cells", "cell_means", "compress"]

# How far a step of ascent turns a slice that is not a straight line.
CURVED_STEP = 0.2


def cell_means(
    points: Float[Array, "K D"], weights: Float[Array, " K"], places: Float[Array, " K"], num: int
) -> Float[Array, "P D"]:
    """Means of the points in `num` cells of equal mass along `places`; a point at an edge belongs to both."""
    order = jnp.argsort(places)
    mass = weights[order] / jnp.sum(weights)
    high = jnp.cumsum(mass)
    edges = jnp.arange(num)[:, None] / num
    shared = jnp.minimum(high, edges + 1.0 / num) - jnp.maximum(high - mass, edges)
    shared = jnp.maximum(shared, 0.0)
    # Rounding of the sums must not make a cell lighter than the others.
    return (shared / jnp.sum(shared, 1, keepdims=True)) @ points[order]


def best_cells(
    points: Float[Array, "K D"], weights: Float[Array, " K"], places: Float[Array, "L K"], num: int
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """The cells of the slice whose coupling costs least, and that cost: no less than the exact W2^2."""
    centre = weights @ points / jnp.sum(weights)
    centred = points - centre  # small numbers: the cost is a difference of squares
    particles = jax.vmap(lambda row: cell_means(centred, weights, row, num))(places)
    kept = jnp.sum(particles**2, (1, 2)) / num
    best = jnp.argmax(kept)
    spread = weights @ jnp.sum(centred**2, 1) / jnp.sum(weights)
    return particles[best] + centre, spread - kept[best]


def compress(
    points: Float[Array, "K D"],
    weights: Float[Array, " K"],
    slices: Float[Array, "L c"],
    num: int,
    *,
    defining: Defining,
    num_steps: int = 1,
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """`num` particles of equal weight for the weighted points, and the cost of the coupling that leads to them.

    `slices` are where the ascent begins; `num_steps` of 0 takes them as they are. Where the defining function is linear
    a step is a power step of the covariance: one or two turn the slices to the wide directions and leave them apart.
    """
    features = defining.features(jnp.concatenate([points, (weights @ points / jnp.sum(weights))[None]]))

    def distance(rows: Float[Array, "L c"]) -> Float[Array, ""]:
        """Sum over slices of W2^2 between the points and their mean: a coupling with one point needs no sorting."""
        places = defining.project(features, rows)
        return jnp.sum(weights * (places[:, :-1] - places[:, -1:]) ** 2)

    slices = unit_slices(jax.lax.stop_gradient(slices))
    share = 1.0 if defining.linear else CURVED_STEP
    for _ in range(num_steps):
        slices = unit_slices((1 - share) * slices + share * unit_slices(jax.grad(distance)(slices)))
    return best_cells(points, weights, defining.project(features[:-1], slices), num)
