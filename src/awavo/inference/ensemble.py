r"""A probabilistic ensemble: p(s', h, end | s, a, theta_k), k = 1..K, the members a sample of p(theta | D).

.. code-block:: text

    s' - s ~ N(m_k(s, a), diag v_k(s, a)),   h = (reward, costs) = f_k(s, a),   P(terminated) = sigmoid(e_k(s, a))
    loss_k = mean over rows of w_k { NLL(s' - s) + |h - f_k|^2 + BCE(terminated) }

Each member has its own double-or-nothing bootstrap weights w in {0, 2} of every stored row (Owen and Eckles, 2012), and
a fixed random network added to its output (randomised priors, Osband et al. 2018), so the spread of the members
reflects the data and not only their initial weights. How much each member is believed (`evidence`), and by how much all
widths are stretched (`stretch`), come from data it was not trained on (`identification.assess`). The member axis is the
first of every array and is mapped over; everything is a pure function of the `Ensemble`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from awavo.networks import MLP, RunningStatistics, mlp, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.types import ActionSpace, Discrete, EnvSpec

__all__ = ["Ensemble", "EnsembleModel", "ModelBatch", "Prediction", "bootstrap_weights", "encode_action", "ensemble"]

LOG_VARIANCE_RANGE = (-10.0, 1.0)
PRIOR_HIDDEN = (16,)


class Ensemble(NamedTuple):
    """K networks with their fixed priors and optimizer, the scales of observations and of their changes, and trust."""

    nets: MLP
    priors: MLP | tuple[()]
    optimizer: Any
    obs_stats: RunningStatistics
    change_stats: RunningStatistics
    evidence: Float[Array, " K"]
    stretch: Float[Array, " d"]

    def log_weights(self) -> Float[Array, " K"]:
        """Log-probabilities of the members."""
        return jax.nn.log_softmax(self.evidence)


class ModelBatch(NamedTuple):
    """Rows for every member: its own draw of transitions, and their bootstrap weights."""

    obs: Float[Array, "K B d"]
    action: Array
    reward: Float[Array, "K B"]
    costs: Float[Array, "K B C"]
    next_obs: Float[Array, "K B d"]
    terminated: Bool[Array, "K B"]
    weight: Float[Array, "K B"]


class Prediction(NamedTuple):
    """What each member says: a Gaussian over the next observation, and means of the rest."""

    next_obs: Float[Array, "K ... d"]
    std: Float[Array, "K ... d"]
    reward: Float[Array, "K ..."]
    costs: Float[Array, "K ... C"]
    terminated: Float[Array, "K ..."]


class EnsembleModel(NamedTuple):
    """`init(key)`, `observe(ensemble, obs, next_obs)`, `train_step(ensemble, batch)`, `predict(ensemble, obs, action)`.

    `observe` updates the scales from new transitions, `train_step` returns the ensemble and every member's loss, and
    `predict` takes observations with a member axis `[K, ..., d]` (each member continues its own future) and actions
    without one.
    """

    init: Callable[[Array], Ensemble]
    observe: Callable[[Ensemble, Array, Array], Ensemble]
    train_step: Callable[[Ensemble, ModelBatch], tuple[Ensemble, Array]]
    predict: Callable[[Ensemble, Array, Array], Prediction]


def encode_action(space: ActionSpace, action: Array) -> Float[Array, "... a"]:
    """One-hot for discrete actions; continuous ones scaled to [-1, 1]."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(action, space.num)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (2 * action - high - low) / (high - low)


def bootstrap_weights(rows: Int[Array, "K B"]) -> Float[Array, "K B"]:
    """Weights 0 or 2 of the stored rows: a fixed function of the member and the row's number."""
    members = jnp.arange(rows.shape[0], dtype=jnp.uint32)[:, None]
    bits = rows.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + members * jnp.uint32(0x85EBCA77)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return 2.0 * ((bits >> 31) == 0)


