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

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from awavo.algorithms.estimation import Estimates
from awavo.algorithms.onpolicy import OnPolicyConfig, OnPolicyInfo, algorithm, trust_region
from awavo.algorithms.trust_region import Surrogate, local_model, natural_step
from awavo.config import setting
from awavo.networks.stochastic import StochasticPolicy
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = ["CrpoConfig", "CrpoInfo", "CrpoState", "choose_constraint", "crpo"]


@dataclass(frozen=True)
class CrpoConfig(OnPolicyConfig):
    """Settings of CRPO."""

    choice: str = setting("largest", "which violated constraint is descended", choices=("largest", "first", "random"))
    max_kl_violated: float = setting(0.002, "radius of a step on a cost", low=1e-8, high=10.0)


class CrpoState(NamedTuple):
    """The policy, its average, the estimates and how many steps of each kind were made."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates
    num_reward_updates: Int[Array, ""]
    num_rectified_updates: Int[Array, ""]


# Metrics of one `learn`: the shared ones, and how many steps of each kind were made.
CrpoInfo = namedtuple("CrpoInfo", (*OnPolicyInfo._fields, "num_reward_updates", "num_rectified_updates"))


def crpo(spec: EnvSpec, config: CrpoConfig) -> Algorithm[CrpoState, CrpoInfo]:
    """Build CRPO for a task."""
    base = trust_region(spec, config)

    def init(key: Array) -> CrpoState:
        return CrpoState(*base.init(key), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def learn(key: Array, state: CrpoState, rollout: Rollout) -> tuple[CrpoState, CrpoInfo]:
        fit_key, choice_key = jax.random.split(key)
        estimated = base.estimate(fit_key, state, rollout)  # line 1
        batch = estimated.batch

        violated = batch.cost_totals > base.limits + config.tolerance
        feasible = ~jnp.any(violated)
        chosen = choose_constraint(choice_key, batch.cost_totals, base.limits, violated, config.choice)
        cost_advantage = batch.cost_advantages[:, chosen]
        advantage = jnp.where(feasible, batch.reward_advantage, -cost_advantage)  # line 2
        radius = jnp.where(feasible, config.max_kl, config.max_kl_violated)

        model = local_model(state.policy, batch, config)
        step = natural_step(model, advantage, radius)  # line 3

        def accept(surrogate: Surrogate) -> Bool[Array, ""]:
            gain = jnp.where(feasible, surrogate.reward, -surrogate.costs[chosen])
            return (surrogate.kl <= radius) & (gain >= 0)

        moved, info = base.move(state, estimated, model, step, accept)  # line 4
        took = info.step_scale > 0
        info = info._replace(feasible=feasible.astype(jnp.float32))  # as the branch was taken
        state = CrpoState(
            **moved._asdict(),
            num_reward_updates=state.num_reward_updates + (took & feasible),
            num_rectified_updates=state.num_rectified_updates + (took & ~feasible),
        )
        return state, CrpoInfo(
            **info._asdict(),
            num_reward_updates=state.num_reward_updates,
            num_rectified_updates=state.num_rectified_updates,
        )

    return algorithm(init, learn)


def choose_constraint(
    key: Array, totals: Float[Array, " C"], limits: Float[Array, " C"], violated: Array, choice: str
) -> Int[Array, ""]:
    """Index of the violated constraint to descend; meaningless when none is violated."""
    if choice == "first":
        return jnp.argmax(violated)
    if choice == "random":
        return jax.random.categorical(key, jnp.where(violated, 0.0, -jnp.inf))
    return jnp.argmax(jnp.where(violated, (totals - limits) / jnp.maximum(limits, 1.0), -jnp.inf))
