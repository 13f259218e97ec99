"""A whole record explained: influences with intervals, shares, magnitudes, motors and fans, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
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
from awavo.explain.flight_factors import (
    NUM_RESAMPLES,
    Uncertain,
    factor_weights,
    flight_factor,
    measure_band,
    uncertain_posteriors,
)
from awavo.explain.intervals import Band, resampled_influences, resampled_necessity, with_value
from awavo.explain.magnitude import resampled_magnitudes
from awavo.explain.measures import mean_parts, measure_weights
from awavo.explain.mismatch import log_doubt
from awavo.explain.record import FlightLog
from awavo.inference.wvi import effective_sample_size
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference, reference_function
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = [
    "DecisionRow", "Fan", "FlightExplanation", "decision_points", "decision_program", "explain_log",
]  # fmt: skip

FAN_SIZE = 12
# Resamples in each outer draw of a magnitude, which costs far more than an influence; factors of your own have one
# outer draw, the belief itself, and more resamples of it.
SIZE_RESAMPLES, OWN_SPREAD = 4, 8


class Fan(NamedTuple):
    """Paths that the planner thought of at one instant, drawn by weight: as it was, and without each factor."""

    place: int
    paths: dict[str, list[list[list[float]]]]


class FlightExplanation(NamedTuple):
    """Time first, a band for each factor and decision.

    `necessity` is that of the plan with the largest weight. `magnitude` is by unit: N of thrust, rad/s of body rates,
    microseconds of PWM; its value is debiased, and so below 0 where noise outweighs it, its bounds never are.
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


class DecisionRow(NamedTuple):
    """What is asked of one decision."""

    influence: Band
    shares: Float[Array, " M"]
    together: Float[Array, ""]
    necessity: Band
    magnitude: Band
    motors: Float[Array, "P 4"]
    effective_size: Float[Array, ""]


def decision_points(
    model: FlightModel, inputs: DecisionInputs, pool: Float[Array, "K D"], params: QuadrotorParams
) -> Float[Array, "U K 4"]:
    """Return what every candidate would do now, in each of `UNITS`.

    A coordinate that is always 0 leaves d SW^2 as it is, and makes one program of all units.
    """
    command = model.command(inputs.body, inputs.time, pool)
    pwm = motor_pwm(command, inputs.body.rates[:, None], params).T
    return jnp.stack([*(jnp.pad(x, ((0, 0), (0, 1))) for x in (model.added_thrust(pool), command[1:].T)), pwm])


@lru_cache(maxsize=8)
def decision_program(config: PlannerConfig, names: tuple[str, ...], reference: Reference = FIGURE_OF_EIGHT):
    """One compiled function of a decision; its outputs do not depend on how many are asked for."""
    standard = names == FACTORS
    factors = [flight_factor(name) for name in names]

    def posteriors(inputs: DecisionInputs, params: QuadrotorParams, doubt: Array) -> Uncertain:
        if standard:
            return uncertain_posteriors(inputs, params, config, doubt, reference)
        weights, pool = factor_weights(inputs, factors, params, config, reference)
        return Uncertain(weights, pool, weights[None])

    def one(inputs: DecisionInputs, params: QuadrotorParams, doubt: Array) -> DecisionRow:
        found = posteriors(inputs, params, doubt)
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
        magnitude = measure_band(inputs, found, sizes, spread * SIZE_RESAMPLES)
        rest = (mean_parts(weights, points[-1]), effective_sample_size(weights[-1]))
        return DecisionRow(influence, measures.shares, measures.together, needed, magnitude, *rest)

    return jax.jit(one)


@lru_cache(maxsize=8)
def _fan_program(config: PlannerConfig, names: tuple[str, ...], reference: Reference):
    factors = [flight_factor(name) for name in names]

    @jax.jit
    def fan(inputs: DecisionInputs, params: QuadrotorParams):
        planner = flight_planner(params, reference_function(reference), config)
        weights, pool = factor_weights(inputs, factors, params, config, reference)
        places = (jnp.arange(FAN_SIZE) + 0.5) / FAN_SIZE
        full = 2 ** len(names) - 1
        chosen = []
        for mask in (full, *(full & ~(1 << i) for i in range(len(names)))):
            rows = jnp.minimum(jnp.searchsorted(jnp.cumsum(weights[mask]), places), weights.shape[1] - 1)
            chosen.append(pool[rows])
        theta = inputs.belief.mean[:, None]
        near = planner.model.near_path(inputs.forest, inputs.time)
        flown = planner.model.imagine(inputs.body, inputs.time, theta, jnp.concatenate(chosen), near).positions[:, :, 0]
        return flown.reshape(*flown.shape[:2], len(chosen), FAN_SIZE).transpose(2, 0, 1, 3)

    return fan


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
    log: FlightLog, names: Sequence[str] = FACTORS, every: int = 5, num_fans: int = 240
) -> FlightExplanation:
    """Explain every `every`-th decision of a record by the factors named; fans at every instant, or at `num_fans`."""
    if every < 1:
        raise InputError(f"every={every} must be >= 1.")
    names = tuple(names)
    for name in names:
        flight_factor(name)
    chosen = log.decisions[::every]
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), log.params)
    program = decision_program(log.config, names, log.reference)
    doubts = jnp.asarray(log_doubt(log)[::every])
    asked = zip(chosen, doubts, strict=True)
    rows = [jax.device_get(program(jax.tree.map(jnp.asarray, d.inputs), params, doubt)) for d, doubt in asked]
    found: DecisionRow = jax.tree.map(lambda *x: np.stack(x), *rows)
    influence, needed, sizes, calibrated = _shown(log, names, found)
    fan_program = _fan_program(log.config, names, log.reference)
    fans = []
    for place in sorted({int(i) for i in np.linspace(0, len(chosen) - 1, min(num_fans, len(chosen)))}):
        paths = np.asarray(fan_program(jax.tree.map(jnp.asarray, chosen[place].inputs), params))
        kinds = ("as it was", *(f"without {name}" for name in names))
        fans.append(
            Fan(place, {k: np.round(p[::2].transpose(2, 0, 1), 3).tolist() for k, p in zip(kinds, paths, strict=True)})
        )
    numbers, times = np.array([d.number for d in chosen]), np.array([float(d.inputs.time) for d in chosen])
    shares, together = np.asarray(found.shares), np.asarray(found.together)
    motors, size = np.asarray(found.motors), np.asarray(found.effective_size)
    return FlightExplanation(
        names, numbers, times, influence, calibrated, shares, together, needed, sizes, motors, size, fans
    )
