r"""p_D(theta) where physics is known: particles of the task's own parameters, identified from the replay by WVI.

.. code-block:: text

    start    particles of the last time, a quarter of them drawn from the prior again
    D        rows of the replay, drawn at random
    theta    <- WVI to p(theta | D), the noise integrated out          (`inference.physics.identify_in_box`)
    members  M of the particles, evenly spaced along their widest direction

A plan is followed in the members by the task's own step; nothing is learnt but theta. A quarter from the prior, so that
a mode that was lost can be found again; members are particles, so that two modes stay two.
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
from awavo.inference.physics import ParametricModel, identify_in_box, predict_parametric, spread_members
from awavo.inference.planner import predicted_steps
from awavo.types import EnvSpec, Physics, Rollout

__all__ = ["PhysicsModel", "known_physics"]

# Particles of theta, those of them that start from the prior each time, rows that an identification looks at, rounds.
PARTICLES, RENEWED, ROWS, ROUNDS = 32, 8, 256, 8


class PhysicsModel(NamedTuple):
    """Particles of theta as shares of their ranges, and the noise of the next observation."""

    particles: Float[Array, "P p"]
    noise: Float[Array, " d"]


def known_physics(spec: EnvSpec, physics: Physics, config: ModelConfig) -> PlannedIn:
    """A task's own physics as what is planned in."""
    low, high = (jnp.asarray(ends, jnp.float32) for ends in (physics.low, physics.high))
    num = min(config.num_members, PARTICLES)

    def step(share: Array, obs: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        return physics.step(low + share * (high - low), obs, action)

    def init(key: Array) -> PhysicsModel:
        return PhysicsModel(jax.random.uniform(key, (PARTICLES, len(physics.names))), jnp.ones(spec.obs_dim))

    def predict(model: PhysicsModel) -> Callable[[Array, Array], Prediction]:
        members = ParametricModel(spread_members(model.particles, num), model.noise)
        return lambda obs, action: predict_parametric(step, members, obs, action)

    def identify(
        key: Array, model: PhysicsModel, rollout: Rollout, replay: ring.ReplayBuffer
    ) -> tuple[PhysicsModel, ModelInfo]:
        prior_key, place_key, row_key, infer_key = jax.random.split(key, 4)
        loss, coverage, pit_error = assess(model, rollout)
        stored = jnp.minimum(replay.added, replay.data.obs.shape[0])
        rows = jax.tree.map(lambda x: x[jax.random.randint(row_key, (ROWS,), 0, stored)], replay.data)
        start = jax.random.permutation(place_key, model.particles)
        start = start.at[:RENEWED].set(jax.random.uniform(prior_key, (RENEWED, start.shape[1])))
        outcome = jnp.concatenate([rows.next_obs - rows.obs, rows.signals], 1)
        count = jnp.minimum(stored, ROWS).astype(jnp.float32)
        particles, noise = identify_in_box(
            infer_key, step, start, rows.obs, rows.action, outcome, count, num_rounds=ROUNDS
        )
        info = ModelInfo(loss, coverage, pit_error, jnp.full((), 1.0 / num))
        return PhysicsModel(particles, noise[: spec.obs_dim]), info

    def assess(model: PhysicsModel, rollout: Rollout) -> tuple[Array, Array, Array]:
        """How well new transitions are predicted before they are learnt from: error in units of the noise, coverage."""
        obs, action, next_obs = (
            x.reshape(-1, *x.shape[2:]) for x in (rollout.obs, rollout.action, rollout.next_obs)
        )
        said = predict(model)(jnp.broadcast_to(obs, (num, *obs.shape)), action)
        pit = pit_values(said, log_weights(model), next_obs)
        tail = (1 - LEVEL) / 2
        covered = jnp.mean(((pit >= tail) & (pit <= 1 - tail)).astype(jnp.float32))
        return jnp.mean(((next_obs - said.next_obs) / said.std) ** 2), covered, pit_distance(pit)

    def log_weights(model: PhysicsModel) -> Float[Array, " M"]:
        return jnp.full(num, -jnp.log(num))

    return PlannedIn(init, identify, lambda model: predicted_steps(predict(model)), predict, log_weights)
