r"""p_D(theta) over the parameters of known physics: the ensemble's interface, filled by draws of theta.

`step(theta, obs, action) -> (next_obs, reward, costs, terminated)` is the model of one transition. Its M parameter
vectors are particles of

.. math::  p(\theta | D) \propto p(\theta) \prod_t N(s_{t+1};\ f_\theta(s_t, a_t),\ \mathrm{diag}\, \sigma^2),

inferred by the same engine that decides (`wvi.infer`), from which `predict` continues M futures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.inference.ensemble import Prediction
from awavo.inference.wvi import Posterior, infer
from awavo.transport import orthogonal_slices
from awavo.transport.defining import Linear

__all__ = ["ParametricModel", "identify_parameters", "predict_parametric"]

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
    prior: Float[Array, "M p"],
    log_prior: Callable[[Float[Array, " p"]], Array],
    obs: Float[Array, "T d"],
    action: Array,
    next_obs: Float[Array, "T d"],
    noise: Float[Array, " d"],
    *,
    num_rounds: int = 40,
    num_slices: int | None = None,
) -> tuple[ParametricModel, Posterior]:
    """Infer theta from transitions, starting at draws of the prior."""
    dim = prior.shape[1]
    lines = max(dim, 8) if num_slices is None else num_slices

    def log_density(parameters):
        def one(theta):
            predicted = jax.vmap(lambda s, a: step(theta, s, a)[0])(obs, action)
            return log_prior(theta) - 0.5 * jnp.sum(((next_obs - predicted) / noise) ** 2)

        return jax.vmap(one)(parameters)

    posterior = infer(
        key,
        log_density,
        prior,
        slices=lambda k: orthogonal_slices(k, lines, dim),
        defining=Linear(),
        num_rounds=num_rounds,
    )
    return ParametricModel(posterior.particles, jnp.asarray(noise)), posterior
