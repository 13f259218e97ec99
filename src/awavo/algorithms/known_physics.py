r"""p_D(theta) where physics is known: particles of the task's own parameters, identified from the replay by WVI.

.. code-block:: text

    start    groups of particles as they were; now and then a group without mass is drawn from the prior again
    D        rows of the replay, drawn at random
    theta    <- WVI to p(theta | D) in each group, the noise integrated out    (`inference.physics.identify_parameters`)
    members  M of the particles, evenly spaced by mass along their widest direction

A plan is followed in the members by the task's own step; nothing is learnt but theta. Groups keep modes apart, and
members are particles: two modes stay two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms import replay as ring
from awavo.algorithms.model_learning import ModelConfig, ModelInfo, PlannedIn
from awavo.inference.ensemble import Prediction
from awavo.inference.identification import LEVEL, pit_distance, pit_values
from awavo.inference.physics import ParametricModel, identify_parameters, predict_parametric, spread_members
from awavo.inference.planner import predicted_steps
from awavo.types import EnvSpec, Physics, Rollout

__all__ = ["PhysicsModel", "known_physics"]

# Groups of particles of theta, particles of each, rows that an identification looks at, its rounds.
GROUPS, PARTICLES, ROWS, ROUNDS = 8, 16, 128, 8
# Log of the share below which a group has no mass, and how often the worst such group starts again: one identification
# from the prior does not find a narrow mode to the end.
NO_MASS, AGAIN = -7.0, 0.25


class PhysicsModel(NamedTuple):
    """Particles of theta as shares of their ranges, the log-share of each group, the noise of the next observation."""

    particles: Float[Array, "G P p"]
    log_shares: Float[Array, " G"]
    noise: Float[Array, " d"]


def known_physics(spec: EnvSpec, physics: Physics, config: ModelConfig) -> PlannedIn:
    """A task's own physics as what is planned in."""
    low, high = (jnp.asarray(ends, jnp.float32) for ends in (physics.low, physics.high))
    num, dim = config.num_members, len(physics.names)

    def step(share: Array, obs: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        return physics.step(low + share * (high - low), obs, action)

    def init(key: Array) -> PhysicsModel:
        particles = jax.random.uniform(key, (GROUPS, PARTICLES, dim))
        return PhysicsModel(particles, jnp.full(GROUPS, -jnp.log(GROUPS)), jnp.ones(spec.obs_dim))

    def predict(model: PhysicsModel) -> Callable[[Array, Array], Prediction]:
        weights = jnp.repeat(jnp.exp(model.log_shares) / PARTICLES, PARTICLES)
        members = spread_members(model.particles.reshape(-1, dim), weights, num)
        return lambda obs, action: predict_parametric(step, ParametricModel(members, model.noise), obs, action)

    def identify(
        key: Array, model: PhysicsModel, rollout: Rollout, replay: ring.ReplayBuffer
    ) -> tuple[PhysicsModel, ModelInfo]:
        again_key, prior_key, row_key, infer_key = jax.random.split(key, 4)
        loss, coverage, pit_error = assess(model, rollout)
        stored = jnp.minimum(replay.added, replay.data.obs.shape[0])
        rows = jax.tree.map(lambda x: x[jax.random.randint(row_key, (ROWS,), 0, stored)], replay.data)
        worst = jnp.argmin(model.log_shares)
        lost = (model.log_shares[worst] < NO_MASS) & jax.random.bernoulli(again_key, AGAIN)
        fresh = jax.random.uniform(prior_key, (PARTICLES, dim))
        start = model.particles.at[worst].set(jnp.where(lost, fresh, model.particles[worst]))
        outcome = jnp.concatenate([rows.next_obs - rows.obs, rows.signals], 1)
        particles, log_shares, noise = identify_parameters(
            infer_key, step, start, rows.obs, rows.action, outcome, jnp.minimum(stored, ROWS).astype(jnp.float32),
            num_rounds=ROUNDS,
        )  # fmt: skip
        info = ModelInfo(loss, coverage, pit_error, jnp.exp(log_shares).max())
        return PhysicsModel(particles, log_shares, noise[: spec.obs_dim]), info

    def assess(model: PhysicsModel, rollout: Rollout) -> tuple[Array, Array, Array]:
        """How well new transitions are predicted before they are learnt from: error in units of the noise, coverage."""
        obs, action, next_obs = (x.reshape(-1, *x.shape[2:]) for x in (rollout.obs, rollout.action, rollout.next_obs))
        said = predict(model)(jnp.broadcast_to(obs, (num, *obs.shape)), action)
        pit = pit_values(said, log_weights(model), next_obs)
        tail = (1 - LEVEL) / 2
        covered = jnp.mean(((pit >= tail) & (pit <= 1 - tail)).astype(jnp.float32))
        return jnp.mean(((next_obs - said.next_obs) / said.std) ** 2), covered, pit_distance(pit)

    def log_weights(model: PhysicsModel) -> Float[Array, " M"]:
        return jnp.full(num, -jnp.log(num))

    return PlannedIn(init, identify, lambda model: predicted_steps(predict(model)), predict, log_weights)
