r"""Ask the flight controller itself (control/flight_planner.py) about a factor: its own pool, costs, weights and move.

The controller decides anew in the world of every coalition, with the key of the decision: the same pool and draws, the
same tempering, the same A-GSWD move. Two things can be said about what it did:

* the action's parts, exactly: Shapley shares of the executed action over the coalitions, per motor where wanted;
* the probability of influence on the *detour*, which is what this controller infers.

The force that it leans against is not inferred: it is the belief's mean, put in beside the posterior. Its law is a
point mass, total variation would be 0 or 1, and so the wind's influence here is that on the detour alone. The planner
of explain/flight_planner.py infers that force too, which gives wind a probability of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.control.flight_planner import DEFAULT, PlannerConfig, flight_planner
from awavo.control.flight_value import FlightValue
from awavo.explain.asking import World
from awavo.explain.factors import Factor, check_factors, coalition_models
from awavo.explain.flight import DecisionInputs
from awavo.explain.flight_model import motor_pwm
from awavo.explain.measures import influences, shapley
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import RefFn, lissajous

__all__ = ["ControllerAnswer", "ask_controller"]


class ControllerAnswer(NamedTuple):
    """What the controller did, and would have done: `actions` and `weights` by coalition, the last one as it was.

    `parts` split its motors' PWM (microseconds): first without any factor, then the share of each; they sum to the
    signal that was flown.
    """

    influence: Float[Array, " M"]
    parts: Float[Array, "P 4"]
    actions: Float[Array, "S 4"]
    weights: Float[Array, "S K"]


def ask_controller(
    inputs: DecisionInputs,
    factors: Sequence[Factor],
    params: QuadrotorParams,
    config: PlannerConfig = DEFAULT,
    reference: RefFn = lissajous,
    value: FlightValue | None = None,
) -> ControllerAnswer:
    """Decide in every coalition; `inputs.particles` are the controller's detours."""
    decide = flight_planner(params, reference, config, value=value)

    def again(world: World):
        made = decide(inputs.key, inputs.body, inputs.time, world.belief, inputs.particles, world.forest)
        return made.action, made.weights

    worlds = coalition_models(check_factors(factors), World(inputs.belief, inputs.forest))
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(part, jnp.float32) for part in x]), *worlds)
    actions, weights = jax.lax.map(again, stacked)
    signals = motor_pwm(actions.T, inputs.body.rates[:, None], params).T
    return ControllerAnswer(influences(weights), jnp.concatenate([signals[:1], shapley(signals)]), actions, weights)
