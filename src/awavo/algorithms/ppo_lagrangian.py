r"""PPO-Lagrangian: clipped steps on the Lagrangian, the multipliers by Adam, as OmniSafe's PPOLag, or by PID control.

One call of `learn` is one iteration, ratio = pi_theta(a|s) / pi_old(a|s):

.. code-block:: text

    1  estimate J_ci (mean UNDISCOUNTED cost of the last W episodes), A_r (scaled), A_ci (centred)
    2  where an episode ended:  lambda_i <- max(0, lambda_i + Adam(J_ci - d_i))    (or the PID step of `multipliers`)
    3  A     <- (A_r - sum_i lambda_i A_ci) / (1 + sum_i lambda_i)
    4  theta <- minibatches of Adam on  E[min(ratio A, clip(ratio, 1 - eps, 1 + eps) A)] + beta H(pi),
                as many passes as `epochs`, none more once KL(old || theta) is above `target_kl`

Schulman et al. (2017) and Ray et al. (2019), with the settings that OmniSafe ships for PPOLag (preset `omnisafe`). The
defaults differ: rollouts of 2,048 steps in place of 20,000, 10 passes in place of 40, the last 32 episodes in
place of 100, a value network that learns at 1e-3 in place of 3e-4, Gaussians that begin with a standard deviation of
exp(-0.5) in place of 1. Deviations: the value network is fitted before the policy's passes and not within them, it is
one with a head for each signal and its weights are not penalised, multipliers wait for episodes to end, the learning
rates do not decay (an algorithm does not know how long it will be trained), and Gaussian samples are squashed into the
box of actions.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from awavo.algorithms.estimation import Batch, Estimates
from awavo.algorithms.multipliers import (
    Controller,
    MultiplierConfig,
    initial_controller,
    relative_excess,
    update_multipliers,
)
from awavo.algorithms.onpolicy import OnPolicyInfo, PolicyConfig, algorithm, on_policy
from awavo.config import setting
from awavo.networks.optimize import adam, all_finite, choose, descend, optimizer_state
from awavo.networks.stochastic import StochasticPolicy, kl_divergence
from awavo.types import Algorithm, EnvSpec, Rollout

__all__ = [
    "PpoLagrangianConfig",
    "PpoLagrangianInfo",
    "PpoLagrangianState",
    "adam_multipliers",
    "clipped_surrogate",
    "ppo_lagrangian",
]

MAX_GRAD_NORM = 40.0


@dataclass(frozen=True)
class PpoLagrangianConfig(MultiplierConfig, PolicyConfig):
    """Settings of PPO-Lagrangian; those of OmniSafe are the preset `omnisafe`."""

    num_envs: int = setting(16, "environments stepped together", low=1, high=65_536)
    value_lr: float = setting(1e-3, "Adam step size of the value network", low=0.0, high=1.0)
    value_epochs: int = setting(10, "passes of the value network over each rollout", low=1, high=10_000)
    value_batch: int = setting(64, "rows of a minibatch of the value network", low=1, high=10_000_000)
    tolerance: float = setting(0.0, "tolerance on every limit", low=0.0, high=1e9)
    polyak: float = setting(1.0, "share of the newest policy in the average that acts greedily", low=1e-6, high=1.0)
    clip: float = setting(0.2, "eps: how far a ratio may go from 1 and still count", low=1e-6, high=1e3)
    epochs: int = setting(10, "passes of the policy over each rollout", low=1, high=10_000)
    batch_size: int = setting(64, "rows of a minibatch of the policy", low=1, high=10_000_000)
    policy_lr: float = setting(3e-4, "Adam step size of the policy", low=0.0, high=1.0)
    target_kl: float = setting(0.02, "divergence after which no further pass is made", low=0.0, high=1e9)
    entropy_weight: float = setting(0.0, "beta: weight of the policy's entropy", low=0.0, high=1e3)
    multiplier: str = setting("adam", "how the multipliers are updated", choices=("adam", "pid"))
    multiplier_lr: float = setting(0.035, "adam: step size of the multipliers", low=0.0, high=1e3)
    multiplier_initial: float = setting(0.001, "first multiplier of every constraint", low=0.0, high=1e6)
    multiplier_max: float = setting(1_000.0, "largest multiplier", low=0.0, high=1e6)


class PpoLagrangianState(NamedTuple):
    """The policy, its average, the estimates, the multipliers with their controller, and the optimisers."""

    policy: StochasticPolicy
    average: StochasticPolicy
    estimates: Estimates
    controller: Controller
    multipliers: Float[Array, " C"]
    policy_opt: optax.OptState
    multiplier_opt: optax.OptState


# Metrics of one `learn`: the shared ones, and lambda.
PpoLagrangianInfo = namedtuple("PpoLagrangianInfo", (*OnPolicyInfo._fields, "multiplier"))


def ppo_lagrangian(spec: EnvSpec, config: PpoLagrangianConfig) -> Algorithm[PpoLagrangianState, PpoLagrangianInfo]:
    """Build PPO-Lagrangian for a task."""
    base = on_policy(spec, config)
    optimizer, multiplier_optimizer = adam(config.policy_lr, MAX_GRAD_NORM), optax.adam(config.multiplier_lr)

    def init(key: Array) -> PpoLagrangianState:
        first = base.init(key)
        controller = initial_controller(spec.num_costs, config)
        opts = optimizer_state(optimizer, first.policy), optimizer_state(multiplier_optimizer, controller.integral)
        return PpoLagrangianState(*first, controller, jnp.copy(controller.integral), *opts)

    def learn(key: Array, state: PpoLagrangianState, rollout: Rollout) -> tuple[PpoLagrangianState, PpoLagrangianInfo]:
        fit_key, policy_key = jax.random.split(key)
        estimated = base.estimate(fit_key, state, rollout)  # line 1
        batch = estimated.batch
        state = steer(state, batch, rollout.done.any())  # line 2
        total = 1.0 + state.multipliers.sum()
        advantage = (batch.reward_advantage - batch.cost_advantages @ state.multipliers) / total  # line 3
        policy, opt, kl, passes = improve(policy_key, state, batch, advantage)  # line 4
        moved, info = base.finish(state, estimated, policy, kl, passes / config.epochs)
        state = state._replace(**moved._asdict(), policy_opt=opt)
        return state, PpoLagrangianInfo(**info._asdict(), multiplier=state.multipliers)

    def steer(state: PpoLagrangianState, batch: Batch, ended: Bool[Array, ""]) -> PpoLagrangianState:
        """Move the multipliers, if there is news of the costs."""
        old = (state.controller, state.multipliers, state.multiplier_opt)
        if config.multiplier == "adam":
            multipliers, opt = adam_multipliers(
                multiplier_optimizer, state.multiplier_opt, state.multipliers, batch.cost_totals - base.limits
            )
            new = (state.controller, jnp.minimum(multipliers, config.multiplier_max), opt)
        else:
            excess = relative_excess(batch.cost_totals, base.limits)
            new = (*update_multipliers(state.controller, excess, config), state.multiplier_opt)
        controller, multipliers, opt = choose(ended & all_finite(new), new, old)
        return state._replace(controller=controller, multipliers=multipliers, multiplier_opt=opt)

    def improve(
        key: Array, state: PpoLagrangianState, batch: Batch, advantage: Float[Array, " N"]
    ) -> tuple[StochasticPolicy, optax.OptState, Float[Array, ""], Float[Array, ""]]:
        """The policy after the passes, its optimiser, the divergence from the old one and how many passes were made."""
        before = state.policy(batch.obs)
        old_log_prob = before.log_prob(batch.sample)
        rows = batch.obs.shape[0]
        size = min(config.batch_size, rows)

        def loss_fn(policy: StochasticPolicy, index: Array) -> Float[Array, ""]:
            distribution = policy(batch.obs[index])
            ratio = jnp.exp(distribution.log_prob(batch.sample[index]) - old_log_prob[index])
            surrogate = clipped_surrogate(ratio, advantage[index], config.clip)
            return -jnp.mean(surrogate + config.entropy_weight * distribution.entropy())

        def minibatch(carry: tuple, index: Array) -> tuple[tuple, None]:
            policy, opt = carry
            return descend(optimizer, jax.grad(loss_fn)(policy, index), opt, policy), None

        def one_pass(carry: tuple) -> tuple:
            policy, opt, _, count = carry
            order = jax.random.permutation(jax.random.fold_in(key, count), rows)
            draws = order[: rows // size * size].reshape(-1, size)
            (policy, opt), _ = jax.lax.scan(minibatch, (policy, opt), draws)
            return policy, opt, kl_divergence(before, policy(batch.obs)).mean(), count + 1

        start = (state.policy, state.policy_opt, jnp.zeros(()), jnp.zeros((), jnp.int32))
        # A divergence that is not a number ends the passes too.
        policy, opt, kl, passes = jax.lax.while_loop(
            lambda carry: (carry[3] < config.epochs) & (carry[2] <= config.target_kl), one_pass, start
        )
        taken = (policy, opt, kl, passes.astype(jnp.float32))
        return choose(all_finite(taken), taken, (state.policy, state.policy_opt, jnp.zeros(()), jnp.zeros(())))

    return algorithm(init, learn)


def clipped_surrogate(ratio: Float[Array, " N"], advantage: Float[Array, " N"], clip: float) -> Float[Array, " N"]:
    """The lower of the gain and the gain at the clipped ratio: nothing is won by going beyond the clip."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def adam_multipliers(
    optimizer: optax.GradientTransformation,
    opt_state: optax.OptState,
    multipliers: Float[Array, " C"],
    excess: Float[Array, " C"],
) -> tuple[Float[Array, " C"], optax.OptState]:
    """One ascent step on sum_i lambda_i (J_ci - d_i), kept non-negative; Adam makes it free of the costs' scale."""
    moved, opt_state = descend(optimizer, -excess, opt_state, multipliers)
    return jnp.maximum(moved, 0.0), opt_state
