"""Simulated decisions with known force: what the intervals of every measure say, and the truth."""

from __future__ import annotations

from operator import itemgetter
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
from awavo.explain.measures import coalition_weights, influences
from awavo.explain.mismatch import review
from awavo.explain.simulation import decide_from, explained_flight, flight_params
from awavo.tasks.quadrotor.references import lissajous

LARGE = CONFIG._replace(num_candidates=2048)
STEPS = 300
TASKS = {"wind": ("FT0", "FT1", "FT2", "FT3"), "obstacles": ("FT2", "FT3")}


def truths(inputs: DecisionInputs, force, params) -> dict[str, jax.Array]:
    """Influences [M], magnitudes [M, U], necessity [M] of a large pool, had the belief been centred at the true force.

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
        "influence": influences(weights),
        "magnitude": resampled_magnitudes(key, points, one, weights)[0],
        "necessity": resampled_necessity(alone, coalition_weights(scores, 1.0), LARGE.num_candidates)[0],
    }


@jax.jit
def _flight(seed, params):
    trace = explained_flight(seed, params, CONFIG, STEPS)
    return trace.inputs, trace.true_force


@jax.jit
def _judge(inputs, forces, seen, doubt, params):
    ask = decision_program(CONFIG, FACTORS)

    def one(asked):
        inputs, force, seen, doubt = asked
        row = ask(inputs, params, seen, doubt)
        return row.influence, row.magnitude, row.necessity, truths(inputs, force, params)

    return jax.lax.map(one, (inputs, forces, seen, doubt))


def flight_cases(task: str, seed: int, every: int, folder: Path | None) -> dict[str, np.ndarray]:
    """Value, low, high and truth, decisions first: `influence`, `necessity` [n, 4, M] and `magnitude` [n, 4, M, U]."""

    def make():
        params = flight_params(task)
        chosen = np.arange(every // 2, STEPS, every)
        inputs, forces = _flight(seed, params)
        belief, body, times = jax.device_get((inputs.belief, inputs.body, inputs.time))
        # As an explanation does, which has the whole record.
        seen = review(belief, body, np.asarray(times, float), params)
        parts = (inputs, forces, seen.force, seen.covariance)
        moved, size, needed, truth = _judge(*jax.tree.map(itemgetter(chosen), parts), params)
        return {
            "influence": np.stack([*moved, truth["influence"]], 1),
            "magnitude": np.stack([*size, truth["magnitude"]], 1),
            "necessity": np.stack([*needed, truth["necessity"]], 1),
        }

    return keep(folder, ["sizes", task, seed, STEPS, every, LARGE], make)
