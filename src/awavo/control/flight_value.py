r"""ORPO-DR's distributional critics for a flight: what comes after the planner's horizon, and how sure that is.

:math:`Z^i(s, a)` are M quantiles of the discounted sums of the planner's three signals (progress R, clearance G_1, tilt
G_2) under the controller itself. They are learned from its own flights by lines 4 and 6 of ORPO-DR (quantile Huber
steps towards :math:`h_i + \gamma Z^i(s', a')`, a Polyak-averaged target); the controller takes the place of the actor.

The planner adds :math:`E Z^0 - w_1 E Z^1 - w_2 E Z^2` at the end of its horizon, and shows the quantiles at the state
of the decision. States are seen through 30 numbers that the model's 13 states, the belief and the forest determine.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from awavo.networks.critic import QuantileCritic, quantile_critic
from awavo.networks.normalizer import RunningStatistics, normalize, running_statistics, update_statistics
from awavo.networks.optimize import adam, descend, polyak_average
from awavo.networks.quantiles import bellman_targets, quantile_huber
from awavo.tasks.quadrotor.body import thrust_axis
from awavo.tasks.quadrotor.forest import Forest, distances
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn
from awavo.types import Box

__all__ = ["FlightValue", "Passage", "ValueConfig", "features", "learn_value", "terminal_value", "value_quantiles"]

SIGNALS = 3
FEATURES = 30
AHEAD = (0.2, 0.5, 1.0)
SPACE = Box((0.0, -6.0, -6.0, -3.0), (20.0, 6.0, 6.0, 3.0))


class ValueConfig(NamedTuple):
    """Discount of 20 ms (0.98: one second), sizes and steps of the critics."""

    discount: float = 0.98
    hidden: tuple[int, ...] = (32, 32)
    num_quantiles: int = 16
    scale: float = 1.0
    learning_rate: float = 1e-3
    batch_size: int = 512
    num_steps: int = 6000
    polyak: float = 0.01
    huber: float = 0.05


DEFAULT = ValueConfig()


class FlightValue(NamedTuple):
    """Critics, and the statistics that normalise what they see."""

    critic: QuantileCritic
    stats: RunningStatistics


class Passage(NamedTuple):
    """Transitions of flights: features and action now and at the next decision, and the signals between them."""

    seen: Float[Array, "N 30"]
    action: Float[Array, "N 4"]
    signals: Float[Array, "N 3"]
    next_seen: Float[Array, "N 30"]
    next_action: Float[Array, "N 4"]
    ended: Bool[Array, " N"]


def features(
    position: Float[Array, "3 ..."],
    velocity: Float[Array, "3 ..."],
    attitude: Float[Array, "4 ..."],
    rates: Float[Array, "3 ..."],
    time: Float[Array, ""],
    force: Float[Array, " 3"],
    forest: Forest,
    reference: RefFn,
    params: QuadrotorParams,
) -> Float[Array, "30 ..."]:
    """What the critics see of states [3, ...] at one time: errors, attitude, force, obstacles here and ahead."""
    batch = position.shape[1:]
    wide = (slice(None), *[None] * len(batch))

    def same(x):
        return jnp.broadcast_to(x[wide], (x.shape[0], *batch))

    def obstacle(place):
        """Closeness of the nearest cylinder, and the way to it."""
        gaps = distances(forest, place)
        near = jnp.argmin(gaps, 0)
        close = jnp.asarray(params.obstacles_on) * jnp.exp(-jnp.maximum(jnp.min(gaps, 0), 0.0) / 0.5)
        way = jnp.stack([forest.x[near] - place[0], forest.y[near] - place[1]])
        return jnp.concatenate([close[None], close * way / jnp.maximum(jnp.sqrt(jnp.sum(way**2, 0)), 1e-6)])

    now = reference(time, params)
    ahead = [reference(time + t, params).position for t in AHEAD]
    parts = [
        now.position[wide] - position, now.velocity[wide] - velocity, thrust_axis(attitude), rates, same(force),
        same(now.acceleration), obstacle(position), *(same(obstacle(place)) for place in ahead),
    ]  # fmt: skip
    return jnp.concatenate(parts)


def value_quantiles(
    value: FlightValue, seen: Float[Array, "... 30"], action: Float[Array, "... 4"]
) -> Float[Array, "... 3 M"]:
    """Quantiles of the discounted sums of R, G_1 and G_2."""
    return value.critic(normalize(value.stats, seen), action)


def terminal_value(
    value: FlightValue, seen: Float[Array, "30 ..."], action: Float[Array, "4 ..."], weights: tuple[float, float]
) -> Float[Array, " *n"]:
    """E Z^0 - w_1 E Z^1 - w_2 E Z^2, with components first as in the planner; costs cannot be negative."""
    means = value_quantiles(value, jnp.moveaxis(seen, 0, -1), jnp.moveaxis(action, 0, -1)).mean(-1)
    return means[..., 0] - weights[0] * jnp.maximum(means[..., 1], 0.0) - weights[1] * jnp.maximum(means[..., 2], 0.0)


def learn_value(key: Array, data: Passage, config: ValueConfig = DEFAULT) -> tuple[FlightValue, Array]:
    """Learn the critics from transitions; return them and the loss of every step."""
    init_key, run_key = jax.random.split(key)
    stats = update_statistics(running_statistics(FEATURES), data.seen)
    critic = quantile_critic(init_key, FEATURES, SPACE, config.hidden, SIGNALS, config.num_quantiles, config.scale)
    optimizer = adam(config.learning_rate, 10.0)
    seen, next_seen = normalize(stats, data.seen), normalize(stats, data.next_seen)

    def step(carry, key):
        critic, target, opt = carry
        rows = jax.random.randint(key, (config.batch_size,), 0, len(data.ended))
        later = target(next_seen[rows], data.next_action[rows])
        targets = bellman_targets(data.signals[rows], later, data.ended[rows], config.discount)
        loss, grads = jax.value_and_grad(
            lambda c: quantile_huber(c(seen[rows], data.action[rows]), targets, config.huber)
        )(critic)
        critic, opt = descend(optimizer, grads, opt, critic)
        return (critic, polyak_average(critic, target, config.polyak), opt), loss

    start = (critic, jax.tree.map(jnp.copy, critic), optimizer.init(critic))  # pyright: ignore[reportArgumentType]
    (critic, _, _), losses = jax.lax.scan(step, start, jax.random.split(run_key, config.num_steps))
    return FlightValue(critic, stats), losses
