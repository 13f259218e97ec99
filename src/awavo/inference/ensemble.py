r"""A probabilistic ensemble: p(s', h, end | s, a, theta_k), k = 1..K, the members a sample of p(theta | D).

.. code-block:: text

    s' - s ~ N(m_k(s, a), diag v_k(s, a)),   h = (reward, costs) = f_k(s, a, s'),   P(end) = sigmoid(e_k(s, a, s'))
    loss_k = mean over rows of w_k { NLL(s' - s) + |h - f_k|^2 + BCE(end) }     s' - s and h in standard deviations

Two networks: one moves the state, one says what the move meant. In one network the likelihood of the state, whose
gradient grows as its variance shrinks, drowns the rest (measured on CartPole, 8,000 transitions: error of an indicator
cost 0.38 where its standard deviation is 0.47).

Each member has its own double-or-nothing bootstrap weights w in {0, 2} of every stored row (Owen and Eckles, 2012), and
a fixed random network added to its output (randomised priors, Osband et al. 2018), so the spread of the members
reflects the data and not only their initial weights. How much each member is believed (`evidence`), and by how much all
widths are stretched (`stretch`), come from data it was not trained on (`identification.assess`). The member axis is the
first of every array and is mapped over; everything is a pure function of the `Ensemble`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Bool, Float, Int

from awavo.networks import MLP, RunningStatistics, mlp, normalize
from awavo.networks.normalizer import running_statistics, update_statistics
from awavo.networks.optimize import descend, optimizer_state
from awavo.types import ActionSpace, Discrete, EnvSpec

__all__ = ["Ensemble", "EnsembleModel", "ModelBatch", "Prediction", "bootstrap_weights", "encode_action", "ensemble"]

LOG_VARIANCE_RANGE = (-10.0, 1.0)
PRIOR_HIDDEN = (8,)
# In standard deviations: contacts are rare and large, and one squared outlier would drown a batch.
MAX_CHANGE = 10.0


class Pair(NamedTuple):
    """The network of the state's change, and that of reward, costs and end."""

    dynamics: MLP
    signals: MLP


# Without random priors: nothing.
Priors = Pair | tuple[()]


class Ensemble(NamedTuple):
    """K networks with fixed priors and optimizer, the scales of inputs and outputs, and how far each is believed."""

    nets: Pair
    priors: Priors
    optimizer: optax.OptState
    obs_stats: RunningStatistics
    change_stats: RunningStatistics
    signal_stats: RunningStatistics
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
    """An ensemble's functions; `predict(ensemble, obs, action)` is what it is for.

    `observe` updates the scales from new transitions, `train_step` returns the ensemble and every member's loss, and
    `predict` takes observations with a member axis `[K, ..., d]` (each member continues its own future) and actions
    without one. `advance` and `outcomes` are its two halves: `(next_obs, std)`, and `(reward, costs, terminated)` of
    given transitions, which can wait until all of them are known. `fold` puts the priors into the networks: the same
    predictions for less work, not to be trained.
    """

    init: Callable[[Array], Ensemble]
    observe: Callable[[Ensemble, Array, Array, Array, Array], Ensemble]
    train_step: Callable[[Ensemble, ModelBatch], tuple[Ensemble, Array]]
    predict: Callable[[Ensemble, Array, Array], Prediction]
    advance: Callable[[Ensemble, Array, Array], tuple[Array, Array]]
    outcomes: Callable[[Ensemble, Array, Array, Array], tuple[Array, Array, Array]]
    fold: Callable[[Ensemble], Ensemble]


