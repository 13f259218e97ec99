r"""The flight tasks for learners that decide as AWaVO's flight planner does, over detours and braces.

A learner that commands thrust and rates has to learn to hover before it can avoid anything; how well it flies says
little about how well it decides. Here its action is what the planner infers: where the reference is left for
(:math:`k_0`, m, now, and :math:`k_1`, one knot later), and a force (N) to lean against beside the one that the filter
estimates. Zeros are the tracking law itself. State, observations, reward and costs are those of `quadrotor`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.flight_model import flight_model
from awavo.control.flight_planner import DEFAULT
from awavo.tasks.base import Clocked
from awavo.tasks.quadrotor.flight import FlightState, quadrotor
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous
from awavo.types import Box, Env, Fields, Timestep

__all__ = ["detour_flight"]

# The largest detour and brace, in standard deviations of the planner's own proposals.
REACH = 3.0


def detour_flight(
    *,
    task: str = "FT3",
    cost_limits: Sequence[float] = (2.0, 5.0),
    horizon: int = 500,
    num_obstacles: int = 30,
    **physics: float,
) -> Env:
    """Build a flight task along the Lissajous reference; `physics` overrides fields of `QuadrotorParams`."""
    own: Fields = dict(physics)
    env = quadrotor(task=task, cost_limits=cost_limits, horizon=horizon, num_obstacles=num_obstacles, **own)
    model = flight_model(env.params, lissajous, DEFAULT)
    reach = (REACH * DEFAULT.prior_std,) * 6 + (REACH * DEFAULT.brace_std,) * 3
    high = jnp.asarray(reach)

    def command(flight: FlightState, action: Float[Array, " 9"]) -> Float[Array, " 4"]:
        action = jnp.clip(action, -high, high)
        now, later, brace = action[:3], action[3:6], action[6:]
        # Only the first two knots move the command; a decision is made anew at every step.
        knots = jnp.concatenate([now, *[later] * (DEFAULT.num_knots - 1)])
        decision = jnp.concatenate([knots, flight.filter.force + brace])
        return model.command(flight.body, flight.time, decision[None])[:, 0]

    def step(
        key: Array, state: Clocked, action: Float[Array, " 9"], params: QuadrotorParams
    ) -> tuple[Clocked, Timestep]:
        return env.step(key, state, command(state.inner, action), params)

    space = Box(tuple(-x for x in reach), reach)
    return Env(env.spec._replace(name="quadrotor-detours", action_space=space), env.params, env.reset, step)
