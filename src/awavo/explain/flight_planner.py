r"""A flight planner that can say why: one pool of candidates, scored under every coalition with the same draws.

.. code-block:: text

    1  M draws of theta = (force, mass, drag) from p_D(theta), in mirrored pairs
    2  K decisions: the posterior's, shifted, with noise; bumps from the prior; braces around the believed force and 0
    3  the model sums reward and costs of each decision under each draw: once with the believed force, once with the
       same draws around 0 (wind removed); obstacles removed is the same rollout without its clearance cost
    4  l_S(z) = log mean_m exp((R_m - w_1 G_1m - w_2 G_2m) / lambda),   pi_S = softmax l_S
    5  act: the tracking law under the mean decision of pi
    6  particles for the next pool: decisions drawn by weight, systematically (WVI with KL: q is the target itself)

The pool holds decisions for both worlds, with and without the force, so that all posteriors live on the same support.
Deciding and explaining use the same posterior: nothing stands between what is explained and what is flown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.control.belief import Belief, draw_members
from awavo.control.detours import fresh_detours
from awavo.explain.flight_model import FlightModel, ModelConfig, flight_model
from awavo.explain.measures import coalition_weights
from awavo.inference.sequences import resample
from awavo.inference.wvi import effective_sample_size
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn

__all__ = [
    "FACTORS", "Choice", "ExplainedConfig", "ExplainedPlanner", "Scores", "explained_planner", "likelihoods",
    "start_particles",
]  # fmt: skip

FACTORS = ("wind", "obstacles")
WIND, OBSTACLES = 1, 2


class ExplainedConfig(NamedTuple):
    """Sizes and temperature of the planner, and its model."""

    num_candidates: int = 512
    num_members: int = 2
    period: float = 0.02
    num_particles: int = 32
    memory_share: float = 0.6
    memory_noise: float = 0.05
    prior_std: float = 0.25
    brace_std: float = 0.8
    temperature: float = 0.05
    model: ModelConfig = ModelConfig()


class Scores(NamedTuple):
    """Signals (reward, clearance, tilt) of the pool, without wind and with it: [2, 3, M, K]."""

    candidates: Float[Array, "K D"]
    signals: Float[Array, "2 3 M K"]


class Choice(NamedTuple):
    """A decision and what is needed to explain it."""

    action: Float[Array, " 4"]
    particles: Float[Array, "P D"]
    candidates: Float[Array, "K D"]
    log_likelihood: Float[Array, "S K"]
    weights: Float[Array, "S K"]
    commands: Float[Array, "4 K"]
    effective_size: Float[Array, ""]


class ExplainedPlanner(NamedTuple):
    """`decide` acts and explains, `plan` acts alone, `score` is the pool under any belief; `model` for the rest.

    `pool` draws the candidates and the parameters, with the believed force and around no force.
    """

    decide: Callable[..., Choice]
    plan: Callable[..., tuple[Float[Array, " 4"], Float[Array, "P D"]]]
    score: Callable[..., Scores]
    pool: Callable[..., tuple[Float[Array, "K D"], Float[Array, "5 M"], Float[Array, "5 M"]]]
    model: FlightModel


def start_particles(config: ExplainedConfig) -> Float[Array, "P D"]:
    """No detour and no brace, in every particle."""
    return jnp.zeros((config.num_particles, 3 * config.model.num_knots + 3))


def likelihoods(signals: Float[Array, "2 3 M K"], config: ExplainedConfig) -> Float[Array, "4 K"]:
    """Return log-likelihoods of the coalitions nothing, wind, obstacles, both (by mask)."""
    model = config.model

    def one(parts, with_obstacles):
        value = parts[0] - with_obstacles * model.clearance_weight * parts[1] - model.tilt_weight * parts[2]
        return jax.nn.logsumexp(value / config.temperature, 0) - jnp.log(value.shape[0])

    return jnp.stack([one(signals[mask & WIND], float(mask & OBSTACLES > 0)) for mask in range(4)])


def explained_planner(
    params: QuadrotorParams, reference: RefFn, config: ExplainedConfig | None = None
) -> ExplainedPlanner:
    """Build the planner of a vehicle; `params` are its nominal ones."""
    config = ExplainedConfig() if config is None else config
    model = flight_model(params, reference, config.period, config.model)
    num, knots = config.num_candidates, config.model.num_knots
    memory = round(config.memory_share * num)
    # Particles and bumps mixed, so that the two halves of the pool are alike.
    order = np.random.default_rng(0).permutation(num)

    def propose(key, particles, force):
        """Particles with noise, and bumps in random directions around the mean detour or none; braces apart."""
        noise_key, bump_key, mean_key, brace_key, side_key = jax.random.split(key, 5)
        detours = particles[:, : 3 * knots]
        rows = detours[jnp.arange(memory) % config.num_particles]
        near = rows + config.memory_noise * jax.random.normal(noise_key, rows.shape)
        fresh = fresh_detours((bump_key, mean_key), detours.mean(0), num - memory, config.prior_std)
        braces = config.brace_std * jax.random.normal(brace_key, (num, 3))
        braces = braces + force * jax.random.bernoulli(side_key, 0.5, (num, 1))
        return jnp.concatenate([jnp.concatenate([near, fresh])[order], braces], 1)

    def pool(key, belief: Belief, particles, proposed: Belief | None = None):
        """Candidates for what the planner believed then, draws of theta with the believed force and around no force."""
        member_key, propose_key = jax.random.split(key)
        theta = draw_members(member_key, belief, config.num_members)
        believed = belief if proposed is None else proposed
        candidates = propose(propose_key, model.shift(particles), believed.mean[:3])
        return candidates, theta, theta.at[:3].add(-belief.mean[:3, None])

    def score(key, body: Body, time, belief: Belief, particles, forest, proposed: Belief | None = None):
        """Score the pool drawn for `proposed` (what the planner believed then) under `belief`."""
        candidates, theta, still = pool(key, belief, particles, proposed)
        near = model.near_path(forest, time)
        signals = [model.imagine(body, time, t, candidates, near) for t in (still, theta)]
        return Scores(candidates, jnp.stack(signals))

    def decide(key, body: Body, time, belief: Belief, particles, forest: Forest, seen=3):
        """Decide on what the coalition `seen` shows (3: everything), and keep every coalition's posterior."""
        score_key, draw_key = jax.random.split(key)
        candidates, signals = score(score_key, body, time, belief, particles, forest)
        log_likelihood = likelihoods(signals, config)
        weights = coalition_weights(log_likelihood, 1.0)
        used = weights[seen]
        drawn = candidates[resample(draw_key, used, config.num_particles)]
        commands = model.command(body, time, jnp.concatenate([(used @ candidates)[None], candidates]))
        return Choice(
            commands[:, 0], drawn, candidates, log_likelihood, weights, commands[:, 1:], effective_sample_size(used)
        )

    def plan(key, body: Body, time, belief: Belief, particles, forest: Forest):
        """Decide alone: the same action as `decide`, without the rollout of the other coalitions."""
        score_key, draw_key = jax.random.split(key)
        candidates, theta, _ = pool(score_key, belief, particles)
        signals = model.imagine(body, time, theta, candidates, model.near_path(forest, time))
        weights = coalition_weights(likelihoods(jnp.stack([signals, signals]), config)[3], 1.0)
        drawn = candidates[resample(draw_key, weights, config.num_particles)]
        return model.command(body, time, (weights @ candidates)[None])[:, 0], drawn

    return ExplainedPlanner(decide, plan, score, pool, model)
