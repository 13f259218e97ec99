"""The actor's second head: slices of the action space, a function of the state alone."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["SlicingHead", "diversity_loss", "slicing_head"]


class SlicingHead(eqx.Module):
    """L unit slices theta_l(s) from the actor's last hidden layer, which gets no gradient from here."""

    weight: Float[Array, "hidden outputs"]
    bias: Float[Array, " outputs"]
    num_slices: int = eqx.field(static=True)

    def __call__(self, hidden: Float[Array, "... h"]) -> Float[Array, "... L c"]:
        """Return the slices of each state."""
        out = jax.lax.stop_gradient(hidden) @ self.weight + self.bias
        rows = out.reshape(*out.shape[:-1], self.num_slices, -1)
        # Unit length, smooth at zero.
        return rows / jnp.sqrt(jnp.sum(rows**2, -1, keepdims=True) + 1e-12)


def slicing_head(key: Array, width: int, num_slices: int, num_coefficients: int) -> SlicingHead:
    """Draw a head whose slices start in random directions and vary little with the state."""
    weight_key, bias_key = jax.random.split(key)
    shape = (width, num_slices * num_coefficients)
    weight = 0.1 / math.sqrt(width) * jax.random.normal(weight_key, shape)
    return SlicingHead(weight, jax.random.normal(bias_key, shape[1:]), num_slices)


def diversity_loss(slices: Float[Array, "... L c"]) -> Float[Array, "..."]:
    """Mean squared cosine between different slices: 1 when all agree, 0 when they are orthogonal."""
    num = slices.shape[-2]
    cosines = jnp.einsum("...lc,...kc->...lk", slices, slices)
    return (jnp.sum(cosines**2, (-2, -1)) - num) / max(num * (num - 1), 1)