def ensemble(
    spec: EnvSpec,
    num_members: int,
    hidden: Sequence[int],
    learning_rate: float,
    weight_decay: float,
    prior_scale: float = 0.0,
    activation: str = "silu",
) -> EnsembleModel:
    """Build the functions of an ensemble for a task."""
    dim, num_costs = spec.obs_dim, spec.num_costs
    action_dim = spec.action_space.num if isinstance(spec.action_space, Discrete) else spec.action_space.dim
    num_outputs = 2 * dim + 1 + num_costs + 1
    sizes = (dim + action_dim, *hidden, num_outputs)
    optimizer = optax.adamw(learning_rate, weight_decay=weight_decay)

    def init(key: Array) -> Ensemble:
        net_key, prior_key = jax.random.split(key)
        draw = jax.vmap(lambda k: mlp(k, sizes, activation=activation, output_scale=0.1))
        nets: Any = draw(jax.random.split(net_key, num_members))
        priors: Any = ()
        if prior_scale > 0:
            small = (sizes[0], *PRIOR_HIDDEN, num_outputs)
            draw = jax.vmap(lambda k: mlp(k, small, activation="tanh", output_scale=1.0))
            priors = draw(jax.random.split(prior_key, num_members))
        return Ensemble(
            nets,
            priors,
            optimizer.init(nets),
            running_statistics(dim),
            running_statistics(dim),
            jnp.zeros(num_members),
            jnp.ones(dim),
        )

    def observe(model: Ensemble, obs: Float[Array, "... d"], next_obs: Float[Array, "... d"]) -> Ensemble:
        return model._replace(
            obs_stats=update_statistics(model.obs_stats, obs),
            change_stats=update_statistics(model.change_stats, next_obs - obs),
        )

    def outputs(net: MLP, prior: Any, model: Ensemble, obs: Array, action: Array) -> tuple[Array, ...]:
        """Mean and log-variance of the standardised change; reward; costs; logit of termination."""
        features = jnp.concatenate([normalize(model.obs_stats, obs), encode_action(spec.action_space, action)], -1)
        out = net(features)
        if prior:
            out = out + prior_scale * jax.lax.stop_gradient(prior(features))
        mean, raw, rest = jnp.split(out, (dim, 2 * dim), -1)
        low, high = LOG_VARIANCE_RANGE
        log_variance = low + jax.nn.softplus(high - jax.nn.softplus(high - raw) - low)
        return mean, log_variance, rest[..., 0], rest[..., 1 : 1 + num_costs], rest[..., -1]

    def member_loss(net: MLP, prior: Any, model: Ensemble, batch: ModelBatch) -> Float[Array, ""]:
        mean, log_variance, reward, costs, logit = outputs(net, prior, model, batch.obs, batch.action)
        change = standardize(model, batch.next_obs - batch.obs)
        surprise = 0.5 * jnp.sum((change - mean) ** 2 * jnp.exp(-log_variance) + log_variance, -1)
        misfit = (reward - batch.reward) ** 2 + jnp.sum((costs - batch.costs) ** 2, -1)
        ending = optax.sigmoid_binary_cross_entropy(logit, batch.terminated.astype(jnp.float32))
        return jnp.mean(batch.weight * (surprise + misfit + ending))

    def train_step(model: Ensemble, batch: ModelBatch) -> tuple[Ensemble, Float[Array, " K"]]:
        grad = jax.vmap(jax.value_and_grad(member_loss), (0, 0, None, 0))
        losses, grads = grad(model.nets, model.priors, model, batch)
        nets: Any = model.nets
        step, opt = optimizer.update(grads, model.optimizer, nets)
        return model._replace(nets=optax.apply_updates(nets, step), optimizer=opt), losses

    def predict(model: Ensemble, obs: Float[Array, "K ... d"], action: Array) -> Prediction:
        members = jax.vmap(outputs, (0, 0, None, 0, None))
        mean, log_variance, reward, costs, logit = members(model.nets, model.priors, model, obs, action)
        shift, scale = change_scale(model)
        std = scale * model.stretch * jnp.exp(0.5 * log_variance)
        return Prediction(obs + shift + scale * mean, std, reward, costs, jax.nn.sigmoid(logit))

    return EnsembleModel(init, observe, train_step, predict)


def change_scale(model: Ensemble) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and deviation of the observations' changes, 1 where they never vary."""
    count, mean, deviation = model.change_stats
    variance = deviation / jnp.maximum(count, 1.0)
    return mean, jnp.where(variance > 1e-12, jnp.sqrt(jnp.maximum(variance, 1e-12)), 1.0)


def standardize(model: Ensemble, change: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Scale changes to mean 0 and deviation 1."""
    shift, scale = change_scale(model)
    return (change - shift) / scale
