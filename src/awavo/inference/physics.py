r"""p_D(theta) over the parameters of known physics: the ensemble's interface, filled by draws of theta.

`step(theta, obs, action) -> (next_obs, reward, costs, terminated)` is the model of one transition. Its M parameter
vectors are particles of :math:`p(\theta | D)`, uniform in a box before any data, inferred by the same engine that
decides (`wvi.infer`); `predict_parametric` continues M futures. The noise is not known, and is integrated out of a
Gaussian likelihood, each component's with the prior :math:`1 / \sigma`:

.. math::  p(D | \theta) \propto \prod_c \Big(\frac1n \sum_t e_{tc}(\theta)^2 + (\epsilon s_c)^2\Big)^{-n/2},

with residuals e of next states and signals, s their standard deviation in the data and :math:`\epsilon` = 1%, below
which nothing is told apart: no unit and no noise has to be given, and what the physics does not explain is noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.inference.ensemble import Prediction
from awavo.inference.wvi import infer
from awavo.transport import orthogonal_slices
from awavo.transport.defining import Linear

__all__ = ["ParametricModel", "identify_parameters", "predict_parametric", "spread_members"]

# Share of a component's standard deviation below which residuals are not told apart; log-density outside the box, below
# all that data can say; standard deviation below which particles are one point; draws that weigh a group.
RESOLUTION, OUTSIDE, NARROWEST, DRAWS = 1e-2, -1e7, 1e-5, 64

PhysicsStep = Callable[[Array, Array, Array], tuple[Array, Array, Array, Array]]


class ParametricModel(NamedTuple):
    """Particles of the parameters, and the standard deviation of the noise in every component of the state."""

    parameters: Float[Array, "M p"]
    noise: Float[Array, " d"]

    def log_weights(self) -> Float[Array, " M"]:
        """Particles weigh the same."""
        num = self.parameters.shape[0]
        return jnp.full(num, -jnp.log(num))


def predict_parametric(
    step: PhysicsStep, model: ParametricModel, obs: Float[Array, "M ... d"], action: Array
) -> Prediction:
    """What each particle says of the next state: the same as an ensemble's `predict`."""
    # `step` is for one state: map it over every axis between the particles and the state's components.
    over = step
    for _ in range(obs.ndim - 2):
        over = jax.vmap(over, (None, 0, 0))
    next_obs, reward, costs, terminated = jax.vmap(over, (0, 0, None))(model.parameters, obs, action)
    std = jnp.broadcast_to(model.noise, next_obs.shape)
    return Prediction(next_obs, std, reward, costs, terminated.astype(jnp.float32))


def identify_parameters(
    key: Array,
    step: PhysicsStep,
    start: Float[Array, "G P p"],
    obs: Float[Array, "n d"],
    action: Array,
    outcome: Float[Array, "n c"],
    num_rows: Float[Array, ""] | float,
    *,
    num_rounds: int,
) -> tuple[Float[Array, "G P p"], Float[Array, " G"], Float[Array, " c"]]:
    """Groups of particles of theta in the unit box, the log of each group's share, and the noise that is left.

    Each group is inferred alone, so that none loses its mode to another by chance: of two modes a thousandth as wide as
    the prior one is left after a few rounds otherwise. A group's share is its evidence. `outcome` is what followed: the
    change of the observation, the reward and the costs; `step` takes theta of the unit box; the rows count as
    `num_rows` observations (fewer where some were drawn twice). Noise is the root mean square of the residuals, one
    number for each column of `outcome`.
    """
    scale = jnp.std(outcome, 0)
    scale = jnp.where(scale > 1e-9, scale, 1.0)

    def squares(theta: Float[Array, " p"]) -> Float[Array, " c"]:
        next_obs, reward, costs, _ = jax.vmap(step, (None, 0, 0))(jnp.clip(theta, 0.0, 1.0), obs, action)
        said = jnp.concatenate([next_obs - obs, reward[:, None], costs], 1)
        return jnp.mean(((outcome - said) / scale) ** 2, 0) + RESOLUTION**2

    def log_density(parameters: Float[Array, "K p"]) -> Float[Array, " K"]:
        fit = -0.5 * num_rows * jnp.sum(jnp.log(jax.vmap(squares)(parameters)), -1)
        inside = jnp.all((parameters >= 0) & (parameters <= 1), -1)
        return jnp.where(inside & jnp.isfinite(fit), fit, OUTSIDE)

    dim = start.shape[-1]

    def alone(key: Array, start: Float[Array, "P p"]) -> tuple[Float[Array, "P p"], Float[Array, ""]]:
        found = infer(
            key,
            log_density,
            start,
            slices=lambda k: orthogonal_slices(k, max(dim, 8), dim),
            defining=Linear(),
            num_rounds=num_rounds,
        )
        particles = jnp.clip(found.particles, 0.0, 1.0)
        return particles, evidence(jax.random.fold_in(key, 1), particles)

    def evidence(key: Array, particles: Float[Array, "P p"]) -> Float[Array, ""]:
        """Log of the mass around a group, by importance sampling from the Gaussian it looks like."""
        centred = particles - particles.mean(0)
        root = jnp.linalg.cholesky(centred.T @ centred / particles.shape[0] + NARROWEST**2 * jnp.eye(dim))
        noise = jax.random.normal(key, (DRAWS, dim))
        log_proposal = -0.5 * jnp.sum(noise**2, -1) - jnp.sum(jnp.log(jnp.diag(root)))
        return jax.nn.logsumexp(log_density(particles.mean(0) + noise @ root.T) - log_proposal)

    particles, mass = jax.vmap(alone)(jax.random.split(key, start.shape[0]), start)
    log_shares = jax.nn.log_softmax(mass)
    left = jnp.mean(jax.vmap(jax.vmap(squares))(particles), 1)
    return particles, log_shares, scale * jnp.sqrt(jnp.exp(log_shares) @ left)


def spread_members(particles: Float[Array, "P p"], weights: Float[Array, " P"], num: int) -> Float[Array, "M p"]:
    """A few of the particles, evenly spaced by mass along their widest direction: every mode of enough mass has some.

    They are particles, not means of several: between two modes there is no physics that anyone believes in.
    """
    centred = particles - weights @ particles
    widest = jnp.linalg.eigh((weights[:, None] * centred).T @ centred)[1][:, -1]
    order = jnp.argsort(centred @ widest)
    places = jnp.searchsorted(jnp.cumsum(weights[order]), (jnp.arange(num) + 0.5) / num)
    return particles[order[jnp.minimum(places, particles.shape[0] - 1)]]
