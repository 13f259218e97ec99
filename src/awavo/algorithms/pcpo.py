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

from collections import namedtuple
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyInfo, OnPolicyState, algorithm, trust_region
from awavo.algorithms.trust_region import (
    Surrogate,
    active_sets,
    gram_matrix,
    local_model,
    natural_gradients,
    projection_multipliers,
)
from awavo.config import setting
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["PcpoConfig", "PcpoInfo", "pcpo", "project"]


@dataclass(frozen=True)
class PcpoConfig(OnPolicyConfig):
    """Settings of PCPO."""

    projection: str = setting("kl", "norm of the projection", choices=("kl", "l2"))
    line_search: str = setting("on", "shrink the whole step until it keeps the radius", choices=("on", "off"))


# Metrics of one `learn`: the shared ones, and mu.
PcpoInfo = namedtuple("PcpoInfo", (*OnPolicyInfo._fields, "multiplier"))


def pcpo(spec: EnvSpec, config: PcpoConfig) -> Algorithm[OnPolicyState, PcpoInfo]:
    """Build PCPO for a task."""
    active_sets(spec.num_costs)  # refuses more constraints than can be enumerated
    base = trust_region(spec, config)

    def learn(key: Array, state: OnPolicyState, rollout: Rollout) -> tuple[OnPolicyState, PcpoInfo]:
        estimated = base.estimate(key, state, rollout)  # line 1
        batch = estimated.batch
        excess = batch.excess(base.limits)

        model = local_model(state.policy, batch, config)
        gradients, natural = natural_gradients(model, batch.advantages())
        length = gradients[0] @ natural[0]
        step = jnp.sqrt(2 * config.max_kl / jnp.maximum(length, 1e-12)) * natural[0]  # line 2
        rows = gradients[1:]
        inverse_rows = natural[1:] if config.projection == "kl" else rows
        step, multipliers = project(step, rows, inverse_rows, excess)  # line 3

        def accept(surrogate: Surrogate) -> Bool[Array, ""]:
            return surrogate.kl <= config.max_kl if config.line_search == "on" else jnp.isfinite(surrogate.kl)

        state, info = base.move(state, estimated, model, step, accept)  # line 4
        return state, PcpoInfo(**info._asdict(), multiplier=multipliers)

    return algorithm(base.init, learn)


def project(
    step: Float[Array, " n"], rows: Float[Array, "C n"], inverse_rows: Float[Array, "C n"], excess: Float[Array, " C"]
) -> tuple[Float[Array, " n"], Float[Array, " C"]]:
    """Nearest point to `step` with `rows @ y + excess <= 0`, given `inverse_rows = L^-1 rows`; also the multipliers."""
    multipliers = projection_multipliers(gram_matrix(rows, inverse_rows), rows @ step + excess)
    return step - multipliers @ inverse_rows, multipliers
