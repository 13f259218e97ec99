r"""What an on-policy method estimates from a rollout: values, advantages, constraint totals.

.. code-block:: text

    delta_t = h_t + gamma (1 - terminated_t) V(next_obs_t) - V(obs_t)
    A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1}

for h the reward and every cost at once. A truncated episode bootstraps from its own last observation, a terminated one
does not. Reward advantages are scaled to mean 0 and standard deviation 1. Cost advantages are centred, not rescaled:
their size is what a step is predicted to change. J_ci is the mean UNDISCOUNTED total of the last W episodes; divided by
the mean episode length, its excess over the limit is in the unit of a cost advantage, which is per step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, mean_length, push_episodes
from awavo.config import setting
from awavo.networks import MLP, RunningStatistics, mlp, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.networks.optimize import all_finite, choose, descend, optimizer_state
from awavo.types import EnvSpec, Rollout

__all__ = ["Batch", "Estimates", "EstimationConfig", "Estimator", "estimator", "fit_values", "gae"]


@dataclass(frozen=True)
class EstimationConfig:
    """Settings of the rollouts, of the networks, and of what is estimated."""

    num_envs: int = setting(32, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(128, "steps of each environment between updates", low=1, high=100_000)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers", low=1, high=65_536)
    activation: str = setting("tanh", "activation of the hidden layers", choices=("tanh", "relu", "silu"))
    log_std: float = setting(-0.5, "continuous actions: log of the first standard deviation", low=-10.0, high=2.0)
    discount: float = setting(0.99, "discount gamma of the advantages", low=0.0, high=1.0)
    gae_lambda: float = setting(0.95, "decay lambda of the advantages", low=0.0, high=1.0)
    value_lr: float = setting(2e-3, "Adam step size of the value network", low=0.0, high=1.0)
    value_epochs: int = setting(4, "passes of the value network over each rollout", low=1, high=10_000)
    value_batch: int = setting(512, "rows of a minibatch of the value network", low=1, high=10_000_000)
    value_scale: float = setting(10.0, "scale of the value network's outputs", low=1e-6, high=1e6)


class Estimates(NamedTuple):
    """Everything learnt besides the policy."""

    values: MLP
    optimizer: optax.OptState
    obs_stats: RunningStatistics
    window: EpisodeWindow
    episode_length: Float[Array, ""]


class Batch(NamedTuple):
    """A rollout made ready for a policy step, N = T * E rows."""

    obs: Float[Array, "N d"]
    sample: Array
    reward_advantage: Float[Array, " N"]
    cost_advantages: Float[Array, "N C"]
    cost_totals: Float[Array, " C"]
    episode_length: Float[Array, ""]

    def excess(self, limits: Float[Array, " C"]) -> Float[Array, " C"]:
        """c_i = (J_ci - d_i) / mean episode length, the unit of `cost_advantages`."""
        return (self.cost_totals - limits) / self.episode_length

    def advantages(self) -> Float[Array, "signals N"]:
        """Those of the reward, then those of every cost."""
        return jnp.concatenate([self.reward_advantage[None], self.cost_advantages.T])


class Estimator(NamedTuple):
    """`init(key) -> Estimates`; `update(key, estimates, rollout) -> (Estimates, Batch, value loss)`."""

    init: Callable[[Array], Estimates]
    update: Callable[[Array, Estimates, Rollout], tuple[Estimates, Batch, Array]]


def gae(
    signals: Float[Array, "T E S"],
    values: Float[Array, "T E S"],
    next_values: Float[Array, "T E S"],
    terminated: Bool[Array, "T E"],
    done: Bool[Array, "T E"],
    discount: float,
    decay: float,
) -> Float[Array, "T E S"]:
    """Generalised advantage estimates of all signals; `next_values` are those of the observation before any reset."""
    deltas = signals + discount * jnp.where(terminated[..., None], 0.0, next_values) - values

    def backwards(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, ended = row
        advantage = delta + discount * decay * jnp.where(ended[:, None], 0.0, later)
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(deltas[0]), (deltas, done), reverse=True)[1]


def fit_values(
    key: Array,
    values: MLP,
    opt_state: optax.OptState,
    optimizer: optax.GradientTransformation,
    obs: Float[Array, "N d"],
    targets: Float[Array, "N S"],
    epochs: int,
    batch_size: int,
) -> tuple[MLP, optax.OptState, Float[Array, ""]]:
    """Regress all heads on their targets in random minibatches; the loss returned is the last pass's mean."""
    rows = obs.shape[0]
    size = min(batch_size, rows)
    count = rows // size

    def step(carry: tuple[MLP, optax.OptState], index: Array) -> tuple[tuple[MLP, optax.OptState], Array]:
        values, opt = carry
        loss, grads = jax.value_and_grad(lambda v: jnp.mean((v(obs[index]) - targets[index]) ** 2))(values)
        return descend(optimizer, grads, opt, values), loss

    # With replacement: as many rows as that many passes, without the sort a shuffle needs.
    draws = jax.random.randint(key, (epochs * count, size), 0, rows)
    fitted, losses = jax.lax.scan(step, (values, opt_state), draws)
    return fitted[0], fitted[1], losses[-count:].mean()


