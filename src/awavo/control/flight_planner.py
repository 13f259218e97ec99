r"""AWaVO as a tracking controller: inference over detours from the reference, on the analytic model.

.. code-block:: text

    1  M draws of theta = (force, mass, drag) from p_D(theta), the flight's own posterior
    2  K detours (knots of an offset to the reference): none, the shifted posterior's with noise, bumps from the prior
    3  the tracking law follows each detoured reference inside the model of each draw, H steps of 50 ms
    4  R: -|e| - w |e'| against the TRUE reference; G_1: clearance below a margin; G_2: tilt above a margin
    5  log p(O | z) = log mean_m exp( (R_m - w_1 G_1m - w_2 G_2m) / lambda ),  w_k ~ p(O | z_k)^(1/T);
       with ORPO-DR's critics (control/flight_value.py) the sums go on behind the horizon: + E Z^i(s_H, a_H)
    6  q <- a few steps of A-GSWD(q, nu) from the shifted posterior
    7  act: the tracking law towards the mean detour of q

Deciding over detours instead of raw commands keeps the dimension at 12, and a plan that is not renewed in time is still
a feedback law. The model has 13 states (position, velocity, attitude, rates); rates follow their command with a lag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.control.belief import Belief, draw_members
from awavo.control.flight_value import FlightValue, features, terminal_value, value_quantiles
from awavo.control.tracking import Gains, track
from awavo.inference.wvi import effective_sample_size, move_particles, tempered_weights
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, thrust_axis
from awavo.tasks.quadrotor.forest import Forest, clearance, distances
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn, RefState
from awavo.transport.defining import Linear

__all__ = [
    "DEFAULT",
    "FlightDecision",
    "FlightPlanner",
    "PlannerConfig",
    "flight_planner",
    "flight_signals",
    "start_detours",
]


class PlannerConfig(NamedTuple):
    """Sizes, weights and margins of the planner."""

    num_detours: int = 250
    num_members: int = 4
    horizon: int = 20
    dt: float = 0.05
    period: float = 0.02
    num_knots: int = 4
    num_particles: int = 32
    memory_share: float = 0.6
    memory_noise: float = 0.05
    prior_std: float = 0.25
    clearance_margin: float = 0.42
    tilt_margin: float = 0.45
    clearance_weight: float = 60.0
    tilt_weight: float = 20.0
    velocity_weight: float = 0.1
    temperature: float = 0.3
    effective_share: float = 0.05
    num_near: int = 10
    num_slices: int = 8
    num_steps: int = 3
    rate_lag: float = 0.05
    lead: float = 0.06


DEFAULT, GAINS = PlannerConfig(), Gains()


class FlightDecision(NamedTuple):
    """The action now, the posterior, the model's own commands along the mean detour, and how it came about.

    `outlook` are ORPO-DR's quantiles of the discounted sums of R, G_1, G_2 from here on; without critics none.
    """

    action: Float[Array, " 4"]
    detours: Float[Array, "P D"]
    commands: Float[Array, "H 4"]
    log_likelihood: Float[Array, " K"]
    weights: Float[Array, " K"]
    effective_size: Float[Array, ""]
    distance: Float[Array, ""]
    clearance: Float[Array, ""]
    outlook: Float[Array, "3 M"]


FlightPlanner = Callable[[Array, Body, Array, Belief, Array, Forest], FlightDecision]


def start_detours(config: PlannerConfig) -> Float[Array, "P D"]:
    """No detour, in every particle."""
    return jnp.zeros((config.num_particles, 3 * config.num_knots))


def _interpolation(times: np.ndarray, span: float, num_knots: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices [T, knots] that give offsets and their rates at times: linear between knots spread over the span."""
    last = num_knots - 1
    place = np.clip(times / span * last, 0.0, last - 1e-6)
    index = place.astype(int)
    rows, share = np.arange(len(times)), place - index
    values, rates = np.zeros((2, len(times), num_knots))
    values[rows, index], values[rows, index + 1] = 1 - share, share
    rates[rows, index], rates[rows, index + 1] = -last / span, last / span
    return values, rates


