r"""Steps inside a trust region, in the space of a policy's flat parameters.

.. code-block:: text

    ratio(theta) = pi_theta(a|s) / pi_old(a|s)
    surrogate    = E[(ratio - 1) A]          gradient at the old policy: E[A grad log pi]
    H            = Hessian of KL(old || theta) = J' M J + damping I,   M its Hessian in the distribution's parameters
    H^-1 v       by conjugate gradients

J v is forward mode and J' w reverse mode through the same linearised network, so one product costs about one gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from awavo.algorithms.estimation import Batch
from awavo.config import setting
from awavo.errors import ConfigError
from awavo.networks.optimize import all_finite
from awavo.networks.stochastic import StochasticPolicy, kl_divergence

__all__ = [
    "LocalModel",
    "Surrogate",
    "TrustRegionConfig",
    "active_sets",
    "backtrack",
    "conjugate_gradient",
    "gram_matrix",
    "local_model",
    "natural_gradients",
    "natural_step",
    "projection_multipliers",
    "solve_subsets",
]

MAX_CONSTRAINTS = 8
RIDGE = 1e-6


@dataclass(frozen=True)
class TrustRegionConfig:
    """Settings of a step inside a trust region."""

    max_kl: float = setting(0.01, "radius delta of the trust region", low=1e-8, high=10.0)
    damping: float = setting(0.01, "multiple of the identity added to the Fisher matrix", low=0.0, high=10.0)
    cg_iterations: int = setting(10, "iterations of the conjugate gradient", low=1, high=1_000)
    fisher_rows: int = setting(1_024, "rows in the Fisher matrix, evenly spread", low=1, high=10_000_000)
    backtracks: int = setting(10, "largest number of step reductions in the line search", low=0, high=1_000)
    shrink: float = setting(0.8, "factor of one reduction", low=0.01, high=0.99)


class Surrogate(NamedTuple):
    """Predicted change of the (scaled) reward and of each cost per step, and the mean divergence."""

    reward: Float[Array, ""]
    costs: Float[Array, " C"]
    kl: Float[Array, ""]


class LocalModel(NamedTuple):
    """The policy around its parameters: what every step is computed from."""

    parameters: Float[Array, " n"]
    rebuild: Callable[[Array], StochasticPolicy]
    gradient: Callable[[Array], Array]
    fisher: Callable[[Array], Array]
    solve: Callable[[Array], Array]
    evaluate: Callable[[Array], Surrogate]


def local_model(policy: StochasticPolicy, batch: Batch, config: TrustRegionConfig) -> LocalModel:
    """Linearise the policy on a batch: `gradient(A)`, `fisher(v)`, `solve(v)` and `evaluate(parameters)`."""
    parameters, rebuild = ravel_pytree(policy)
    rows = batch.obs.shape[0]
    log_prob, pull_log_prob = jax.vjp(lambda p: rebuild(p)(batch.obs).log_prob(batch.sample), parameters)
    before = policy(batch.obs)

    # Curvature needs fewer rows than the gradient: every k-th will do.
    some = batch.obs[:: max(1, rows // config.fisher_rows)]
    here, push = jax.linearize(lambda p: rebuild(p)(some), parameters)
    pull = jax.linear_transpose(push, parameters)
    slope = jax.grad(lambda there: kl_divergence(here, there).mean())

    def gradient(advantage: Float[Array, " N"]) -> Float[Array, " n"]:
        return pull_log_prob(advantage / rows)[0]

    def fisher(vector: Float[Array, " n"]) -> Float[Array, " n"]:
        # J' M J v from right to left; M v by differentiating the gradient of the divergence along J v.
        curved = jax.jvp(slope, (here,), (push(vector),))[1]
        return pull(curved)[0] + config.damping * vector

    def solve(vector: Float[Array, " n"]) -> Float[Array, " n"]:
        return conjugate_gradient(fisher, vector, config.cg_iterations)

    def evaluate(parameters: Float[Array, " n"]) -> Surrogate:
        after = rebuild(parameters)(batch.obs)
        change = jnp.expm1(after.log_prob(batch.sample) - log_prob)
        kl = kl_divergence(before, after).mean()
        return Surrogate(jnp.mean(change * batch.reward_advantage), change @ batch.cost_advantages / rows, kl)

    return LocalModel(parameters, rebuild, gradient, fisher, solve, evaluate)


def conjugate_gradient(
    product: Callable[[Array], Array], target: Float[Array, " n"], iterations: int, tolerance: float = 1e-10
) -> Float[Array, " n"]:
    """Solve `product(x) = target` for a positive definite product; stops moving below the relative residual."""
    stop = tolerance * (target @ target)

    def step(carry, _):
        x, residual, direction, norm = carry
        image = product(direction)
        curvature = direction @ image
        # Solved, or not positive definite after all: the rest of the iterations change nothing.
        active = (norm > stop) & (curvature > 0)
        length = jnp.where(active, norm / jnp.where(active, curvature, 1.0), 0.0)
        x = x + length * direction
        residual = residual - length * image
        new_norm = residual @ residual
        ratio = jnp.where(active, new_norm / jnp.where(active, norm, 1.0), 0.0)
        return (x, residual, residual + ratio * direction, jnp.where(active, new_norm, norm)), None

    start = (jnp.zeros_like(target), target, target, target @ target)
    return jax.lax.scan(step, start, None, iterations)[0][0]


def backtrack(
    model: LocalModel,
    step: Float[Array, " n"],
    accept: Callable[[Surrogate], Bool[Array, ""]],
    config: TrustRegionConfig,
) -> tuple[Float[Array, " n"], Float[Array, ""], Surrogate]:
    """Shrink `step` until `accept` takes it: the parameters, the scale (0: never accepted) and the surrogate there."""

    def trial(scale):
        surrogate = model.evaluate(model.parameters + scale * step)
        finite = all_finite(surrogate)
        return surrogate, accept(surrogate) & finite

    def shrink(carry):
        count, scale, _, _ = carry
        scale = scale * config.shrink
        return count + 1, scale, *trial(scale)

    first = (jnp.zeros((), jnp.int32), jnp.ones(()), *trial(jnp.ones(())))
    _, scale, surrogate, accepted = jax.lax.while_loop(lambda c: ~c[3] & (c[0] < config.backtracks), shrink, first)
    # A step that was never accepted is not taken, and predicts no change.
    surrogate = jax.tree.map(lambda x: jnp.where(accepted, x, 0.0), surrogate)
    parameters = jnp.where(accepted, model.parameters + scale * step, model.parameters)
    return parameters, jnp.where(accepted, scale, 0.0), surrogate


def natural_step(model: LocalModel, advantage: Float[Array, " N"], radius: float | Array) -> Float[Array, " n"]:
    """The step sqrt(2 radius / x'Hx) x along x = H^-1 grad E[ratio A]: as far as the trust region goes."""
    direction = model.solve(model.gradient(advantage))
    length = direction @ model.fisher(direction)
    return jnp.sqrt(2 * radius / jnp.maximum(length, 1e-12)) * direction


def natural_gradients(
    model: LocalModel, advantages: Float[Array, "K N"]
) -> tuple[Float[Array, "K n"], Float[Array, "K n"]]:
    """Gradients v_k of several surrogates, and H^-1 v_k."""
    gradients = jax.lax.map(model.gradient, advantages)
    return gradients, jax.lax.map(model.solve, gradients)


def gram_matrix(left: Float[Array, "K n"], right: Float[Array, "K n"]) -> Float[Array, "K K"]:
    """Products v_j' H^-1 v_k, symmetric although the solves are inexact."""
    gram = left @ right.T
    return (gram + gram.T) / 2


def active_sets(num_constraints: int) -> Bool[np.ndarray, "subsets m"]:
    """All subsets of constraints as masks, the empty one first."""
    if num_constraints > MAX_CONSTRAINTS:
        raise ConfigError(
            f"{num_constraints} constraints are too many to enumerate active sets: expected at most {MAX_CONSTRAINTS}. "
            "Sum some costs into one."
        )
    return np.array(list(itertools.product((False, True), repeat=num_constraints)))


def solve_subsets(gram: Float[Array, "m m"], target: Float[Array, " m"]) -> Float[Array, "subsets m"]:
    """For each subset S of constraints the solution of `gram_SS x_S = target_S`, zero outside S."""
    masks = jnp.asarray(active_sets(gram.shape[0]))
    # One system of full size for every subset: outside it the identity, so that all solve at once.
    inside = masks[:, :, None] & masks[:, None, :]
    system = jnp.where(inside, gram, 0.0) + jnp.where(masks, RIDGE, 1.0)[:, :, None] * jnp.eye(gram.shape[0])
    return jnp.linalg.solve(system, jnp.where(masks, target, 0.0)[..., None])[..., 0]


def projection_multipliers(gram: Float[Array, "m m"], excess: Float[Array, " m"]) -> Float[Array, " m"]:
    """Project onto {x : Bx + c <= 0}: the point is `x - L^-1 B' mu`, given `gram = B L^-1 B'` and `excess = Bx + c`.

    The nearest point of the set is the projection onto some subset of the planes, so it is the nearest of those
    projections that lie in the set. A constraint without a gradient is left out. Where constraints so nearly oppose
    each other that none lies in the set to the last digits, it is the one that is least outside.
    """
    # In units where every row of B has length 1, so that one tolerance serves costs of any size.
    unit = jnp.where(jnp.diag(gram) > 1e-20, jax.lax.rsqrt(jnp.maximum(jnp.diag(gram), 1e-20)), 0.0)
    gram, excess = gram * jnp.outer(unit, unit), excess * unit
    multipliers = solve_subsets(gram, excess)
    outside = jnp.max(excess - multipliers @ gram, -1)
    distance = jnp.sum((multipliers @ gram) * multipliers, -1)
    tolerance = 1e-4 * jnp.max(jnp.abs(excess)) + 1e-20
    kept = outside <= tolerance
    nearest = jnp.argmin(jnp.where(jnp.any(kept), jnp.where(kept, distance, jnp.inf), outside))
    return jnp.maximum(multipliers[nearest], 0.0) * unit
