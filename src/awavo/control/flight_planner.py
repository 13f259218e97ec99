r"""AWaVO as a flight controller that can say why: inference over detours and braces, on the analytic model.

.. code-block:: text

    1  M draws of theta = (force, mass, drag) from p_D(theta), the flight's own posterior, in mirrored pairs
    2  K decisions: the posterior's, shifted, with noise; bumps from the prior; braces around the believed force and 0
    3  the model sums reward and costs of each decision under each draw: once with the believed force, once with the
       same draws around 0 (wind removed); obstacles removed is the same rollout without its clearance cost
    4  l_S(z) = log mean_m exp((R_m - w_1 G_1m - w_2 G_2m) / lambda),   pi_S = softmax l_S
    5  act: the tracking law under the mean decision of pi
    6  q for the next pool, as `move` says: decisions drawn by weight, systematically (WVI with KL: q is the target
       itself), from there down A-GSWD along random slices, or the cells of the best slice ascended for this decision

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
from awavo.control.flight_model import FlightModel, flight_model
from awavo.control.planner_config import PlannerConfig, check_planner
from awavo.inference.cells import compress
from awavo.inference.wvi import effective_sample_size, move_particles, resample
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn
from awavo.transport.defining import Linear

__all__ = [
    "DEFAULT", "FACTORS", "DecisionInputs", "FlightDecision", "FlightPlan", "FlightPlanner", "Scores", "flight_planner",
    "likelihoods", "move_posterior", "start_particles",
]  # fmt: skip

FACTORS = ("wind", "obstacles")
# Coalitions of factors are bit masks.
WIND, OBSTACLES = 1, 2
DEFAULT = PlannerConfig()


class DecisionInputs(NamedTuple):
    """Everything a decision depends on, as arrays: what a record must hold to make it again."""

    key: Array
    body: Body
    time: Float[Array, ""]
    belief: Belief
    particles: Float[Array, "P D"]
    forest: Forest


class Scores(NamedTuple):
    """Signals (reward, clearance, tilt) of the pool, without wind and with it: [2, 3, M, K]."""

    candidates: Float[Array, "K D"]
    signals: Float[Array, "2 3 M K"]


class FlightPlan(NamedTuple):
    """The action now, the posterior q, and the model's commands along the mean decision, should the next be late."""

    action: Float[Array, " 4"]
    particles: Float[Array, "P D"]
    ahead: Float[Array, "H 4"]
    effective_size: Float[Array, ""]


class FlightDecision(NamedTuple):
    """A decision and what is needed to explain it: posteriors by coalition S, commands of every candidate."""

    action: Float[Array, " 4"]
    particles: Float[Array, "P D"]
    candidates: Float[Array, "K D"]
    log_likelihood: Float[Array, "S K"]
    weights: Float[Array, "S K"]
    commands: Float[Array, "4 K"]
    effective_size: Float[Array, ""]


class FlightPlanner(NamedTuple):
    """`decide` acts and explains, `plan` acts alone; both take the fields of `DecisionInputs`.

    `score` is the pool under any belief, `pool` draws the candidates and the parameters, with the believed force and
    around no force; `model` for the rest.
    """

    decide: Callable[..., FlightDecision]
    plan: Callable[..., FlightPlan]
    score: Callable[..., Scores]
    pool: Callable[..., tuple[Float[Array, "K D"], Float[Array, "5 M"], Float[Array, "5 M"]]]
    model: FlightModel


def start_particles(config: PlannerConfig) -> Float[Array, "P D"]:
    """No detour and no brace, in every particle."""
    return jnp.zeros((config.num_particles, 3 * config.num_knots + 3))


def likelihoods(signals: Float[Array, "2 3 M K"], config: PlannerConfig) -> Float[Array, "4 K"]:
    """Return log-likelihoods of the coalitions nothing, wind, obstacles, both (by mask)."""

    def one(parts, with_obstacles):
        value = parts[0] - with_obstacles * config.clearance_weight * parts[1] - config.tilt_weight * parts[2]
        return jax.nn.logsumexp(value / config.temperature, 0) - jnp.log(value.shape[0])

    return jnp.stack([one(signals[mask & WIND], float(mask & OBSTACLES > 0)) for mask in range(4)])


def move_posterior(
    key: Array, candidates: Float[Array, "K D"], weights: Float[Array, " K"], config: PlannerConfig
) -> Float[Array, "P D"]:
    """Return q after this decision, P particles for the weighted candidates, as `config.move` says."""
    slices = jax.random.normal(jax.random.fold_in(key, 1), (config.num_slices, candidates.shape[1]))
    if config.move == "cells":
        return compress(candidates, weights, slices, config.num_particles, defining=Linear())[0]
    drawn = candidates[resample(key, weights, config.num_particles)]
    if config.move == "resampling":
        return drawn
    return move_particles(drawn, candidates, weights, slices, defining=Linear(), num_steps=config.num_steps)[0]


def flight_planner(params: QuadrotorParams, reference: RefFn, config: PlannerConfig = DEFAULT) -> FlightPlanner:
    """Build the planner of a vehicle; `params` are its nominal ones."""
    check_planner(config)
    model = flight_model(params, reference, config)
    num, knots = config.num_candidates, config.num_knots
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

    def score(key, body: Body, time, belief: Belief, particles, forest: Forest, proposed: Belief | None = None):
        """Score the pool drawn for `proposed` (what the planner believed then) under `belief`."""
        candidates, theta, still = pool(key, belief, particles, proposed)
        near = model.near_path(forest, time)
        signals = [model.imagine(body, time, t, candidates, near).signals for t in (still, theta)]
        return Scores(candidates, jnp.stack(signals))

    def decide(key, body: Body, time, belief: Belief, particles, forest: Forest, seen: int | Array = 3):
        """Decide on what the coalition `seen` shows (3: everything), and keep every coalition's posterior."""
        score_key, move_key = jax.random.split(key)
        candidates, signals = score(score_key, body, time, belief, particles, forest)
        log_likelihood = likelihoods(signals, config)
        weights = jax.nn.softmax(log_likelihood, -1)
        used = weights[seen]
        moved = move_posterior(move_key, candidates, used, config)
        commands = model.command(body, time, jnp.concatenate([(used @ candidates)[None], candidates]))
        return FlightDecision(
            commands[:, 0], moved, candidates, log_likelihood, weights, commands[:, 1:], effective_sample_size(used)
        )

    def plan(key, body: Body, time, belief: Belief, particles, forest: Forest):
        """Decide alone: the same action as `decide`, without the rollout of the other coalitions."""
        score_key, move_key = jax.random.split(key)
        candidates, theta, _ = pool(score_key, belief, particles)
        near = model.near_path(forest, time)
        signals = model.imagine(body, time, theta, candidates, near).signals
        weights = jax.nn.softmax(likelihoods(jnp.stack([signals, signals]), config)[3])
        moved = move_posterior(move_key, candidates, weights, config)
        mean = (weights @ candidates)[None]
        ahead = model.imagine(body, time, belief.mean[:, None], mean, near).commands[:, :, 0, 0]
        return FlightPlan(model.command(body, time, mean)[:, 0], moved, ahead, effective_sample_size(weights))

    return FlightPlanner(decide, plan, score, pool, model)