def _turn(q: Float[Array, "4 ..."], rates: Float[Array, "3 ..."], dt: float) -> Float[Array, "4 ..."]:
    w, x, y, z = q
    p, r, s = rates
    drift = jnp.stack([-x * p - y * r - z * s, w * p + y * s - z * r, w * r - x * s + z * p, w * s + x * r - y * p])
    q = q + 0.5 * dt * drift
    return q / jnp.sqrt(jnp.sum(q**2, 0))


def flight_signals(
    error: Float[Array, " *n"],
    drift: Float[Array, " *n"],
    gap: Float[Array, " *n"],
    up: Float[Array, " *n"],
    params: QuadrotorParams,
    config: PlannerConfig,
) -> Float[Array, "3 ..."]:
    """R, G_1, G_2 a second: position and velocity error, clearance below and tilt (cosine `up`) above the margins."""
    near = jnp.maximum(config.clearance_margin - gap, 0.0) / params.collision_radius
    near = near + 20.0 * (gap < params.collision_radius)
    tilt = jnp.maximum(jnp.cos(config.tilt_margin) - up, 0.0)
    return jnp.stack([-error - config.velocity_weight * drift, near, tilt])


def flight_planner(
    params: QuadrotorParams,
    reference: RefFn,
    config: PlannerConfig = DEFAULT,
    gains: Gains = GAINS,
    value: FlightValue | None = None,
) -> FlightPlanner:
    """Build `decide(key, body, time, belief, detours, forest) -> FlightDecision`; `params` are the nominal ones."""
    num, members, span = config.num_detours, config.num_members, config.horizon * config.dt
    memory = round(config.memory_share * num)
    interpolation = _interpolation(config.dt * np.arange(config.horizon), span, config.num_knots)
    knot_times = np.linspace(0.0, span, config.num_knots)
    shift = _interpolation(np.minimum(knot_times + config.period, span), span, config.num_knots)[0]
    bumps = jnp.sin(jnp.linspace(0.15, 1.0, config.num_knots) * jnp.pi * 0.75)[:, None]

    def propose(key, detours):
        """No detour, the mean, particles with noise, and bumps in random directions."""
        noise_key, bump_key, mean_key = jax.random.split(key, 3)
        rows = detours[jnp.arange(memory) % config.num_particles]
        near = rows + config.memory_noise * jax.random.normal(noise_key, rows.shape)
        count = num - memory - 2
        size = config.prior_std * jax.random.normal(bump_key, (count, 1, 3)) * jnp.array([1.0, 1.0, 0.4])
        centre = detours.mean(0).reshape(config.num_knots, 3) * jax.random.bernoulli(mean_key, 0.5, (count, 1, 1))
        fresh = (centre + size * bumps).reshape(count, -1)
        return jnp.concatenate([detours.mean(0)[None], jnp.zeros((1, detours.shape[1])), near, fresh])

    def wanted_along(time, candidates):
        """Detoured references [H, 3, 1, K] of the horizon, and the true one a step later, [H, 3, 1, 1]."""
        knots = candidates.reshape(-1, config.num_knots, 3)
        columns = jnp.transpose(knots, (1, 2, 0))[:, None, :, None]
        offset, rate = (
            sum((m[:, k, None, None, None] * columns[k] for k in range(config.num_knots)), jnp.zeros(()))
            for m in interpolation
        )
        times = time + config.dt * jnp.arange(config.horizon + 1)
        true, lead = reference(times, params), reference(times + config.lead, params)
        place, speed, push = (x.T[:, :, None, None] for x in (true.position, true.velocity, lead.acceleration))
        wanted = RefState(place[:-1] + offset, speed[:-1] + rate, jnp.broadcast_to(push[:-1], offset.shape))
        return wanted, (place[1:], speed[1:])

    def push_of(theta, drag):
        """Acceleration by external force and drag, and the mass ratio, for parameters [5, ...]."""
        lightness = 1 / (1 + theta[3])
        return (theta[:3] + drag * (1 + theta[4])) * (lightness / params.mass), lightness

    def drag_of(velocity, attitude):
        return rotate(attitude, body_drag(attitude, velocity, 1.0, params))

    def imagine(body, time, theta, believed, candidates, forest, every):
        """Rewards and costs [3, M, K] of following each detour under each draw, commands and least clearance."""
        wide = (members, num)

        def spread(x):
            return jnp.broadcast_to(x.reshape(-1, 1, 1), (x.shape[0], *wide))

        theta, believed = theta[:, :, None], believed[:, None, None]
        lag = 1 - jnp.exp(-config.dt / config.rate_lag)

        def step(carry, inputs):
            p, v, q, w, total, least = carry
            wanted, (place, speed) = inputs
            drag = drag_of(v, q)
            undo, _ = push_of(believed, drag)
            command = track(p, v, q, wanted, undo, params.gravity, gains)
            w = w + lag * (command[1:] - w)
            q = _turn(q, w, config.dt)
            push, lightness = push_of(theta, drag)
            a = command[0] * lightness * thrust_axis(q) + push
            a = a - params.gravity * jnp.array([0.0, 0.0, 1.0]).reshape(3, 1, 1)
            p = p + config.dt * v + 0.5 * config.dt**2 * a
            v = v + config.dt * a
            gap = clearance(forest, p, params)
            error = jnp.sqrt(jnp.sum((place - p) ** 2, 0))
            drift = jnp.sqrt(jnp.sum((speed - v) ** 2, 0))
            signals = flight_signals(error, drift, gap, thrust_axis(q)[2], params, config)
            return (p, v, q, w, total + config.dt * signals, jnp.minimum(least, gap)), command[:, 0, 0]

        start = (
            *(spread(x) for x in (body.position, body.velocity, body.attitude, body.rates)),
            jnp.zeros((3, *wide)),
            jnp.full(wide, 1e3),
        )
        (p, v, q, w, total, least), commands = jax.lax.scan(step, start, wanted_along(time, candidates))
        return total, commands, least, beyond(p, v, q, w, time + span, believed, every)

    def beyond(p, v, q, w, time, believed, forest):
        """What the critics expect of the states [3, M, K] at the end of the horizon, under the tracking law."""
        if value is None:
            return 0.0
        undo, _ = push_of(believed, drag_of(v, q))
        wanted = jax.tree.map(lambda x: x[:, None, None], reference(time, params))
        command = track(p, v, q, wanted, undo, params.gravity, gains)
        seen = features(p, v, q, w, time, believed[:3, 0, 0], forest, reference, params)
        return terminal_value(value, seen, command, (config.clearance_weight, config.tilt_weight))

    def near_path(forest, time):
        """The cylinders nearest to the reference of the horizon: no candidate comes close to any other."""
        path = reference(time + config.dt * jnp.arange(config.horizon + 1), params).position
        gaps = jnp.min(distances(forest, path), 1)
        chosen = jax.lax.top_k(-gaps, min(config.num_near, gaps.shape[0]))[1]
        return Forest(*(column[chosen] for column in forest))

    def decide(key, body, time, belief, detours, forest):
        every, forest = forest, near_path(forest, time)
        member_key, propose_key, slice_key = jax.random.split(key, 3)
        shifted = jnp.einsum("jk,pkc->pjc", shift, detours.reshape(-1, config.num_knots, 3)).reshape(detours.shape)
        theta = draw_members(member_key, belief, members)
        candidates = propose(propose_key, shifted)
        total, commands, least, later = imagine(body, time, theta, belief.mean, candidates, forest, every)
        utility = total[0] - config.clearance_weight * total[1] - config.tilt_weight * total[2] + later
        log_likelihood = jax.nn.logsumexp(utility / config.temperature, 0) - jnp.log(members)
        weights, _ = tempered_weights(log_likelihood, config.effective_share * num)
        slices = jax.random.normal(slice_key, (config.num_slices, detours.shape[1]))
        moved, left = move_particles(
            shifted, candidates, weights, slices, defining=Linear(), num_steps=config.num_steps
        )
        wanted = jax.tree.map(lambda x: x[0, :, 0, 0], wanted_along(time, moved.mean(0))[0])
        push, _ = push_of(belief.mean, drag_of(body.velocity, body.attitude))
        action = track(body.position, body.velocity, body.attitude, wanted, push, params.gravity, gains)
        outlook = jnp.zeros((3, 0))
        if value is not None:
            now = (body.position, body.velocity, body.attitude, body.rates)
            seen = features(*now, time, belief.mean[:3], every, reference, params)
            outlook = value_quantiles(value, seen, action)
        size, nearest = effective_sample_size(weights), least[:, 0].min()
        return FlightDecision(action, moved, commands, log_likelihood, weights, size, left, nearest, outlook)

    return decide
