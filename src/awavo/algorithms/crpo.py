r"""CRPO: constraint-rectified policy optimisation (Xu, Liang and Lan, 2021).

One call of `learn` is one iteration:

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r, A_ci
    2  if J_ci <= d_i + eta for all i:  A <- A_r                      (reward step)
       else pick a violated i:          A <- -A_ci                    (rectifying step)
    3  x     <- H^-1 grad E[ratio A]                                  (conjugate gradient)
    4  theta <- theta + sqrt(2 delta / x'Hx) x,  shrunk until KL <= delta and E[ratio A] has not fallen

Choices where the paper leaves one: the step is TRPO's, as in its experiments; among the violated constraints the one
with the largest excess relative to its limit (`first` and `random` are options); the radius of a rectifying step has
its own setting. Greedy actions come from the averaged policy; the theory outputs a random iterate of the reward steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.algorithms.baseline_configs import CrpoConfig
from awavo.algorithms.estimation import Estimates, estimator
from awavo.algorithms.onpolicy import act, initial_policy
from awavo.algorithms.trust_region import backtrack, local_model
from awavo.networks.optimize import polyak_average
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["CrpoInfo", "CrpoState", "choose_constraint", "crpo"]


class CrpoState(NamedTuple):
    """The policy, its average, the estimates and how many steps of each kind were made."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates
    num_reward_updates: Int[Array, ""]
    num_rectified_updates: Int[Array, ""]


class CrpoInfo(NamedTuple):
    """Metrics of one `learn`."""

    value_loss: Array
    kl: Array
    step_scale: Array
    entropy: Array
    feasible: Array
    cost_estimate: Array
    num_reward_updates: Array
    num_rectified_updates: Array


def crpo(spec: EnvSpec, config: CrpoConfig) -> Algorithm:
    """Build CRPO for a task."""
    limits = jnp.asarray(spec.cost_limits) * (1.0 - config.margin)
    estimation = estimator(spec, config)

    def init(key: Array) -> CrpoState:
        policy_key, value_key = jax.random.split(key)
        policy = initial_policy(policy_key, spec, config)
        return CrpoState(policy, policy, estimation.init(value_key), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def learn(key: Array, state: CrpoState, rollout: Rollout) -> tuple[CrpoState, CrpoInfo]:
        fit_key, choice_key = jax.random.split(key)
        estimates, batch, value_loss = estimation.update(fit_key, state.estimates, rollout)

        violated = batch.cost_totals > limits + config.tolerance
        feasible = ~jnp.any(violated)
        chosen = choose_constraint(choice_key, batch.cost_totals, limits, violated, config.choice)
        cost_advantage = batch.cost_advantages[:, chosen]
        advantage = jnp.where(feasible, batch.reward_advantage, -cost_advantage)
        radius = jnp.where(feasible, config.max_kl, config.max_kl_violated)

        model = local_model(state.policy, batch, config)
        gradient = model.gradient(advantage)
        direction = model.solve(gradient)
        step = jnp.sqrt(2 * radius / jnp.maximum(direction @ model.fisher(direction), 1e-12)) * direction

        def accept(surrogate):
            gain = jnp.where(feasible, surrogate.reward, -surrogate.costs[chosen])
            return (surrogate.kl <= radius) & (gain >= 0)

        parameters, scale, surrogate = backtrack(model, step, accept, config)
        moved = scale > 0
        policy = model.rebuild(parameters)
        state = CrpoState(
            policy,
            polyak_average(policy, state.average, config.polyak),
            estimates,
            state.num_reward_updates + (moved & feasible),
            state.num_rectified_updates + (moved & ~feasible),
        )
        info = CrpoInfo(
            value_loss=value_loss,
            kl=surrogate.kl,
            step_scale=scale,
            entropy=state.policy(batch.obs).entropy().mean(),
            feasible=feasible.astype(jnp.float32),
            cost_estimate=batch.cost_totals,
            num_reward_updates=state.num_reward_updates,
            num_rectified_updates=state.num_rectified_updates,
        )
        return state, info

    return Algorithm(init, act, learn)


def choose_constraint(
    key: Array, totals: Float[Array, " C"], limits: Float[Array, " C"], violated: Array, choice: str
) -> Int[Array, ""]:
    """Index of the violated constraint to descend; meaningless when none is violated."""
    if choice == "first":
        return jnp.argmax(violated)
    if choice == "random":
        return jax.random.categorical(key, jnp.where(violated, 0.0, -jnp.inf))
    return jnp.argmax(jnp.where(violated, (totals - limits) / jnp.maximum(limits, 1.0), -jnp.inf))
