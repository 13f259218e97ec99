"""Simulated decisions with known force: what the intervals of magnitudes and of necessity say, and the truth."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flown import keep

from awavo.control.flight_planner import DEFAULT as CONFIG
from awavo.control.flight_planner import FACTORS, DecisionInputs, flight_planner, likelihoods
from awavo.explain.flight_report import decision_points, decision_program
from awavo.explain.intervals import resampled_necessity
from awavo.explain.magnitude import resampled_magnitudes
from awavo.explain.measures import coalition_weights
from awavo.explain.simulation import decide_from, explained_flight, flight_params
from awavo.tasks.quadrotor.references import lissajous

LARGE = CONFIG._replace(num_candidates=2048)
STEPS = 300
TASKS = {"wind": ("FT0", "FT1", "FT2", "FT3"), "obstacles": ("FT2", "FT3")}


def truths(inputs: DecisionInputs, force, params) -> dict[str, jax.Array]:
    """Magnitudes [M, U] and necessity [M] of a large pool, had the belief been centred at the true force.

    Necessity is that of the plan that was rated best at the decision, which is rated once more beside the large pool.
    """
    decision = decide_from(inputs, params, CONFIG)
    best = decision.candidates[jnp.argmax(decision.weights[-1])]
    planner = flight_planner(params, lissajous, LARGE)
    known = inputs.belief._replace(mean=inputs.belief.mean.at[:3].set(force))
    key = jax.random.fold_in(inputs.key, 2)
    pool, theta, still = planner.pool(key, known, inputs.particles)
    near = planner.model.near_path(inputs.forest, inputs.time)
    rated = jnp.concatenate([pool, best[None]])
    imagined = (planner.model.imagine(inputs.body, inputs.time, x, rated, near) for x in (still, theta))
    signals = jnp.stack([rollout.signals for rollout in imagined])
    scores = likelihoods(signals, LARGE)
    weights = coalition_weights(scores[:, :-1], 1.0)
    points = decision_points(planner.model, inputs, pool, params)
    one = jnp.ones((1, LARGE.num_candidates))
    # The plan has a weight of its own and no count: it is judged by the pool, and is no part of it.
    alone = jnp.pad(one, ((0, 0), (0, 1)))
    return {
        "magnitude": resampled_magnitudes(key, points, one, weights)[0],
        "necessity": resampled_necessity(alone, coalition_weights(scores, 1.0), LARGE.num_candidates)[0],
    }


@jax.jit
def _flight(seed, params):
    trace = explained_flight(seed, params, CONFIG, STEPS)
    return trace.inputs, trace.true_force


@jax.jit
def _judge(inputs, forces, params):
    ask = decision_program(CONFIG, FACTORS)

    def one(pair):
        row = ask(pair[0], params)
        return row.magnitude, row.necessity, truths(*pair, params)

    return jax.lax.map(one, (inputs, forces))


def flight_cases(task: str, seed: int, every: int, folder: Path | None) -> dict[str, np.ndarray]:
    """Value, low, high and truth, decisions first: `magnitude` [n, 4, M, U] and `necessity` [n, 4, M]."""

    def make():
        params = flight_params(task)
        chosen = np.arange(every // 2, STEPS, every)
        inputs, forces = jax.tree.map(lambda x: x[chosen], _flight(seed, params))
        size, needed, truth = _judge(inputs, forces, params)
        return {
            "magnitude": np.stack([*size, truth["magnitude"]], 1),
            "necessity": np.stack([*needed, truth["necessity"]], 1),
        }

    return keep(folder, ["sizes", task, seed, STEPS, every, LARGE], make)
