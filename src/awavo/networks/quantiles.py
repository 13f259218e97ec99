r"""The distributional Bellman operator on quantiles (Appendix C).

Midpoints :math:`\hat\tau_j = (j - 1/2) / M`. With :math:`\theta_j` the quantiles of Z and targets :math:`y_k = h +
\gamma \bar Z_k`,

.. math::
    L = \frac{1}{M} \sum_j \sum_k |\hat\tau_j - 1[y_k < \theta_j]| \, \ell_\kappa(y_k - \theta_j) / \kappa

where :math:`\ell_\kappa` is Huber's loss. Its minimiser is the projection of the target distribution on M quantile
midpoints.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["bellman_targets", "midpoints", "quantile_huber"]


def midpoints(num_quantiles: int) -> Float[Array, " M"]:
    """(j - 1/2) / M for j = 1..M."""
    return (jnp.arange(num_quantiles) + 0.5) / num_quantiles


def bellman_targets(
    signals: Float[Array, "B S"],
    next_quantiles: Float[Array, "B S M"],
    terminated: Bool[Array, " B"],
    discount: Float[Array, " B"] | float,
    after_end: Float[Array, " S"] | float = 0.0,
) -> Float[Array, "B S M"]:
    """Y = h + gamma * Z(s', a'), and after a termination `after_end` in the place of Z; truncation bootstraps."""
    ended = jnp.broadcast_to(after_end, signals.shape[-1:])[:, None]
    later = jnp.where(terminated[:, None, None], ended, next_quantiles)
    return signals[..., None] + jnp.broadcast_to(discount, terminated.shape)[:, None, None] * later


def quantile_huber(
    quantiles: Float[Array, "B S M"], targets: Float[Array, "B S K"], kappa: float = 1.0
) -> Float[Array, ""]:
    """Mean over the batch of the loss above, summed over the signals."""
    # Every quantile against every target quantile.
    error = jax.lax.stop_gradient(targets)[..., None, :] - quantiles[..., :, None]
    size = jnp.abs(error)
    huber = jnp.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa)) / kappa
    level = midpoints(quantiles.shape[-1])[:, None]
    weight = jnp.abs(level - (error < 0))
    return jnp.mean(jnp.sum(jnp.mean(weight * huber, -1).sum(-1), -1))
