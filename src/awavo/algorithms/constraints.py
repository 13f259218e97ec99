r"""The constraint estimate J_i and the weights that answer it.

**Estimate.** Steps are counted by the age of their episode, in `BINS` bins, each with its cost rate and its share of
steps that end an episode. J_i is the sum of the rates over the ages an episode lives to see:

.. math::  J_i = \sum_k E[\text{steps in bin } k] \; \text{rate}_{ik}.

It moves with every rollout, needs no episode to be whole, and does not swing where environments run in step and costs
come at one age. A mean over finished episodes waits a whole episode for news: with 1,000-step episodes in 32
environments, 32,000 steps.

**Weights.** The aim is :math:`c_i = (1 - margin) b_i - \sigma_i / 2`: in reserve is also half the standard error
:math:`\sigma_i` of the mean cost of the episodes remembered, at most half of the limit. With the error
:math:`e_i = (J_i - c_i) / b_i`, clipped to +-1,

.. math::  I_i \leftarrow \max(I_i + k_I e_i \, dt, 0), \qquad w_i = \max(I_i + k_P e_i, 0),

with dt in generations of episodes: one of every environment, but no fewer than `sizes.generation` says. w_i is the
dual variable of constraint i, driven by proportional and integral control: rectification by weights is a primal-dual
method; `rectify="hard"`, the paper's switch, is the primal one.

**Ends.** An episode that terminates costs nothing more, so that to fall is a way to keep a limit: the shortest one for
a policy that is fast and falls anyway. In larger tasks the critics of costs are told that after a termination costs go
on as in another life, at the mean rate of a step (`cost_rates`). The estimate J_i is not touched: it is of episodes.

A weight must not run ahead of what the critics know. Where costs hang on many numbers (`sizes.patience`) both gains are
divided by five, and errors count up to five: who is far outside is answered as fast as ever, who is near his limit
slowly. Answered at full speed, an agent among hazards that it cannot tell apart yet learns to stand still. As a cost
cannot be further below its aim than all of it, errors below zero, too, count up to five times where nothing is spent: a
weight that has stopped an agent falls as fast as it rose.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.types import Rollout

__all__ = [
    "CostProfile",
    "control_weights",
    "cost_error",
    "cost_rates",
    "count_costs",
    "empty_profile",
    "estimate_costs",
    "standard_error",
    "with_greedy_excess",
]

# Age bins, at most, and how many generations of episodes the estimate remembers.
BINS, MEMORY = 20, 2.0
# Integral part per generation of episodes, proportional part, largest integral part.
INTEGRAL, PROPORTIONAL, WEIGHT_MAX = 0.25, 0.5, 100.0
# Standard errors of the estimate kept in reserve where a generation has four episodes; fewer where it has more.
CAUTION = 1.0


class CostProfile(NamedTuple):
    """Decayed sums: by the age of the episode, and of whole episodes.

    By age costs, steps and steps that terminated; of episodes how many ended, their costs, the squares of these.
    """

    cost: Float[Array, "K C"]
    steps: Float[Array, " K"]
    ends: Float[Array, " K"]
    episodes: Float[Array, ""]
    total: Float[Array, " C"]
    square: Float[Array, " C"]


def empty_profile(num_costs: int, horizon: int) -> CostProfile:
    """No step yet."""
    bins = min(BINS, horizon)
    none = jnp.zeros(num_costs)
    return CostProfile(jnp.zeros((bins, num_costs)), jnp.zeros(bins), jnp.zeros(bins), jnp.zeros(()), none, none)


def count_costs(profile: CostProfile, rollout: Rollout, horizon: int, generation: float) -> CostProfile:
    """Add a rollout; a bin forgets only as it is visited. A generation is so many episodes."""
    bins = profile.steps.shape[0]
    age = jnp.clip((rollout.episode_length - 1) * bins // horizon, 0, bins - 1)
    here = jax.nn.one_hot(age, bins)
    steps, ends = here.sum((0, 1)), jnp.einsum("tek,te->k", here, rollout.terminated.astype(jnp.float32))
    cost = jnp.einsum("tek,tec->kc", here, rollout.costs)
    stay = jnp.clip(1.0 - steps / (MEMORY * generation * horizon / bins), 0.0, 1.0)
    # An episode that was cut short says nothing of the cost of a whole one.
    done = (rollout.terminated | (rollout.done & (rollout.episode_length >= horizon))).astype(jnp.float32)
    kept = jnp.clip(1.0 - done.sum() / (MEMORY * generation), 0.0, 1.0)
    return CostProfile(
        cost=stay[:, None] * profile.cost + cost,
        steps=stay * profile.steps + steps,
        ends=stay * profile.ends + ends,
        episodes=kept * profile.episodes + done.sum(),
        total=kept * profile.total + jnp.einsum("te,tec->c", done, rollout.episode_costs),
        square=kept * profile.square + jnp.einsum("te,tec->c", done, rollout.episode_costs**2),
    )


def estimate_costs(profile: CostProfile, horizon: int) -> Float[Array, " C"]:
    """J_i; 0 before the first step."""
    steps, rate = _life(profile, horizon)
    return steps @ rate


def cost_rates(profile: CostProfile, horizon: int) -> Float[Array, " C"]:
    """Mean costs of a step, over a whole life; 0 before the first step."""
    steps, rate = _life(profile, horizon)
    return steps @ rate / jnp.maximum(steps.sum(), 1.0)


def _life(profile: CostProfile, horizon: int) -> tuple[Float[Array, " K"], Float[Array, "K C"]]:
    """Steps that an episode spends at each age, and what a step costs there: ages not seen yet take the mean rate."""
    few = 1e-3
    mean_rate = profile.cost.sum(0) / jnp.maximum(profile.steps.sum(), 1.0)
    rate = (profile.cost + few * mean_rate) / (profile.steps[:, None] + few)
    hazard = jnp.clip(profile.ends / (profile.steps + few), 0.0, 1.0)
    size = horizon / profile.steps.shape[0]
    # Share of the episodes that reach each bin, and the steps they spend in it.
    stay = jnp.exp(size * jnp.log1p(-jnp.minimum(hazard, 0.999)))
    alive = jnp.concatenate([jnp.ones(1), jnp.cumprod(stay)[:-1]])
    steps = jnp.where(hazard > 1e-6, alive * (1 - stay) / jnp.maximum(hazard, 1e-6), alive * size)
    return steps, rate


def standard_error(profile: CostProfile) -> Float[Array, " C"]:
    """Of the mean cost of the whole episodes remembered; 0 before there are two."""
    count = jnp.maximum(profile.episodes, 1.0)
    variance = jnp.maximum(profile.square / count - (profile.total / count) ** 2, 0.0)
    return jnp.sqrt(variance / count)


def with_greedy_excess(estimate: Float[Array, " C"], greedy: CostProfile, horizon: int) -> Float[Array, " C"]:
    """J_i, raised to what the greedy policy alone is seen to cost, less the standard error of that."""
    return jnp.maximum(estimate, estimate_costs(greedy, horizon) - standard_error(greedy))


def cost_error(
    estimate: Float[Array, " C"],
    deviation: Float[Array, " C"],
    limits: Float[Array, " C"],
    margin: float,
    generation: int,
    patience: float = 1.0,
) -> Float[Array, " C"]:
    """How far J is above its aim, as a share of the limit in [-1, patience]; of a limit of 0 any cost is all of it."""
    reserve = CAUTION * math.sqrt(4 / generation) * deviation
    aim = (1.0 - margin) * limits - jnp.minimum(reserve, 0.5 * limits)
    return jnp.clip((estimate - aim) / jnp.where(limits > 0, limits, 1e-6), -1.0, patience)


def control_weights(
    integral: Float[Array, " C"], error: Float[Array, " C"], generations: float, patience: float = 1.0
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """The next integral part and the weights w_i, after so many generations of episodes."""
    # A weight that grew large while the policy lagged behind it must not outlast the violation, and errors below zero
    # end at -1 where those above end at the patience.
    fall = jnp.maximum(integral, 1.0) * (1.0 + (patience - 1.0) * jnp.abs(error))
    pace = jnp.where(error < 0, fall, 1.0)
    integral = jnp.clip(integral + INTEGRAL / patience * generations * pace * error, 0.0, WEIGHT_MAX)
    return integral, jnp.maximum(integral + PROPORTIONAL / patience * error, 0.0)
