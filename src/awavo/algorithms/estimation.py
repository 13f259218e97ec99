r"""What an on-policy method estimates from a rollout: values, advantages, constraint totals.

.. code-block:: text

    delta_t = h_t + gamma (1 - terminated_t) V(next_obs_t) - V(obs_t)
    A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1}

for h the reward and every cost at once. A truncated episode bootstraps from its own last observation, a terminated one
does not. Reward advantages are scaled to mean 0 and deviation 1. Cost advantages are centred, not rescaled: their size
is what a step is predicted to change. J_ci is the mean UNDISCOUNTED total of the last W episodes; divided by the mean
episode length, its excess over the limit is in the unit of a cost advantage, which is per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from awavo.algorithms.baseline_configs import OnPolicyConfig
from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, mean_length, push_episodes
from awavo.networks import MLP, RunningStatistics, mlp, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.types import EnvSpec, Rollout

__all__ = ["Batch", "Estimates", "Estimator", "estimator", "fit_values", "gae"]


class Estimates(NamedTuple):
    """Everything learnt besides the policy."""

    values: MLP
    optimizer: Any
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
    optimizer_state: Any,
    optimizer: optax.GradientTransformation,
    obs: Float[Array, "N d"],
    targets: Float[Array, "N S"],
    epochs: int,
    batch_size: int,
) -> tuple[MLP, Any, Float[Array, ""]]:
    """Regress all heads on their targets in random minibatches; the loss returned is the last pass's mean."""
    rows = obs.shape[0]
    size = min(batch_size, rows)
    count = rows // size

    def step(carry: Any, index: Array) -> tuple[Any, Array]:
        values, opt = carry
        loss, grads = jax.value_and_grad(lambda v: jnp.mean((v(obs[index]) - targets[index]) ** 2))(values)
        change, opt = optimizer.update(grads, opt)
        return (optax.apply_updates(values, change), opt), loss

    draws = jax.random.randint(key, (epochs * count, size), 0, rows)
    fitted, losses = jax.lax.scan(step, (values, optimizer_state), draws)
    return fitted[0], fitted[1], losses[-count:].mean()


def estimator(spec: EnvSpec, config: OnPolicyConfig) -> Estimator:
    """Build the estimator of a task: one network with a head for the reward and one for every cost."""
    optimizer = optax.adam(config.value_lr)
    signals_dim = 1 + spec.num_costs

    def init(key: Array) -> Estimates:
        values: Any = mlp(
            key, (spec.obs_dim, *config.hidden, signals_dim), activation=config.activation, output_scale=0.01
        )
        window = empty_window(config.window, spec.num_costs)
        return Estimates(
            values,
            optimizer.init(values),
            running_statistics(spec.obs_dim),
            window,
            jnp.asarray(spec.horizon, jnp.float32),
        )

    def update(key: Array, estimates: Estimates, rollout: Rollout) -> tuple[Estimates, Batch, Array]:
        # The policy acted on observations scaled by the old statistics: ratios need the same ones.
        obs, next_obs = (normalize(estimates.obs_stats, x) for x in (rollout.obs, rollout.next_obs))
        signals = jnp.concatenate([rollout.reward[..., None], rollout.costs], -1)
        values, next_values = (config.value_scale * estimates.values(x) for x in (obs, next_obs))
        advantages = gae(
            signals, values, next_values, rollout.terminated, rollout.done, config.discount, config.gae_lambda
        )
        flat_obs, flat_advantages = obs.reshape(-1, spec.obs_dim), advantages.reshape(-1, signals_dim)
        targets = (advantages + values).reshape(-1, signals_dim) / config.value_scale
        fitted, opt, loss = fit_values(
            key,
            estimates.values,
            estimates.optimizer,
            optimizer,
            flat_obs,
            targets,
            config.value_epochs,
            config.value_batch,
        )
        learnt = (fitted, opt, update_statistics(estimates.obs_stats, rollout.obs))
        finite = jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), learnt))
        fitted, opt, obs_stats = jax.tree.map(lambda new, old: jnp.where(finite, new, old), learnt, estimates[:3])
        window = push_episodes(estimates.window, rollout)
        length = mean_length(estimates.episode_length, rollout)
        estimates = Estimates(fitted, opt, obs_stats, window, length)
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
