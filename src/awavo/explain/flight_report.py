"""A whole record explained: influences with intervals, shares, magnitudes, motors and fans, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.errors import InputError
from awavo.explain.asking import ask_weights, flight_factor
from awavo.explain.flight import DecisionInputs
from awavo.explain.flight_intervals import influence_band, load_calibration
from awavo.explain.flight_model import motor_pwm
from awavo.explain.flight_planner import FACTORS, ExplainedConfig, explained_planner
from awavo.explain.intervals import Band, bootstrap_influences, calibrated_band, quantile_band
from awavo.explain.magnitude import debiased_magnitude
from awavo.explain.measures import influences, mean_parts, shapley, total_variation
from awavo.explain.record import FlightLog
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous

__all__ = ["Fan", "FlightExplanation", "explain_log"]

FAN_SIZE = 12
OWN_RESAMPLES = 200


class Fan(NamedTuple):
    """Paths that the planner thought of at one instant, drawn by weight: as it was, and without each factor."""

    place: int
    paths: dict[str, list[list[list[float]]]]


class FlightExplanation(NamedTuple):
    """Time first. `influence` has a band for each factor; `magnitude` is in N and in microseconds of PWM."""

    names: tuple[str, ...]
    numbers: np.ndarray
    time: np.ndarray
    influence: Band
    calibrated: bool
    shares: np.ndarray
    together: np.ndarray
    magnitude: dict[str, np.ndarray]
    motors: np.ndarray
    effective_size: np.ndarray
    fans: list[Fan]


@lru_cache(maxsize=8)
def _program(config: ExplainedConfig, names: tuple[str, ...]):
    """One compiled function of a decision; its outputs do not depend on how many are asked for."""
    standard = names == FACTORS
    factors = [flight_factor(name) for name in names]

    def one(inputs: DecisionInputs, params: QuadrotorParams):
        if standard:
            band, weights, pool = influence_band(inputs, params, config)
        else:
            weights, pool = ask_weights(inputs, factors, params, config)
            draws = bootstrap_influences(jax.random.fold_in(inputs.key, 1), weights, OWN_RESAMPLES)
            band = quantile_band(influences(weights), draws)
        game = total_variation(weights, weights[0])
        model = explained_planner(params, lissajous, config).model
        pwm = motor_pwm(model.command(inputs.body, inputs.time, pool), inputs.body.rates[:, None], params).T
        thrust = model.added_thrust(pool)
        key = jax.random.fold_in(inputs.key, 3)
        full = 2 ** len(names) - 1
        less = jnp.stack([weights[full & ~(1 << i)] for i in range(len(names))])
        sizes = jax.lax.map(
            lambda q: jnp.stack([debiased_magnitude(key, x, weights[full], q)[0] for x in (thrust, pwm)]), less
        )
        size = 1 / jnp.sum(weights[-1] ** 2)
        return band, shapley(game), game[-1], sizes, mean_parts(weights, pwm), size

    return jax.jit(one)


@lru_cache(maxsize=8)
def _fan_program(config: ExplainedConfig, names: tuple[str, ...]):
    factors = [flight_factor(name) for name in names]

    @jax.jit
    def fan(inputs: DecisionInputs, params: QuadrotorParams):
        planner = explained_planner(params, lissajous, config)
        weights, pool = ask_weights(inputs, factors, params, config)
        places = (jnp.arange(FAN_SIZE) + 0.5) / FAN_SIZE
        full = 2 ** len(names) - 1
        chosen = []
        for mask in (full, *(full & ~(1 << i) for i in range(len(names)))):
            rows = jnp.minimum(jnp.searchsorted(jnp.cumsum(weights[mask]), places), weights.shape[1] - 1)
            chosen.append(pool[rows])
        theta = inputs.belief.mean[:, None]
        near = planner.model.near_path(inputs.forest, inputs.time)
        flown = planner.model.paths(inputs.body, inputs.time, theta, jnp.concatenate(chosen), near)[:, :, 0]
        return flown.reshape(*flown.shape[:2], len(chosen), FAN_SIZE).transpose(2, 0, 1, 3)

    return fan


def _calibrated(log: FlightLog, names: tuple[str, ...], band: Band) -> tuple[Band, bool]:
    """Stretch the bands where the calibration was made for this planner and these factors."""
    found = load_calibration()
    same = found is not None and names == FACTORS and _plain(found["planner"]) == _plain(log.config)
    if not same:
        clipped = Band(band.value, np.clip(band.low, 0, 1), np.clip(band.high, 0, 1))
        return clipped, False
    assert found is not None
    columns = [
        calibrated_band(Band(*(np.asarray(x)[:, i] for x in band)), found["stretch"][name])
        for i, name in enumerate(names)
    ]
    return Band(*(np.stack([np.asarray(c[k]) for c in columns], 1) for k in range(3))), True


def _plain(config: Any) -> list[Any]:
    """The planner's settings as a list of numbers, from a NamedTuple or from JSON."""
    values = list(config.values()) if isinstance(config, dict) else list(config)
    flat: list[Any] = []
    for value in values:
        flat += _plain(value) if isinstance(value, dict | list | tuple) else [round(float(value), 9)]
    return flat


def explain_log(log: FlightLog, names: Sequence[str] = FACTORS, every: int = 5, num_fans: int = 8) -> FlightExplanation:
    """Explain every `every`-th decision of a record by the factors named; fans at instants spread over the flight."""
    if every < 1:
        raise InputError(f"every={every} must be >= 1.")
    names = tuple(names)
    for name in names:
        flight_factor(name)
    chosen = log.decisions[::every]
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), log.params)
    program = _program(log.config, names)
    rows = [jax.device_get(program(jax.tree.map(jnp.asarray, d.inputs), params)) for d in chosen]
    band, shares, together, sizes, motors, size = jax.tree.map(lambda *x: np.stack(x), *rows)
    band, calibrated = _calibrated(log, names, band)
    fan_program = _fan_program(log.config, names)
    fans = []
    for place in sorted({int(i) for i in np.linspace(0, len(chosen) - 1, min(num_fans, len(chosen)))}):
        paths = np.asarray(fan_program(jax.tree.map(jnp.asarray, chosen[place].inputs), params))
        kinds = ("as it was", *(f"without {name}" for name in names))
        fans.append(
            Fan(place, {k: np.round(p[::2].transpose(2, 0, 1), 3).tolist() for k, p in zip(kinds, paths, strict=True)})
        )
    return FlightExplanation(
        names=names,
        numbers=np.array([d.number for d in chosen]),
        time=np.array([float(d.inputs.time) for d in chosen]),
        influence=Band(*(np.asarray(x) for x in band)),
        calibrated=calibrated,
        shares=shares,
        together=together,
        magnitude={"N": sizes[:, :, 0], "us": sizes[:, :, 1]},
        motors=motors,
        effective_size=size,
        fans=fans,
    )
