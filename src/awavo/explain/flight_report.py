"""A whole record explained: influences with intervals, shares, magnitudes, motors and fans, as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.control.flight_model import FlightModel, motor_pwm
from awavo.control.flight_planner import FACTORS, DecisionInputs, flight_planner
from awavo.control.planner_config import PlannerConfig
from awavo.errors import InputError
from awavo.explain.calibration import NECESSITY, UNITS, calibration_for
from awavo.explain.factors import without
from awavo.explain.flight_factors import (
    NUM_RESAMPLES,
    Uncertain,
    factor_weights,
    flight_factor,
    measure_band,
    named_factors,
    uncertain_posteriors,
)
from awavo.explain.hindsight import Hindsight
from awavo.explain.intervals import Band, resampled_influences, resampled_necessity, with_value
from awavo.explain.magnitude import resampled_magnitudes
from awavo.explain.measures import influences, mean_parts, measure_weights, num_factors
from awavo.explain.mismatch import log_hindsight
from awavo.explain.record import FlightLog
from awavo.inference.wvi import effective_sample_size
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference, reference_function
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = [
    "DecisionRow", "Fan", "FlightExplanation", "decision_points", "decision_program", "explain_log",
    "spacing",
]  # fmt: skip

FAN_SIZE = 12
# A magnitude costs far more than an influence: one resample of the pool for every force. Factors of your own have one
# outer draw, the force itself, and more resamples of it.
SIZE_RESAMPLES, OWN_RESAMPLES, OWN_SPREAD = 0, 16, 8
MOST_ASKED = 240  # decisions of a flight that are asked, unless the user says which


class Fan(NamedTuple):
    """Paths that the planner thought of at one instant, drawn by weight: as it was, and without each factor."""

    place: int
    paths: dict[str, list[list[list[float]]]]


class FlightExplanation(NamedTuple):
    """Time first, a band for each factor and decision.

    `necessity` is that of the plan with the largest weight. `magnitude` is by unit: N of thrust, rad/s of body rates,
    microseconds of PWM; its value is debiased, and so below 0 where noise outweighs it, its bounds never are. All are
    under `force`, the external one as the whole record shows it; `believed` is the influence under the force that the
    planner believed at that instant.
    """

    names: tuple[str, ...]
    numbers: np.ndarray
    time: np.ndarray
    influence: Band
    calibrated: bool
    shares: np.ndarray
    together: np.ndarray
    necessity: Band
    magnitude: dict[str, Band]
    motors: np.ndarray
    effective_size: np.ndarray
    fans: list[Fan]
    believed: np.ndarray
    force: np.ndarray


class DecisionRow(NamedTuple):
    """What is asked of one decision; `paths` are those of its fans, by kind: [1 + M, H, 3, FAN_SIZE]."""

    influence: Band
    believed: Float[Array, " M"]
    shares: Float[Array, " M"]
    together: Float[Array, ""]
    necessity: Band
    magnitude: Band
    motors: Float[Array, "P 4"]
    effective_size: Float[Array, ""]
    paths: Float[Array, "N H 3 F"]


def decision_points(
    model: FlightModel, inputs: DecisionInputs, pool: Float[Array, "K D"], params: QuadrotorParams
) -> Float[Array, "U K 4"]:
    """Return what every candidate would do now, in each of `UNITS`.

    A coordinate that is always 0 leaves d SW^2 as it is, and makes one program of all units.
    """
    command = model.command(inputs.body, inputs.time, pool)
    pwm = motor_pwm(command, inputs.body.rates[:, None], params).T
    return jnp.stack([*(jnp.pad(x, ((0, 0), (0, 1))) for x in (model.added_thrust(pool), command[1:].T)), pwm])


def _fan(weights: Float[Array, "S K"], paths: Float[Array, "H 3 K"]) -> Float[Array, "N H 3 F"]:
    """A few of the paths, drawn by weight: with everything, and without each factor."""
    places = (jnp.arange(FAN_SIZE) + 0.5) / FAN_SIZE
    num = num_factors(weights.shape[0])
    kept = weights[jnp.array([2**num - 1, *(without(num, i) for i in range(num))])]
    rows = jax.vmap(lambda row: jnp.minimum(jnp.searchsorted(row, places), row.size - 1))(jnp.cumsum(kept, -1))
    return paths[:, :, rows].transpose(2, 0, 1, 3)


@lru_cache(maxsize=8)
def decision_program(config: PlannerConfig, names: tuple[str, ...], reference: Reference = FIGURE_OF_EIGHT):
    """One compiled function of a decision, the force it met and that force's covariance: `DecisionRow`.

    Its outputs do not depend on how many decisions are asked for.
    """
    standard = names == FACTORS
    factors = [flight_factor(name) for name in names]

    def posteriors(inputs: DecisionInputs, params: QuadrotorParams, force: Array, doubt: Array) -> Uncertain:
        if standard:
            return uncertain_posteriors(inputs, params, config, force, doubt, reference)
        weights, pool = factor_weights(inputs, factors, params, config, reference, force)
        model = flight_planner(params, reference_function(reference), config).model
        near = model.near_path(inputs.forest, inputs.time)
        paths = model.imagine(inputs.body, inputs.time, inputs.belief.mean[:, None], pool, near).positions[:, :, 0]
        return Uncertain(weights, pool, weights[None], weights, paths)

    def one(inputs: DecisionInputs, params: QuadrotorParams, force: Array, doubt: Array) -> DecisionRow:
        found = posteriors(inputs, params, force, doubt)
        weights, spread = found.weights, 1 if standard else OWN_SPREAD
        model = flight_planner(params, reference_function(reference), config).model
        points = decision_points(model, inputs, found.pool, params)
        key = jax.random.fold_in(inputs.key, 3)

        def sizes(counts, weights):
            return resampled_magnitudes(key, points, counts, weights)

        best = jnp.argmax(weights[-1])

        def chances(counts, weights):
            return jnp.stack([resampled_influences(counts, weights), resampled_necessity(counts, weights, best)], 1)

        both = measure_band(inputs, found, chances, spread * NUM_RESAMPLES)
        measures = measure_weights(weights)
        influence, needed = (Band(*(x[i] for x in both)) for i in range(2))
        magnitude = measure_band(inputs, found, sizes, SIZE_RESAMPLES if standard else OWN_RESAMPLES)
        rest = (mean_parts(weights, points[-1]), effective_sample_size(weights[-1]))
        paths = _fan(found.believed, found.paths)
        return DecisionRow(
            influence, influences(found.believed), measures.shares, measures.together, needed, magnitude, *rest, paths
        )

    return jax.jit(one)


def _clipped(band: Band, top: float | None = 1.0) -> Band:
    return Band(band.value, np.clip(band.low, 0, top), np.clip(band.high, 0, top))


def _shown(log: FlightLog, names: tuple[str, ...], found: DecisionRow) -> tuple[Band, Band, dict[str, Band], bool]:
    """Return influence, necessity and magnitudes as they are shown, stretched where the calibration holds for them."""
    sizes = {unit: Band(*(x[..., u] for x in found.magnitude)) for u, unit in enumerate(UNITS)}
    known = calibration_for(log.config, names)
    if known is None:
        sizes = {unit: _clipped(band, None) for unit, band in sizes.items()}
        return _clipped(found.influence), _clipped(found.necessity), sizes, False
    sizes = {unit: with_value(known.measures[unit].apply(band)) for unit, band in sizes.items()}
    needed = with_value(known.measures[NECESSITY].apply(found.necessity))
    return known.influence.apply(found.influence), needed, sizes, True


def explain_log(
    log: FlightLog,
    names: Sequence[str] = FACTORS,
    every: int | None = None,
    seen: Hindsight | None = None,
    after_each: Callable[[], object] | None = None,
) -> FlightExplanation:
    """Explain every `every`-th decision of a record by the factors named (None: `spacing` says which).

    `seen` is what `mismatch.log_hindsight` saw, where that is known; `after_each` is called after each decision.
    """
    every = spacing(len(log.decisions)) if every is None else every
    if every < 1:
        raise InputError(f"every={every} must be >= 1.")
    names = named_factors(names, log.decisions[0].inputs.forest)
    seen = log_hindsight(log)[0] if seen is None else seen
    chosen = log.decisions[::every]
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), log.params)
    program = decision_program(log.config, names, log.reference)
    forces, doubts = (np.asarray(x[::every], np.float32) for x in (seen.force, seen.covariance))
    rows = []
    for decision, force, doubt in zip(chosen, forces, doubts, strict=True):
        rows.append(jax.device_get(program(decision.inputs, params, force, doubt)))
        if after_each is not None:
            after_each()
    found: DecisionRow = jax.tree.map(lambda *x: np.stack(x), *rows)
    influence, needed, sizes, calibrated = _shown(log, names, found)
    kinds = ("as it was", *(f"without {name}" for name in names))
    fans = [
        Fan(place, {k: np.round(p[::2].transpose(2, 0, 1), 3).tolist() for k, p in zip(kinds, paths, strict=True)})
        for place, paths in enumerate(found.paths)
    ]
    numbers, times = np.array([d.number for d in chosen]), np.array([float(d.inputs.time) for d in chosen])
    shares, together = np.asarray(found.shares), np.asarray(found.together)
    motors, size = np.asarray(found.motors), np.asarray(found.effective_size)
    return FlightExplanation(
        names, numbers, times, influence, calibrated, shares, together, needed, sizes, motors, size, fans,
        np.asarray(found.believed), forces,
    )  # fmt: skip


def spacing(decisions: int) -> int:
    """Which decisions are asked: every fifth, in long flights as many further apart as leave `MOST_ASKED`."""
    return max(5, -(-decisions // MOST_ASKED))
