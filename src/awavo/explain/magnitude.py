r"""How far a factor moved a decision, in the decision's own units: a debiased sliced Wasserstein distance.

.. math::  I_i^2 = d\,\bigl(2\,\mathrm{SW}_2^2(N) - \overline{\mathrm{SW}_2^2(N/2)}\bigr),

with both posteriors pushed through a map to d physical coordinates (N of thrust, rad/s, microseconds of PWM). The
factor d makes a pure shift count with its length; the second term, over the two halves of the pool, cancels the bias of
order 1/N that makes a plug-in distance too large at a planner's sample sizes (Richardson).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.errors import InputError
from awavo.explain.intervals import reweigh
from awavo.explain.measures import num_factors, without
from awavo.transport import draw_slices, sliced_wasserstein
from awavo.transport.sorting import sort_pairs
from awavo.transport.staircase import staircase_cost, weighted_staircase

__all__ = ["NUM_SLICES", "debiased_magnitude", "resampled_magnitudes", "signed_root", "square_magnitude"]

NUM_SLICES = 12


def square_magnitude(
    points: Float[Array, "K d"], p: Float[Array, " K"], q: Float[Array, " K"], slices: Float[Array, "L d"]
) -> Float[Array, ""]:
    """Return d SW_2^2 between two weightings of the same points, as they are (biased upwards)."""
    return points.shape[-1] * sliced_wasserstein(points, points, x_weights=p, y_weights=q, slices=slices).value


def signed_root(square: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return the root with the square's sign: debiasing may leave a distance of about zero slightly negative."""
    return jnp.sign(square) * jnp.sqrt(jnp.abs(square))


@partial(jax.jit, static_argnames="num_slices")
def _debiased(key, points, p, q, num_slices):
    dim = points.shape[-1]
    slices = jnp.ones((1, 1)) if dim == 1 else draw_slices(key, num_slices, dim, split=False)[0]
    whole = square_magnitude(points, p, q, slices)

    def half(points, a, b):
        return square_magnitude(points, a / jnp.sum(a), b / jnp.sum(b), slices)

    even = points.shape[0] // 2 * 2
    parts = (jnp.stack([x[:even:2], x[1:even:2]]) for x in (points, p, q))
    return 2 * whole - jnp.mean(jax.vmap(half)(*parts)), whole


def debiased_magnitude(
    key: Array, points: Float[Array, "K d"], p: Float[Array, " K"], q: Float[Array, " K"], num_slices: int = NUM_SLICES
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the debiased magnitude (negative where noise outweighs it) and the plug-in one.

    Candidates must be in random order, or in an order in which the even and the odd ones are alike: these are the
    halves.
    """
    if points.ndim != 2 or points.shape[0] < 4:
        raise InputError(f"points have shape {points.shape}, expected (K, d) with K >= 4.")
    square, plain = _debiased(key, points, p, q, num_slices)
    return signed_root(square), jnp.sqrt(jnp.maximum(plain, 0.0))


class _Lines(NamedTuple):
    """Points along every slice, sorted, and which candidate each is."""

    along: Float[Array, "U L K"]
    order: Int[Array, "U L K"]

    def squares(self, p: Float[Array, " K"], q: Float[Array, " K"]) -> Float[Array, " U"]:
        """Return SW_2^2 between two weightings of the points, in each set of coordinates."""
        stairs = weighted_staircase(p, self.order, q, self.order)
        return jnp.mean(staircase_cost(self.along, self.along, stairs, 2), -1)


def _lines(points: Float[Array, "U K d"], slices: Float[Array, "L d"]) -> _Lines:
    return _Lines(*sort_pairs(jnp.einsum("ukd,ld->ulk", points, slices)))


def resampled_magnitudes(
    key: Array, points: Float[Array, "U K d"], counts: Float[Array, "R K"], weights: Float[Array, "S K"]
) -> Float[Array, "R M U"]:
    """Return the debiased magnitudes of every factor that resampled pools show, in each of U sets of coordinates.

    The points are the same in every resample: they are sorted once.
    """
    num, dim, even = num_factors(weights.shape[0]), points.shape[-1], points.shape[1] // 2 * 2
    slices = jnp.ones((1, 1)) if dim == 1 else draw_slices(key, NUM_SLICES, dim, split=False)[0]
    whole, halves = _lines(points, slices), [_lines(points[:, i:even:2], slices) for i in range(2)]
    masks = jnp.array([without(num, i) for i in range(num)])

    def one(drawn):
        def factor(mask):
            p, q = drawn[-1], drawn[mask]
            parts = [lines.squares(p[i:even:2], q[i:even:2]) for i, lines in enumerate(halves)]
            return signed_root(dim * (2 * whole.squares(p, q) - sum(parts) / 2))

        return jax.lax.map(factor, masks)

    return jax.lax.map(one, reweigh(counts, weights))
