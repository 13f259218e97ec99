"""A multilayer perceptron whose leaves are arrays only, so plain jit, vmap, scan and optax take it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["MLP", "mlp", "unheard_at_first"]


class MLP(eqx.Module):
    """Fully connected layers with one activation between them, applied to the last axis.

    With `standardize` each hidden layer has mean 0 and standard deviation 1 before its activation, so that outputs
    cannot grow with the size of the inputs.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    activation: str = eqx.field(static=True)
    standardize: bool = eqx.field(static=True, default=False)

    def hidden(self, x: Float[Array, "... d"]) -> Float[Array, "... h"]:
        """Return the values of the last hidden layer."""
        activate = getattr(jax.nn, self.activation)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight + bias
            x = activate(jax.nn.standardize(x) if self.standardize else x)
        return x

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... k"]:
        """Return the output layer's values."""
        return self.hidden(x) @ self.weights[-1] + self.biases[-1]


def mlp(
    key: Array, sizes: Sequence[int], *, activation: str = "relu", output_scale: float = 1.0, standardize: bool = False
) -> MLP:
    """Draw an MLP of the given layer sizes: He-uniform hidden layers, output layer scaled by `output_scale`."""
    weights, biases = [], []
    keys = jax.random.split(key, len(sizes) - 1)
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        last = layer == len(sizes) - 2
        # He: a variance of 2 / fan_in keeps the scale through rectified layers; that of a uniform is bound^2 / 3.
        bound = (output_scale if last else math.sqrt(2.0)) * math.sqrt(3.0 / fan_in)
        weights.append(jax.random.uniform(keys[layer], (fan_in, fan_out), minval=-bound, maxval=bound))
        biases.append(jnp.zeros(fan_out))
    return MLP(tuple(weights), tuple(biases), activation, standardize)


def unheard_at_first(net: MLP, inputs: slice) -> MLP:
    """The network with weights of zero on some of its inputs, and the others as loud as all were together.

    What it says begins as if it had not been given them; their weights grow as they are found to matter.
    """
    first = net.weights[0]
    heard = jnp.ones(first.shape[0]).at[inputs].set(0.0)
    first = first * (heard * jnp.sqrt(first.shape[0] / heard.sum()))[:, None]
    return eqx.tree_at(lambda n: n.weights[0], net, first)
