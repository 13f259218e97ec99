"""p_D(theta) while it is learnt: the ensemble trained on stored transitions, tested first, and imagined with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms import replay as ring
from awavo.algorithms.actor_critic import Imagine
from awavo.config import setting
from awavo.inference.ensemble import Ensemble, EnsembleModel, ModelBatch, Prediction, bootstrap_weights, ensemble
from awavo.inference.identification import Assessment, assess
from awavo.inference.planner import Advance, Outcomes, ensemble_steps
from awavo.networks import Actor, RunningStatistics, normalize
from awavo.types import EnvSpec, Rollout

__all__ = [
    "ModelConfig", "ModelInfo", "PlannedIn", "identify", "imagination", "learnt_dynamics", "learnt_model",
    "train_ensemble",
]  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the model p_D(theta)."""

    num_members: int = setting(5, "members of the ensemble p_D(theta)", low=1, high=1_000)
    imagined_batch: int = setting(
        128, "transitions of the model added to each batch of actor and critics; none without planning",
        low=0, high=1_000_000,
    )  # fmt: skip


class ModelInfo(NamedTuple):
    """Metrics of the model; 0 without planning."""

    model_loss: Array
    model_coverage: Array
    model_pit_error: Array
    member_weight: Array


class PlannedIn(NamedTuple):
    """What an algorithm plans in: p_D(theta) as M members, learnt networks or particles of known physics.

    `init(key) -> model`; `identify(key, model, rollout, replay) -> (model, ModelInfo)`; of a model, `steps` are those
    of a plan, `predict(model)(obs [M, ..., d], action) -> Prediction` and `log_weights(model) -> [M]`.
    """

    init: Callable[[Array], Any]
    identify: Callable[[Array, Any, Rollout, ring.ReplayBuffer], tuple[Any, ModelInfo]]
    steps: Callable[[Any], tuple[Advance, Outcomes]]
    predict: Callable[[Any], Callable[[Array, Array], Prediction]]
    log_weights: Callable[[Any], Array]


# Sizes of the members' hidden layers, their activation; Adam's step size and weight decay; scale of the random priors;
# transitions per gradient step and member.
HIDDEN, ACTIVATION, LEARNING_RATE, WEIGHT_DECAY, PRIOR_SCALE, BATCH = (32, 32), "relu", 1e-3, 3e-5, 0.1, 128


def learnt_dynamics(spec: EnvSpec, config: ModelConfig) -> EnsembleModel:
    """The ensemble of a task."""
    return ensemble(
        spec, config.num_members, HIDDEN, LEARNING_RATE, WEIGHT_DECAY, PRIOR_SCALE, ACTIVATION,
    )  # fmt: skip


def train_ensemble(
    key: Array,
    dynamics: EnsembleModel,
    model: Ensemble,
    replay: ring.ReplayBuffer,
    *,
    num_updates: int,
    batch_size: int,
    bootstrap: bool = True,
) -> tuple[Ensemble, Float[Array, "updates K"]]:
    """Train every member on its own draws of stored transitions; return the ensemble and all losses."""
    num_members = model.evidence.shape[0]
    stored = jnp.minimum(replay.added, replay.data.obs.shape[0])

    def update(model: Ensemble, key: Array) -> tuple[Ensemble, Array]:
        rows = jax.random.randint(key, (num_members, batch_size), 0, stored)
        data = jax.tree.map(lambda x: x[rows], replay.data)
        reward, costs = data.signals[..., 0], data.signals[..., 1:]
        weight = bootstrap_weights(rows) if bootstrap else jnp.ones(rows.shape)
        batch = ModelBatch(data.obs, data.action, reward, costs, data.next_obs, data.terminated, weight)
        return dynamics.train_step(model, batch)

    return jax.lax.scan(update, model, jax.random.split(key, num_updates))


def identify(
    key: Array,
    dynamics: EnsembleModel,
    model: Ensemble,
    rollout: Rollout,
    replay: ring.ReplayBuffer,
    num_updates: int,
) -> tuple[Ensemble, Assessment, Float[Array, "updates K"]]:
    """Test the members on transitions they have not seen, then train them on all stored ones."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rollout.obs, rollout.action, rollout.next_obs))
    model, assessment = assess(dynamics, model, *flat)
    model = dynamics.observe(model, rollout.obs, rollout.reward, rollout.costs, rollout.next_obs)
    # A single member has nobody to differ from: it gets every row.
    model, losses = train_ensemble(
        key, dynamics, model, replay,
        num_updates=num_updates, batch_size=BATCH, bootstrap=model.evidence.shape[0] > 1,
    )  # fmt: skip
    return model, assessment, losses


def learnt_model(spec: EnvSpec, config: ModelConfig, num_updates: int) -> PlannedIn:
    """The ensemble of a task as what is planned in, trained `num_updates` steps after every rollout."""
    dynamics = learnt_dynamics(spec, config)

    def identified(
        key: Array, model: Ensemble, rollout: Rollout, replay: ring.ReplayBuffer
    ) -> tuple[Ensemble, ModelInfo]:
        model, assessed, losses = identify(key, dynamics, model, rollout, replay, num_updates)
        most = jnp.exp(model.log_weights()).max()
        return model, ModelInfo(losses[-1].mean(), assessed.coverage, assessed.pit_error, most)

    def predict(model: Ensemble) -> Callable[[Array, Array], Prediction]:
        folded = dynamics.fold(model)
        return lambda obs, action: dynamics.predict(folded, obs, action)

    return PlannedIn(
        dynamics.init,
        identified,
        lambda model: ensemble_steps(dynamics, model),
        predict,
        lambda model: model.log_weights(),
    )


def imagination(
    predict: Callable[[Array, Array], Prediction],
    log_weights: Float[Array, " M"],
    obs_stats: RunningStatistics,
    draw: Callable[[Array, int], Array],
    discount: float,
    config: ModelConfig,
) -> Imagine | None:
    """What the model says follows in stored states: random actions (`draw`) and the policy's, one member for each row.

    None where nothing is to be imagined.
    """
    num = config.imagined_batch
    if num == 0:
        return None

    def imagine(key: Array, batch: ring.Transitions, policy: Actor) -> ring.Transitions:
        row_key, member_key, act_key, mix_key, next_key, end_key = jax.random.split(key, 6)
        obs = batch.obs[jax.random.randint(row_key, (num,), 0, batch.obs.shape[0])]
        drawn, own = draw(mix_key, num), policy(normalize(obs_stats, obs)).sample(act_key)
        # Every other row a random action: the critics must know more than what the policy does.
        half = (jnp.arange(num) % 2 == 0).reshape(-1, *[1] * (own.ndim - 1))
        action = jnp.where(half, drawn, own)
        every = predict(jnp.broadcast_to(obs, (log_weights.shape[0], *obs.shape)), action)
        member = jax.random.categorical(member_key, log_weights, shape=(num,))
        guess = jax.tree.map(lambda x: x[member, jnp.arange(num)], every)
        rows = ring.Transitions(
            obs,
            action,
            jnp.concatenate([guess.reward[:, None], guess.costs], -1),
            guess.next_obs + guess.std * jax.random.normal(next_key, obs.shape),
            jax.random.bernoulli(end_key, guess.terminated),
        )
        return rows if batch.ahead is None else ring.one_step(rows, discount)

    return imagine
