r"""How much a factor moved a decision: measures between particle posteriors on one shared pool of candidates.

With log-likelihoods :math:`\ell_S(\tau_k)` of the pool under coalition S and temperature :math:`\lambda`,

.. math::

   \pi_S(\tau_k) &= \mathrm{softmax}_k(\ell_S(\tau_k) / \lambda) \\
   \mathrm{PI}_i &= \mathrm{TV}(\pi, \pi_{-i}) = \tfrac12 \sum_k |\pi(\tau_k) - \pi_{-i}(\tau_k)|
     = \mathbb E_{\tau \sim \pi}\, \mathrm{PN}_i(\tau), \qquad
   \mathrm{PN}_i(\tau) = \bigl(1 - \pi_{-i}(\tau) / \pi(\tau)\bigr)_+ .

PI is the least probability, over all couplings, that the decision changes when the factor is removed; PN is the lower
bound of Tian and Pearl (2000) on the probability that the factor was necessary for this decision. TV is a metric:
removing two factors never changes more than removing one after the other.

Shares are Shapley values of a game v on coalitions: :math:`\phi_i = \sum_{S \not\ni i}
\frac{|S|!\,(M-1-|S|)!}{M!}\,(v(S \cup i) - v(S))`, which sum to :math:`v(\text{all}) - v(\emptyset)`.
"""

from __future__ import annotations

from math import factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.explain.factors import without

__all__ = [
    "Measures", "coalition_weights", "influences", "mean_parts", "measure_weights", "necessity", "num_factors",
    "shapley", "shapley_matrix", "total_variation",
]  # fmt: skip


class Measures(NamedTuple):
    """Probability of influence and Shapley share of every factor, and the influence of all of them together."""

    influence: Float[Array, " M"]
    shares: Float[Array, " M"]
    together: Float[Array, ""]


def num_factors(coalitions: int) -> int:
    """Return M of 2^M coalitions."""
    return int(coalitions).bit_length() - 1


def coalition_weights(log_likelihood: Float[Array, "S *n K"], temperature: float | Array) -> Float[Array, "S *n K"]:
    """Return the posterior of every coalition on the pool."""
    return jax.nn.softmax(log_likelihood / temperature, -1)


def total_variation(p: Float[Array, "*#n K"], q: Float[Array, "*#n K"]) -> Float[Array, "*#n"]:
    """Return half the sum of absolute differences."""
    return 0.5 * jnp.sum(jnp.abs(p - q), -1)


def influences(weights: Float[Array, "S K"]) -> Float[Array, " M"]:
    """Return the probability of influence of every factor."""
    num = num_factors(weights.shape[0])
    return jnp.stack([total_variation(weights[-1], weights[without(num, i)]) for i in range(num)])


def necessity(weights: Float[Array, "S K"], index: int) -> Float[Array, " K"]:
    """Return for every candidate the probability that factor `index` was necessary for it."""
    whole, less = weights[-1], weights[without(num_factors(weights.shape[0]), index)]
    return jnp.maximum(0.0, 1.0 - less / jnp.maximum(whole, 1e-37))


def shapley_matrix(num: int) -> Float[np.ndarray, "M S"]:
    """Return the matrix that takes the values of all coalitions, by mask, to the shares."""
    matrix = np.zeros((num, 2**num))
    for index in range(num):
        for mask in range(2**num):
            size = mask.bit_count()
            if mask >> index & 1:
                matrix[index, mask] = factorial(size - 1) * factorial(num - size) / factorial(num)
            else:
                matrix[index, mask] = -factorial(size) * factorial(num - 1 - size) / factorial(num)
    return matrix


def shapley(values: Float[Array, " S *n"]) -> Float[Array, " M *n"]:
    """Return the shares of the game `values`; along axis 0 they sum to `values[-1] - values[0]`."""
    matrix = shapley_matrix(num_factors(values.shape[0])).astype(values.dtype)
    return jnp.tensordot(jnp.asarray(matrix), values, 1)


def measure_weights(weights: Float[Array, "S K"]) -> Measures:
    """Measure the posteriors of all coalitions on one pool; the shares split what all factors do together."""
    game = total_variation(weights, weights[0])
    return Measures(influences(weights), shapley(game), game[-1])


def mean_parts(weights: Float[Array, "S K"], signals: Float[Array, "K D"]) -> Float[Array, "P D"]:
    """Split the mean of a signal (motor PWM, thrust) into the part without any factor and the share of each."""
    means = weights @ signals
    return jnp.concatenate([means[:1], shapley(means)])
