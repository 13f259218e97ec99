"""What the flight model imagines with: detours from the reference by knots, the turn of a body, and its signals."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.control.planner_config import PlannerConfig
from awavo.tasks.quadrotor.forest import Forest, distances
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn, RefState

__all__ = ["detoured", "flight_signals", "fresh_detours", "near_path", "shift_detours", "turn"]


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


def detoured(
    reference: RefFn, params: QuadrotorParams, config: PlannerConfig
) -> tuple[Callable[..., tuple[RefState, tuple[Array, Array]]], tuple[np.ndarray, ...]]:
    """Build `wanted(time, detours [K, 3 knots], steps)`, and the matrices from knots to offsets and to their rates.

    `wanted` returns the detoured references `[steps, 3, 1, K]`, and the true one a step later, `[steps, 3, 1, 1]`.
    """
    knots, span = config.num_knots, config.horizon * config.dt
    matrices = _interpolation(config.dt * np.arange(config.horizon), span, knots)

    def wanted(time, detours, steps):
        columns = jnp.transpose(detours.reshape(-1, knots, 3), (1, 2, 0))[:, None, :, None]
        offset, rate = (
            sum((m[:steps, k, None, None, None] * columns[k] for k in range(knots)), jnp.zeros(())) for m in matrices
        )
        times = time + config.dt * jnp.arange(steps + 1)
        true, lead = reference(times, params), reference(times + config.lead, params)
        place, speed, push = (x.T[:, :, None, None] for x in (true.position, true.velocity, lead.acceleration))
        followed = RefState(place[:-1] + offset, speed[:-1] + rate, jnp.broadcast_to(push[:-1], offset.shape))
        return followed, (place[1:], speed[1:])

    return wanted, matrices


def shift_detours(config: PlannerConfig) -> Callable[[Float[Array, "P D"]], Float[Array, "P D"]]:
    """Build the move of detours on by one period, their last knot held."""
    knots, span = config.num_knots, config.horizon * config.dt
    matrix = _interpolation(np.minimum(np.linspace(0.0, span, knots) + config.period, span), span, knots)[0]
    return lambda detours: jnp.einsum("jk,pkc->pjc", matrix, detours.reshape(-1, knots, 3)).reshape(detours.shape)


def fresh_detours(keys: tuple[Array, Array], mean: Float[Array, " D"], count: int, std: float) -> Float[Array, "n D"]:
    """Draw bumps in random directions around the mean detour or around none; vertical ones are smaller."""
    bump_key, mean_key = keys
    knots = mean.shape[0] // 3
    shape = jnp.sin(jnp.linspace(0.15, 1.0, knots) * jnp.pi * 0.75)[:, None]
    size = std * jax.random.normal(bump_key, (count, 1, 3)) * jnp.array([1.0, 1.0, 0.4])
    centre = mean.reshape(knots, 3) * jax.random.bernoulli(mean_key, 0.5, (count, 1, 1))
    return (centre + size * shape).reshape(count, -1)


def turn(q: Float[Array, "4 ..."], rates: Float[Array, "3 ..."], dt: float) -> Float[Array, "4 ..."]:
    """Turn attitudes by body rates over dt."""
    w, x, y, z = q
    p, r, s = rates
    drift = jnp.stack([-x * p - y * r - z * s, w * p + y * s - z * r, w * r - x * s + z * p, w * s + x * r - y * p])
    q = q + 0.5 * dt * drift
    return q / jnp.sqrt(jnp.sum(q**2, 0))


def flight_signals(
    error: Float[Array, "..."],
    drift: Float[Array, "..."],
    gap: Float[Array, "..."],
    up: Float[Array, "..."],
    params: QuadrotorParams,
    config: PlannerConfig,
) -> Float[Array, "3 ..."]:
    """R, G_1, G_2 a second: position and velocity error, clearance below and tilt (cosine `up`) above the margins."""
    near = jnp.maximum(config.clearance_margin - gap, 0.0) / params.collision_radius
    near = near + 20.0 * (gap < params.collision_radius)
    tilt = jnp.maximum(jnp.cos(config.tilt_margin) - up, 0.0)
    return jnp.stack([-error - config.velocity_weight * drift, near, tilt])


def near_path(forest: Forest, time: Array, reference: RefFn, params: QuadrotorParams, config: PlannerConfig) -> Forest:
    """Pick the cylinders nearest to the reference of the horizon: no candidate comes close to any other."""
    path = reference(time + config.dt * jnp.arange(config.horizon + 1), params).position
    gaps = jnp.min(distances(forest, path), 1)
    chosen = jax.lax.top_k(-gaps, min(config.num_near, gaps.shape[0]))[1]
    return Forest(*(column[chosen] for column in forest))
