r"""Wasserstein variational inference: a measure moved towards a likelihood-weighted one by A-GSWD.

One engine for action sequences, parameters and states. Candidates :math:`A_k` with log-likelihoods :math:`\ell_k`
carry the target measure

.. math::  \nu = \sum_k w_k \delta(A_k), \qquad w_k \propto \exp(\ell_k / T),

and q, particles or categorical probabilities, descends :math:`f(q) = \text{A-GSWD}_p^p(q, \nu)`. As f is zero at the
target, the length of a step follows from its value (Polyak 1987), whatever the order of the distance, the degree of the
defining function or the scale of the space:

.. math::  q \leftarrow q - \eta\, \frac{f(q)}{\lVert \nabla f(q) \rVert^2} \nabla f(q).

With KL in place of A-GSWD q is the target itself: its categorical marginals, or candidates drawn by weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.transport import adaptive_gswd
from awavo.transport.defining import Defining
from awavo.transport.line import line_costs

__all__ = [
    "Posterior",
    "categorical_gswd",
    "effective_sample_size",
    "infer",
    "move_particles",
    "move_probabilities",
    "tempered_weights",
]

_BISECTIONS = 30


class Posterior(NamedTuple):
    """Particles of equal weight, and how they came about."""

    particles: Float[Array, "P D"]
    effective_size: Float[Array, ""]
    temperature: Float[Array, ""]
    distance: Float[Array, ""]


def effective_sample_size(weights: Float[Array, " K"]) -> Float[Array, ""]:
    """Return 1 / sum of squares: K for uniform weights, 1 for a single one."""
    return 1.0 / jnp.sum(weights**2, -1)


def tempered_weights(
    log_likelihood: Float[Array, " K"], target_size: float | Array, minimum: float = 0.0
) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """Return weights of effective size `target_size`, and their temperature, which is at least `minimum`.

    The effective size grows with the temperature, so bisection finds it. Equal likelihoods give equal weights.
    """
    centred = log_likelihood - jnp.max(log_likelihood)
    spread = jnp.maximum(jnp.std(centred), 1e-12)

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        size = effective_sample_size(jax.nn.softmax(centred / (spread * jnp.exp(middle))))
        small = size < target_size
        return jnp.where(small, middle, low), jnp.where(small, high, middle)

    bracket = (jnp.asarray(-8.0, centred.dtype), jnp.asarray(8.0, centred.dtype))
    temperature = spread * jnp.exp(jax.lax.fori_loop(0, _BISECTIONS, halve, bracket)[1])
    temperature = jnp.maximum(temperature, minimum)
    return jax.nn.softmax(centred / temperature), temperature


def _polyak_step(value: Array, grad: Array, step_size: float, axes: tuple[int, ...]) -> Array:
    length = jnp.sum(grad**2, axes, keepdims=True)
    value = value.reshape(value.shape + (1,) * len(axes))
    return step_size * value * grad / jnp.where(length > 1e-20, length, jnp.inf)


def move_particles(
    particles: Float[Array, "P D"],
    candidates: Float[Array, "K D"],
    weights: Float[Array, " K"],
    slices: Float[Array, "L c"],
    *,
    defining: Defining,
    order: float = 2,
    num_steps: int = 3,
    step_size: float = 1.0,
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """Descend A-GSWD from the particles to the weighted candidates; return them and the last value before a step."""
    candidates, weights = jax.lax.stop_gradient((candidates, weights))

    def distance(x):
        return adaptive_gswd(x, candidates, slices, y_weights=weights, defining=defining, order=order)

    def step(x, _):
        value, grad = jax.value_and_grad(distance)(x)
        return x - _polyak_step(value, grad, step_size, (0, 1)), value

    moved, values = jax.lax.scan(step, particles, None, length=num_steps)
    return moved, values[-1]


def categorical_gswd(
    probabilities: Float[Array, "... A"],
    target: Float[Array, "... A"],
    slices: Float[Array, "... L c"],
    *,
    defining: Defining,
    order: float = 2,
) -> Float[Array, ...]:
    """A-GSWD^p between two laws on the same A one-hot vectors, each with its own slices."""
    num = probabilities.shape[-1]
    features = defining.features(jnp.eye(num, dtype=probabilities.dtype))

    def one(p, q, rows):
        # `project` puts slices first: [L, A] images of the A atoms.
        points = defining.project(features, rows)
        return jnp.mean(line_costs(points, points, p, q, order))

    flat = jax.vmap(one)(
        probabilities.reshape(-1, num), target.reshape(-1, num), slices.reshape(-1, *slices.shape[-2:])
    )
    return flat.reshape(probabilities.shape[:-1])


def move_probabilities(
    probabilities: Float[Array, "N A"],
    target: Float[Array, "N A"],
    slices: Float[Array, "L c"],
    *,
    defining: Defining,
    order: float = 2,
    num_steps: int = 3,
    step_size: float = 1.0,
) -> tuple[Float[Array, "N A"], Float[Array, ""]]:
    """Descend A-GSWD in the probabilities of N independent categorical laws, which stay on the simplex."""
    target = jax.lax.stop_gradient(target)
    rows = jnp.broadcast_to(jax.lax.stop_gradient(slices), (probabilities.shape[0], *slices.shape))

    def distance(p):
        values = categorical_gswd(p, target, rows, defining=defining, order=order)
        return jnp.sum(values), values

    def step(p, _):
        (_, values), grad = jax.value_and_grad(distance, has_aux=True)(p)
        moved = jnp.maximum(p - _polyak_step(values, grad, step_size, (1,)), 0.0)
        return moved / jnp.sum(moved, -1, keepdims=True), jnp.mean(values)

    moved, values = jax.lax.scan(step, probabilities, None, length=num_steps)
    return moved, values[-1]


def infer(
    key: Array,
    log_density: Callable[[Float[Array, "P D"]], Float[Array, " P"]],
    particles: Float[Array, "P D"],
    *,
    slices: Callable[[Array], Float[Array, "L c"]],
    defining: Defining,
    jitter: float = 0.5,
    num_rounds: int = 20,
    target_share: float = 0.3,
    order: float = 2,
    num_steps: int = 5,
    per_particle: int = 4,
) -> Posterior:
    """Infer a posterior from draws of the prior: parameters of a model, states, anything with a density.

    Each round draws candidates from a kernel estimate of q (Gaussians of `jitter` deviations around the particles),
    weighs them by `log_density`, which need not be normalised, over the estimate's density, and moves the particles to
    that measure. The weights are tempered to an effective share of `target_share` until that holds by itself; from
    then on they are those of importance sampling and the target is the posterior. `slices(key)` gives the slices of a
    round.
    """
    num = particles.shape[0]

    def one_round(x, key):
        noise_key, slice_key = jax.random.split(key)
        width = jitter * (jnp.std(x, 0) + 1e-9)
        centres = jnp.tile(x, (per_particle, 1))
        candidates = centres + width * jax.random.normal(noise_key, centres.shape)
        gaps = (candidates[:, None] - x) / width
        log_proposal = jax.nn.logsumexp(-0.5 * jnp.sum(gaps**2, -1), -1)
        ratio = log_density(candidates) - log_proposal
        weights, temperature = tempered_weights(ratio, target_share * per_particle * num, minimum=1.0)
        moved, distance = move_particles(
            x, candidates, weights, slices(slice_key), defining=defining, order=order, num_steps=num_steps
        )
        return moved, (effective_sample_size(weights), temperature, distance)

    moved, trace = jax.lax.scan(one_round, particles, jax.random.split(key, num_rounds))
    return Posterior(moved, *(values[-1] for values in trace))
