r"""PCPO: projection-based constrained policy optimisation (Yang et al., 2020).

One call of `learn` is one iteration, with g the gradient of E[ratio A_r], b_i those of E[ratio A_ci] (rows of B), and
c_i = (J_ci - d_i) / mean episode length:

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  x     <- sqrt(2 delta / g'H^-1 g) H^-1 g                                       (reward step)
    3  x     <- argmin_y (y - x)' L (y - x)   with  B y + c <= 0                      (projection, L = H or I)
              = x - L^-1 B' mu,  mu = argmin_{mu >= 0} mu' B L^-1 B' mu / 2 - mu'(B x + c)
    4  theta <- theta + x,  shrunk until KL <= delta

With one constraint mu = max(0, (b'x + c) / (b'L^-1 b)), the paper's formula; several are projected onto the
intersection of their half-spaces, by enumerating active sets. Deviations: `line_search="off"` is the paper's full step;
c is divided by the episode length, so that it is in the unit of B, which is per step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms.baseline_configs import PcpoConfig
from awavo.algorithms.estimation import Estimates, estimator
from awavo.algorithms.onpolicy import act, initial_policy
from awavo.algorithms.trust_region import (
    active_sets,
    backtrack,
    gram_matrix,
    local_model,
    natural_gradients,
    projection_multipliers,
)
from awavo.networks.optimize import polyak_average
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["PcpoInfo", "PcpoState", "pcpo", "project"]


class PcpoState(NamedTuple):
    """The policy, its average and the estimates."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates


class PcpoInfo(NamedTuple):
    """Metrics of one `learn`."""

    value_loss: Array
    kl: Array
    step_scale: Array
    entropy: Array
    feasible: Array
    cost_estimate: Array
    multiplier: Array


def pcpo(spec: EnvSpec, config: PcpoConfig) -> Algorithm:
    """Build PCPO for a task."""
    active_sets(spec.num_costs)
    limits = jnp.asarray(spec.cost_limits) * (1.0 - config.margin)
    estimation = estimator(spec, config)

    def init(key: Array) -> PcpoState:
        policy_key, value_key = jax.random.split(key)
        policy = initial_policy(policy_key, spec, config)
        return PcpoState(policy, policy, estimation.init(value_key))

    def learn(key: Array, state: PcpoState, rollout: Rollout) -> tuple[PcpoState, PcpoInfo]:
        estimates, batch, value_loss = estimation.update(key, state.estimates, rollout)
        excess = batch.excess(limits)

        model = local_model(state.policy, batch, config)
        advantages = jnp.concatenate([batch.reward_advantage[None], batch.cost_advantages.T])
        gradients, natural = natural_gradients(model, advantages)
        length = gradients[0] @ natural[0]
        step = jnp.sqrt(2 * config.max_kl / jnp.maximum(length, 1e-12)) * natural[0]
        rows = gradients[1:]
        inverse_rows = natural[1:] if config.projection == "kl" else rows
        step, multipliers = project(step, rows, inverse_rows, excess)

        if config.line_search == "on":
            parameters, scale, surrogate = backtrack(model, step, lambda s: s.kl <= config.max_kl, config)
        else:
            parameters, scale, surrogate = backtrack(model, step, lambda s: jnp.isfinite(s.kl), config)
        policy = model.rebuild(parameters)
        average = polyak_average(policy, state.average, config.polyak)
        state = PcpoState(policy, average, estimates)
        info = PcpoInfo(
            value_loss=value_loss,
            kl=surrogate.kl,
            step_scale=scale,
            entropy=state.policy(batch.obs).entropy().mean(),
            feasible=jnp.all(batch.cost_totals <= limits + config.tolerance).astype(jnp.float32),
            cost_estimate=batch.cost_totals,
            multiplier=multipliers,
        )
        return state, info

    return Algorithm(init, act, learn)


def project(
    step: Float[Array, " n"], rows: Float[Array, "C n"], inverse_rows: Float[Array, "C n"], excess: Float[Array, " C"]
) -> tuple[Float[Array, " n"], Float[Array, " C"]]:
    """Nearest point to `step` with `rows @ y + excess <= 0`, given `inverse_rows = L^-1 rows`; also the multipliers."""
    multipliers = projection_multipliers(gram_matrix(rows, inverse_rows), rows @ step + excess)
    return step - multipliers @ inverse_rows, multipliers