def estimator(spec: EnvSpec, config: EstimationConfig, window: int) -> Estimator:
    """Build the estimator of a task: one network with a head for the reward and one for every cost.

    Constraints are estimated on the last `window` episodes.
    """
    optimizer = optax.adam(config.value_lr)
    signals_dim = 1 + spec.num_costs

    def init(key: Array) -> Estimates:
        values = mlp(key, (spec.obs_dim, *config.hidden, signals_dim), activation=config.activation, output_scale=0.01)
        episodes = empty_window(window, spec.num_costs)
        opt, obs_stats = optimizer_state(optimizer, values), running_statistics(spec.obs_dim)
        return Estimates(values, opt, obs_stats, episodes, jnp.asarray(spec.horizon, jnp.float32))

    def update(key: Array, estimates: Estimates, rollout: Rollout) -> tuple[Estimates, Batch, Array]:
        # The policy acted on observations scaled by the old statistics: ratios need the same ones.
        obs, next_obs = (normalize(estimates.obs_stats, x) for x in (rollout.obs, rollout.next_obs))
        signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1)
        values, next_values = (config.value_scale * estimates.values(x) for x in (obs, next_obs))
        advantages = gae(
            signals, values, next_values, rollout.terminated, rollout.done, config.discount, config.gae_lambda
        )
        flat_obs, flat_advantages = obs.reshape(-1, spec.obs_dim), advantages.reshape(-1, signals_dim)
        # Advantages plus values are the lambda-returns; the network learns them in units of its scale.
        targets = (advantages + values).reshape(-1, signals_dim) / config.value_scale
        fitted, opt, loss = fit_values(
            key, estimates.values, estimates.optimizer, optimizer, flat_obs, targets,
            config.value_epochs, config.value_batch,
        )  # fmt: skip
        # One bad number anywhere, and nothing of this rollout is learnt.
        learnt = (fitted, opt, update_statistics(estimates.obs_stats, rollout.obs))
        fitted, opt, obs_stats = choose(all_finite(learnt), learnt, estimates[:3])
        episodes = push_episodes(estimates.window, rollout)
        length = mean_length(estimates.episode_length, episodes, rollout)
        estimates = Estimates(fitted, opt, obs_stats, episodes, length)
        centred = flat_advantages - flat_advantages.mean(0)
        batch = Batch(
            flat_obs,
            rollout.extras.reshape(flat_obs.shape[0], *rollout.extras.shape[2:]),
            centred[:, 0] / (centred[:, 0].std() + 1e-8),
            centred[:, 1:],
            cost_estimate(estimates.window),
            estimates.episode_length,
        )
        return estimates, batch, loss

    return Estimator(init, update)
