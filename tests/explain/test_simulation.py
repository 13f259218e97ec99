"""Explained flights, small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.errors import InputError, UnknownNameError
from awavo.explain.flight_factors import factor_weights, flight_factor
from awavo.explain.intervals import (
    PROBABILITY,
    Band,
    Stretch,
    calibrate,
    calibrated_band,
    conformal_stretch,
    quantile_band,
    stretch_band,
)
from awavo.explain.measures import influences
from awavo.explain.recording import decide_compiled
from awavo.explain.simulation import at_mark, explained_flight, flight_params

STEPS = 60


@pytest.fixture(scope="module")
def flights(config):
    """FT1 and FT3 with the wind zone at the start of the flight, FT0, and FT1 with the wind hidden."""
    play = jax.jit(lambda params, seen: explained_flight(0, params, config, STEPS, seen))
    calm = {"gust_sigma": 0.0, "gust_peak": 0.0}
    near = {"zone_radius": 50.0, "wind_y": 5.0, **calm}
    made = {"FT0": (flight_params("FT0"), 3), "FT1": (flight_params("FT1", **near), 3)}
    made |= {"FT3": (flight_params("FT3", **near), 3), "hidden": (flight_params("FT1", **near), 2)}

    def to_host(x):
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)

    return {name: jax.tree.map(to_host, play(*inputs)) for name, inputs in made.items()}


def test_wind_shows_where_there_is_wind(flights):
    settled = slice(20, None)
    assert flights["FT0"].influence[settled, 0].mean() < 0.1
    assert flights["FT1"].influence[settled, 0].mean() > 0.3
    assert flights["FT3"].influence[settled, 0].mean() > 0.3


def test_obstacles_are_a_dummy_where_there_are_none(flights):
    assert flights["FT0"].influence[:, 1].max() == 0.0
    assert flights["FT1"].influence[:, 1].max() == 0.0
    assert flights["FT3"].influence[:, 1].max() > 0.0


def test_shares_sum_and_parts_of_the_motors_do(flights):
    for trace in flights.values():
        np.testing.assert_allclose(trace.shares.sum(1), trace.together, atol=1e-6)
        weights = jax.nn.softmax(trace.log_likelihood, -1)
        rest = 0.5 * np.abs(weights[:, 2] - weights[:, 0]).sum(-1)
        assert np.all(trace.together <= trace.influence[:, 0] + rest + 1e-6)
    assert flights["FT3"].motors.sum(1).min() > 1000
    assert flights["FT3"].motors.sum(1).max() < 2000


def test_hiding_the_wind_makes_tracking_worse(flights):
    assert flights["hidden"].error[30:].mean() > 1.3 * flights["FT1"].error[30:].mean()


def test_the_same_draws_on_both_sides(flights, config):
    """With no force believed, removing the wind changes nothing but rounding, however uncertain it is."""
    trace = flights["FT3"]
    inputs = jax.tree.map(lambda x: x[30], trace.inputs)
    mean = jnp.asarray(inputs.belief.mean).at[:3].set(0.0)
    changed = inputs._replace(belief=inputs.belief._replace(mean=mean))
    decision = decide_compiled(config)(jax.tree.map(jnp.asarray, changed), flight_params("FT3"))
    assert float(influences(decision.weights)[0]) < 1e-5


def test_any_factor_can_be_asked_and_agrees_with_the_planner(flights, config):
    params = flight_params("FT3", zone_radius=50.0, wind_y=5.0)
    inputs = jax.tree.map(lambda x: jnp.asarray(x[30]), flights["FT3"].inputs)
    names = ["wind", "obstacles"]

    def ask(*names):
        factors = [flight_factor(n) for n in names]
        return jax.jit(lambda inputs: factor_weights(inputs, factors, params, config)[0])(inputs)

    weights = ask(*names)
    np.testing.assert_allclose(weights, decide_compiled(config)(inputs, params).weights, atol=2e-5)
    far = int(np.argmax(np.abs(inputs.forest.x)))
    own = ask(f"obstacle:{far}", "drag")
    assert float(influences(own)[0]) == 0.0
    with pytest.raises(UnknownNameError, match="Did you mean 'wind'"):
        flight_factor("wnd")


def test_marks_and_bad_physics():
    params = flight_params("FT3")
    times = jnp.linspace(0, 2 * np.pi / 0.6, 1000)
    chosen = np.asarray(at_mark(times, params))
    assert times[chosen].mean() == pytest.approx(np.pi / 2 / 0.6, rel=0.01)
    with pytest.raises(InputError, match="FT9"):
        flight_params("FT9")
    with pytest.raises(InputError, match="wings"):
        flight_params("FT1", wings=3.0)


def test_calibration_gives_the_level_on_fresh_cases():
    rng = np.random.default_rng(0)

    def cases(count):
        truth = rng.uniform(0.2, 0.8, count)
        value = truth + 0.05 * rng.normal(size=count) + 0.02
        return Band(value, value - 0.03, value + 0.03), truth

    stretch = conformal_stretch(*cases(2000))
    band, truth = cases(4000)
    held = stretch_band(band, stretch)
    assert np.mean((truth >= held.low) & (truth <= held.high)) == pytest.approx(0.9, abs=0.02)
    assert np.mean((truth >= band.low) & (truth <= band.high)) < 0.6
    scale = PROBABILITY._replace(edge=0.5)
    apart = calibrated_band(band, calibrate(*cases(2000), scale), scale)
    for part in (band.value < 0.5, band.value >= 0.5):
        assert np.mean(((truth >= apart.low) & (truth <= apart.high))[part]) == pytest.approx(0.9, abs=0.03)
    with pytest.raises(InputError, match="too few"):
        conformal_stretch(*cases(10))


def test_a_band_reaches_zero_where_the_value_is_all_noise():
    draws = jnp.linspace(0.02, 0.12, 101)[:, None]
    band = quantile_band(jnp.array([0.04]), draws)
    assert float(band.low[0]) <= 0.0
    assert float(band.high[0]) > 0.1
    assert stretch_band(band, Stretch(0.0, 0.0)).low[0] == 0.0
