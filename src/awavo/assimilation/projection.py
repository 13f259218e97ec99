r"""The W2 projection of noise-augmented data on a model: WVI with slices in the tangent space of the forward map.

Unknowns x, residual map G, data z with unit noise: the posterior of x under a flat prior on the rest is approached by

.. math::  q^* = \arg\min_q W_2^2(G_\# q,\ \nu), \qquad \nu = N(z, I).

As q is free, the optimal coupling sends every draw of :math:`\nu` to the nearest point of the model's manifold,
:math:`x(z) = \arg\min_x \lVert G(x) - z \rVert^2`. For linear G that is the exact Bayesian posterior (randomised MAP).

A *sliced* distance agrees with it only if its slices lie in the tangent space range(G'): a slice outside asks
:math:`G_\# q` for a variance that no q can give it, and isotropic slices overstate standard deviations by
:math:`\sqrt{N/n}` (n unknowns, N residuals). With the coupling known, all tangent slices together are one
Gauss-Newton step,

.. math::  x \leftarrow x + (G'^\top G')^{-1} G'^\top (z - G(x)),

so `project` takes the step from a solver of that linear system that knows the structure of G' (`trajectories`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

__all__ = ["project"]

Unknowns = TypeVar("Unknowns")


def project(
    step: Callable[[Unknowns, PyTree], Unknowns],
    start: Unknowns,
    schedule: PyTree[Array],
    *,
    radius: float | PyTree[Array] = jnp.inf,
    first: int | Array = 0,
) -> Unknowns:
    """Take the step of each item of the schedule (a datum, or a stage of annealing); return where it ends.

    A component moves at most `radius` a step (one for all, or one for each array of the unknowns), and a step that is
    not finite leaves its component where it is. Items before number `first` are left out; it may be traced.
    """

    def advance(number, x):
        # A component far off or not finite does not spoil the others: it waits for a better linearisation.
        moves = step(x, jax.tree.map(lambda a: a[number], schedule))
        limits = jax.tree.broadcast(radius, moves)
        moves = jax.tree.map(lambda m, most: jnp.where(jnp.isfinite(m), jnp.clip(m, -most, most), 0.0), moves, limits)
        return jax.tree.map(jnp.add, x, moves)

    return lax.fori_loop(first, len(jax.tree.leaves(schedule)[0]), advance, start)
