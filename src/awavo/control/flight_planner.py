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
from jaxtyping import Array, Float

from awavo.control.belief import Belief, draw_members
from awavo.control.detours import detoured, flight_signals, fresh_detours, near_path, shift_detours, turn
from awavo.control.flight_value import FlightValue, features, terminal_value, value_quantiles
from awavo.control.tracking import Gains, track
from awavo.inference.wvi import effective_sample_size, move_particles, tempered_weights
from awavo.tasks.quadrotor.body import Body, body_drag, rotate, thrust_axis
from awavo.tasks.quadrotor.forest import Forest, clearance
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn
from awavo.transport.defining import Linear

__all__ = [
    "DEFAULT",
    "FlightDecision",
    "FlightPlanner",
    "PlannerConfig",
    "flight_planner",
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
    wanted_along, _ = detoured(reference, params, config)
    shift = shift_detours(config.period, config)

    def propose(key, detours):
        """No detour, the mean, particles with noise, and bumps in random directions."""
        noise_key, bump_key, mean_key = jax.random.split(key, 3)
        rows = detours[jnp.arange(memory) % config.num_particles]
        near = rows + config.memory_noise * jax.random.normal(noise_key, rows.shape)
        fresh = fresh_detours((bump_key, mean_key), detours.mean(0), num - memory - 2, config.prior_std)
        return jnp.concatenate([detours.mean(0)[None], jnp.zeros((1, detours.shape[1])), near, fresh])

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
            q = turn(q, w, config.dt)
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
        (p, v, q, w, total, least), commands = jax.lax.scan(step, start, wanted_along(time, candidates, config.horizon))
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

    def decide(key, body, time, belief, detours, forest):
        every, forest = forest, near_path(forest, time, reference, params, config)
        member_key, propose_key, slice_key = jax.random.split(key, 3)
        shifted = shift(detours)
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
        wanted = jax.tree.map(lambda x: x[0, :, 0, 0], wanted_along(time, moved.mean(0), 1)[0])
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
