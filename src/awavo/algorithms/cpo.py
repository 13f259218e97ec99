r"""CPO: constrained policy optimisation (Achiam et al., 2017), for any number of constraints.

One call of `learn` is one iteration, with g the gradient of E[ratio A_r], b_i those of E[ratio A_ci] (rows of B), and
c_i = (J_ci - d_i) / mean episode length:

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  q = g'H^-1 g,  r = B H^-1 g,  S = B H^-1 B'
    3  if some x has  B x + c <= 0  and  x'Hx <= 2 delta:      x <- argmax g'x over those x
       else (recovery):   x <- the H-nearest x with B x + c <= 0, scaled to x'Hx = 2 delta
    4  theta <- theta + x, shrunk until KL <= delta, no cost is predicted to rise by more than max(-c_i, 0),
                and, while nothing is violated, the predicted reward does not fall

The maximum of line 3 is found exactly: its active constraints form some subset, on which it is closed form,
x = alpha (H^-1 g - H^-1 B' u) - H^-1 B' w with S u = r, S w = c and alpha = sqrt((2 delta - c'w) / (q - r'u)). With one
constraint that is the paper's dual (alpha = 1 / lambda) and its three cases; with several, the best feasible of the 2^C
candidates. Deviation: c is divided by the episode length, so that it is in the unit of B, which is per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyState, algorithm, trust_region
from awavo.algorithms.trust_region import (
    Surrogate,
    active_sets,
    gram_matrix,
    local_model,
    natural_gradients,
    projection_multipliers,
    solve_subsets,
)
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["CpoConfig", "CpoInfo", "Solution", "constrained_step", "cpo"]


@dataclass(frozen=True)
class CpoConfig(OnPolicyConfig):
    """Settings of CPO."""


class CpoInfo(NamedTuple):
    """Metrics of one `learn`: the shared ones, and whether the step only recovers."""

    value_loss: Array
    kl: Array
    step_scale: Array
    entropy: Array
    feasible: Array
    recovering: Array
    cost_estimate: Array


class Solution(NamedTuple):
    """The step `alpha H^-1 g - H^-1 B' weights`, and whether it only recovers."""

    alpha: Float[Array, ""]
    weights: Float[Array, " C"]
    recovering: Bool[Array, ""]


def cpo(spec: EnvSpec, config: CpoConfig) -> Algorithm[OnPolicyState, CpoInfo]:
    """Build CPO for a task."""
    active_sets(spec.num_costs)  # refuses more constraints than can be enumerated
    base = trust_region(spec, config)

    def learn(key: Array, state: OnPolicyState, rollout: Rollout) -> tuple[OnPolicyState, CpoInfo]:
        estimated = base.estimate(key, state, rollout)  # line 1
        batch = estimated.batch
        excess = batch.excess(base.limits)

        model = local_model(state.policy, batch, config)
        gradients, natural = natural_gradients(model, batch.advantages())
        gram = gram_matrix(gradients, natural)  # line 2: q, r and S in one matrix
        solution = constrained_step(gram[0, 0], gram[1:, 0], gram[1:, 1:], excess, config.max_kl)  # line 3
        step = solution.alpha * natural[0] - solution.weights @ natural[1:]

        def accept(surrogate: Surrogate) -> Bool[Array, ""]:
            within = jnp.all(surrogate.costs <= jnp.maximum(-excess, 0.0))
            return (surrogate.kl <= config.max_kl) & within & (jnp.any(excess > 0) | (surrogate.reward >= 0))

        state, info = base.move(state, estimated, model, step, accept)  # line 4
        return state, CpoInfo(**info._asdict(), recovering=solution.recovering.astype(jnp.float32))

    return algorithm(base.init, learn)


def constrained_step(
    q: Float[Array, ""], r: Float[Array, " C"], s: Float[Array, "C C"], excess: Float[Array, " C"], radius: float
) -> Solution:
    """Maximise `g'x` with `B x + excess <= 0` and `x'Hx <= 2 radius`; q = g'H^-1 g, r = B H^-1 g, s = B H^-1 B'."""
    # In units where g, every b_i and the largest step have length 1; a constraint without a gradient is left out.
    unit = jnp.where(jnp.diag(s) > 1e-20, jax.lax.rsqrt(jnp.maximum(jnp.diag(s), 1e-20)), 0.0)
    size = jnp.sqrt(jnp.maximum(q, 1e-20))
    reach = jnp.sqrt(2 * radius)
    s, r, c = s * jnp.outer(unit, unit), r * unit / size, excess * unit / reach

    # The closed form on every active set at once; the best that keeps all limits is the maximum.
    u, w = solve_subsets(s, r), solve_subsets(s, c)
    gain = jnp.maximum(1.0 - u @ r, 1e-8)
    room = 1.0 - w @ c
    alpha = jnp.sqrt(jnp.maximum(room, 0.0) / gain)
    weights = alpha[:, None] * u + w
    outside = jnp.max(alpha[:, None] * r - weights @ s + c, -1)
    value = jnp.where((room >= 0) & (outside <= 1e-4), alpha - weights @ r, -jnp.inf)
    best = jnp.argmax(value)

    # Where no candidate is feasible: straight back, as far as the region goes.
    nearest = projection_multipliers(s, c)
    recovery = nearest * jax.lax.rsqrt(jnp.maximum(nearest @ s @ nearest, 1e-20))
    recovering = jnp.all(jnp.isneginf(value))
    return Solution(
        jnp.where(recovering, 0.0, alpha[best]) * reach / size,
        jnp.where(recovering, recovery, weights[best]) * unit * reach,
        recovering,
    )