def encode_action(space: ActionSpace, action: Array) -> Float[Array, "... a"]:
    """One-hot for discrete actions; continuous ones scaled to [-1, 1]."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(action, space.num)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (2 * action - high - low) / (high - low)


def bootstrap_weights(rows: Int[Array, "K B"]) -> Float[Array, "K B"]:
    """Weights 0 or 2 of the stored rows: a fixed function of the member and the row's number."""
    # A hash instead of stored weights: no array of K times the capacity.
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
    inputs = dim + action_dim
    shapes = ((inputs, 2 * dim), (inputs + dim, 2 + num_costs))
    optimizer = optax.adamw(learning_rate, weight_decay=weight_decay)
    # Of costs not met yet: what may be spent of each in a step.
    units = jnp.asarray([1.0, *(limit / spec.horizon if limit > 0 else 1.0 for limit in spec.cost_limits)])

    def draw(key: Array, hidden: Sequence[int], activation: str, output_scale: float) -> Pair:
        def one(key: Array, shape: tuple[int, int]) -> MLP:
            build = jax.vmap(
                lambda k: mlp(k, (shape[0], *hidden, shape[1]), activation=activation, output_scale=output_scale)
            )
            return build(jax.random.split(key, num_members))

        return Pair(*(one(k, shape) for k, shape in zip(jax.random.split(key), shapes, strict=True)))

    def init(key: Array) -> Ensemble:
        net_key, prior_key = jax.random.split(key)
        nets = draw(net_key, hidden, activation, 0.1)
        priors = draw(prior_key, PRIOR_HIDDEN, activation, 1.0) if prior_scale > 0 else ()
        opt, evidence, stretch = optimizer_state(optimizer, nets), jnp.zeros(num_members), jnp.ones(dim)
        obs_stats, change_stats, signal_stats = (running_statistics(size) for size in (dim, dim, 1 + num_costs))
        return Ensemble(nets, priors, opt, obs_stats, change_stats, signal_stats, evidence, stretch)

    def observe(model: Ensemble, obs: Array, reward: Array, costs: Array, next_obs: Array) -> Ensemble:
        return model._replace(
            obs_stats=update_statistics(model.obs_stats, obs),
            change_stats=update_statistics(model.change_stats, next_obs - obs),
            signal_stats=update_statistics(model.signal_stats, jnp.concatenate([reward[..., None], costs], -1)),
        )

    def encode(model: Ensemble, obs: Array, action: Array) -> Array:
        return jnp.concatenate([normalize(model.obs_stats, obs), encode_action(spec.action_space, action)], -1)

    def with_prior(net: MLP, prior: MLP | None, features: Array) -> Array:
        return net(features) + prior_scale * jax.lax.stop_gradient(prior(features)) if prior else net(features)

    def change(nets: Pair, priors: Priors, model: Ensemble, obs: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log-variance of the standardised change."""
        out = with_prior(nets.dynamics, priors.dynamics if priors else None, encode(model, obs, action))
        mean, raw = jnp.split(out, 2, -1)
        # A soft clip on both sides keeps a gradient at the ends.
        low, high = LOG_VARIANCE_RANGE
        return mean, low + jax.nn.softplus(high - jax.nn.softplus(high - raw) - low)

    def signals_and_end(
        nets: Pair, priors: Priors, model: Ensemble, obs: Array, action: Array, next_obs: Array
    ) -> Array:
        """Standardised reward and costs, and the logit of the end."""
        features = jnp.concatenate([encode(model, obs, action), normalize(model.obs_stats, next_obs)], -1)
        return with_prior(nets.signals, priors.signals if priors else None, features)

    def member_loss(nets: Pair, priors: Priors, model: Ensemble, batch: ModelBatch) -> Float[Array, ""]:
        # What moved and what it meant are learnt by different networks, in one loss.
        mean, log_variance = change(nets, priors, model, batch.obs, batch.action)
        moved = jnp.clip(standardize(model.change_stats, batch.next_obs - batch.obs), -MAX_CHANGE, MAX_CHANGE)
        surprise = 0.5 * jnp.sum((moved - mean) ** 2 * jnp.exp(-log_variance) + log_variance, -1)
        out = signals_and_end(nets, priors, model, batch.obs, batch.action, batch.next_obs)
        shift, scale = signal_spread(model.signal_stats, units)
        signals = (jnp.concatenate([batch.reward[..., None], batch.costs], -1) - shift) / scale
        misfit = jnp.sum((out[..., :-1] - signals) ** 2, -1)
        ending = optax.sigmoid_binary_cross_entropy(out[..., -1], batch.terminated.astype(jnp.float32))
        return jnp.mean(batch.weight * (surprise + misfit + ending))

    def train_step(model: Ensemble, batch: ModelBatch) -> tuple[Ensemble, Float[Array, " K"]]:
        grad = jax.vmap(jax.value_and_grad(member_loss), (0, 0, None, 0))
        losses, grads = grad(model.nets, model.priors, model, batch)
        nets, opt = descend(optimizer, grads, model.optimizer, model.nets)
        return model._replace(nets=nets, optimizer=opt), losses

    def advance(model: Ensemble, obs: Float[Array, "K ... d"], action: Array) -> tuple[Array, Array]:
        mean, log_variance = jax.vmap(change, (0, 0, None, 0, None))(model.nets, model.priors, model, obs, action)
        shift, scale = spread(model.change_stats)
        return obs + shift + scale * mean, scale * model.stretch * jnp.exp(0.5 * log_variance)

    def outcomes(model: Ensemble, obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array]:
        every = jax.vmap(signals_and_end, (0, 0, None, 0, None, 0))
        out = every(model.nets, model.priors, model, obs, action, next_obs)
        shift, scale = signal_spread(model.signal_stats, units)
        signals = shift + scale * out[..., :-1]
        return signals[..., 0], signals[..., 1:], jax.nn.sigmoid(out[..., -1])

    def predict(model: Ensemble, obs: Float[Array, "K ... d"], action: Array) -> Prediction:
        next_obs, std = advance(model, obs, action)
        return Prediction(next_obs, std, *outcomes(model, obs, action, next_obs))

    def fold(model: Ensemble) -> Ensemble:
        # Units of the prior pass through later layers by the identity, which a ReLU leaves alone.
        if not model.priors or activation != "relu":
            return model
        join = jax.vmap(lambda net, prior: _beside(net, prior, prior_scale))
        return model._replace(nets=Pair(*map(join, model.nets, model.priors)), priors=())

    return EnsembleModel(init, observe, train_step, predict, advance, outcomes, fold)


def _beside(net: MLP, prior: MLP, scale: float) -> MLP:
    """One network for net + scale prior; the prior has one hidden layer."""
    (first, last), (first_bias, last_bias) = prior.weights, prior.biases
    through = [block_diag(weight, jnp.eye(first.shape[1])) for weight in net.weights[1:-1]]
    weights = (jnp.hstack([net.weights[0], first]), *through, jnp.vstack([net.weights[-1], scale * last]))
    padded = [jnp.append(bias, jnp.zeros_like(first_bias)) for bias in net.biases[1:-1]]
    biases = (jnp.append(net.biases[0], first_bias), *padded, net.biases[-1] + scale * last_bias)
    return MLP(weights, biases, net.activation)


def spread(stats: RunningStatistics) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and standard deviation, 1 where nothing ever varied."""
    count, mean, squares = stats.total, stats.mean, stats.deviation
    variance = squares / jnp.maximum(count, 1.0)
    return mean, jnp.where(variance > 1e-12, jnp.sqrt(jnp.maximum(variance, 1e-12)), 1.0)


def signal_spread(stats: RunningStatistics, units: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and standard deviation of rewards and costs, whatever they are measured in.

    Where nothing ever varied, the size of the mean: a reward that is the same at every step has no spread, but an error
    of 0.05 is small beside 1 and not beside 0.001. `units` where nothing but 0 was seen.
    """
    count, mean, squares = stats.total, stats.mean, stats.deviation
    variance = squares / jnp.maximum(count, 1.0)
    size = jnp.where(mean != 0, jnp.abs(mean), units)
    varied = variance > 1e-12 * size**2
    return mean, jnp.where(varied, jnp.sqrt(jnp.where(varied, variance, 1.0)), size)


def standardize(stats: RunningStatistics, values: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Scale to mean 0 and standard deviation 1."""
    shift, scale = spread(stats)
    return (values - shift) / scale
