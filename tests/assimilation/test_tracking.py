"""The filter on rings: exact where a band holds everything, close where it does not, and awake to shocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.assimilation import MisfitError, System, make_filter, track, tracking
from awavo.errors import InputError
from awavo.tasks.lorenz96 import CLIMATE_MEAN, CLIMATE_STD, lorenz96_flow


@pytest.fixture
def trusting(monkeypatch):
    """A filter that believes its model, so that it can be compared with the textbook's."""
    monkeypatch.setattr(tracking, "NOISES", (0.0,))
    monkeypatch.setattr(tracking, "SURPRISING", 1e9)


def kalman(matrix, model, noise, prior, observed):
    """The textbook's filter and smoother, dense."""
    num = len(matrix)
    mean, cov, filtered, ahead = np.zeros(num), np.eye(num) * prior**2, [], []
    for row in observed:
        mean, cov = matrix @ mean, matrix @ cov @ matrix.T + np.eye(num) * model**2
        ahead.append((mean, cov))
        seen = np.flatnonzero(np.isfinite(row))
        gain = cov[:, seen] @ np.linalg.inv(cov[np.ix_(seen, seen)] + np.eye(len(seen)) * noise**2)
        mean, cov = mean + gain @ (row[seen] - mean[seen]), cov - gain @ cov[seen]
        filtered.append((mean, cov))
    smoothed = [filtered[-1]]
    for (m, c), (fm, fc) in zip(filtered[-2::-1], ahead[:0:-1], strict=True):
        gain = c @ matrix.T @ np.linalg.inv(fc)
        smoothed.append((m + gain @ (smoothed[-1][0] - fm), c + gain @ (smoothed[-1][1] - fc) @ gain.T))
    return [
        np.array([(m, np.sqrt(np.diag(c))) for m, c in states]).transpose(1, 0, 2)
        for states in (filtered, smoothed[::-1])
    ]


def ring_system(num, own, neighbour, model, prior=2.0):
    return System(
        (num,), lambda x, theta: own * x + neighbour * jnp.roll(x, 1, -1), prior_std=prior, model_noise=model,
        layout="ring", reach=((0, 1),),
    )  # fmt: skip


def simulated(num, own, neighbour, model, noise, times, seed=0):
    rng = np.random.default_rng(seed)
    matrix = own * np.eye(num) + neighbour * np.roll(np.eye(num), 1, 0)
    x, truth, observed = 2 * rng.standard_normal(num), [], []
    for _ in range(times):
        x = matrix @ x + model * rng.standard_normal(num)
        truth.append(x)
        observed.append(np.where(rng.random(num) < 0.7, x + noise * rng.standard_normal(num), np.nan))
    return matrix, np.array(truth), np.array(observed)


@pytest.mark.parametrize("num", [40, 150])
def test_sites_apart_are_scalar_kalman_filters(trusting, num):
    matrix, _, observed = simulated(num, 0.9, 0.0, 0.3, 0.5, 6)
    filtered, smoothed = kalman(matrix, 0.3, 0.5, 2.0, observed)
    found = track(ring_system(num, 0.9, 0.0, 0.3), observed, 0.5, smooth=True)
    np.testing.assert_allclose(found.mean, filtered[0], atol=2e-5)
    np.testing.assert_allclose(found.std, filtered[1], rtol=1e-4)
    np.testing.assert_allclose(found.smoothed, smoothed[0], atol=5e-5)
    np.testing.assert_allclose(found.smoothed_std, smoothed[1], rtol=1e-3)


@pytest.mark.parametrize("num", [40, 150])
def test_neighbours_that_drift_are_nearly_the_dense_filter(trusting, num):
    matrix, truth, observed = simulated(num, 0.6, 0.35, 0.3, 0.5, 8)
    filtered, smoothed = kalman(matrix, 0.3, 0.5, 2.0, observed)
    found = track(ring_system(num, 0.6, 0.35, 0.3), observed, 0.5, smooth=True)
    # The taper of covariances is all that differs, also over the ring's seam.
    apart = (found.mean - filtered[0]) / filtered[1]
    assert np.sqrt(np.mean(apart**2)) < 0.05
    assert np.abs(apart).max() < 0.25
    np.testing.assert_allclose(found.std, filtered[1], rtol=0.08)
    assert np.sqrt(np.mean(((found.smoothed - smoothed[0]) / smoothed[1]) ** 2)) < 0.06
    np.testing.assert_allclose(found.smoothed_std, smoothed[1], rtol=0.08)
    error = np.sqrt(np.mean((np.stack([found.mean, found.smoothed]) - truth) ** 2, (1, 2)))
    assert error[1] < error[0]


def lorenz(num, **fields):
    given = dict(layout="ring", reach=((7, 10),), observe=lambda x, theta: jnp.arctan(x)) | fields
    return System((num,), lorenz96_flow(10, 0.01), np.array([8.0]), CLIMATE_MEAN, CLIMATE_STD, **given)


@pytest.fixture(scope="module")
def shocked():
    """Lorenz-96 seen through an arctan, with a shock before the fifteenth observation."""
    rng = np.random.default_rng(1)
    flow = jax.jit(lorenz96_flow(10, 0.01))
    x, truth, observed = jnp.asarray(8 + rng.standard_normal(160), jnp.float32), [], []
    for number in range(120):
        x = flow(x, jnp.array([8.0]))
        if number == 114:
            x = x * jnp.asarray(1 + 0.5 * rng.standard_normal(160), jnp.float32)
        if number >= 100:
            truth.append(np.asarray(x))
            observed.append(np.arctan(truth[-1]) + 0.05 * rng.standard_normal(160))
    return np.array(truth), np.array(observed)


@pytest.fixture(scope="module")
def followed(shocked):
    return track(lorenz(160), shocked[1], 0.05, smooth=True)


def test_a_shock_is_seen_when_it_comes_and_left_behind(shocked, followed):
    error = np.sqrt(np.mean((followed.mean - shocked[0]) ** 2, 1))
    assert error[13] < 0.2  # an arctan hardly tells 6 from 8: the dynamics do
    assert followed.noise[14] >= 0.2
    assert followed.multiplicative[14]
    assert followed.noise[5:14].max() <= 0.1
    assert error[14] > 2 * error[13]
    assert error[19] < 0.5 * error[14]
    assert np.mean(np.abs(followed.mean - shocked[0]) < 1.645 * followed.std) == pytest.approx(0.9, abs=0.06)


def test_later_observations_help(shocked, followed):
    error = [np.sqrt(np.mean((mean - shocked[0]) ** 2)) for mean in (followed.mean, followed.smoothed)]
    assert error[1] < 0.7 * error[0]
    assert (followed.smoothed_std <= followed.std * 1.001).all()


def test_a_filter_that_cannot_adapt_loses_its_way(shocked, trusting):
    blind = track(lorenz(160), shocked[1], 0.05, accept_misfit=True)
    error = np.sqrt(np.mean((blind.mean - shocked[0]) ** 2, 1))
    assert error[19] > 1.0


@pytest.mark.parametrize(("noise", "verdict"), [(0.005, "problems"), (0.5, "notes"), (0.05, "")])
def test_noise_that_is_misstated_is_told(shocked, noise, verdict):
    """With understated noise the model's errors take the blame, and intervals of a tenth hold nothing."""
    observed = shocked[1][:12]
    if verdict == "problems":
        with pytest.raises(MisfitError, match="the noise is understated"):
            track(lorenz(160), observed, noise)
    fit = track(lorenz(160), observed, noise, accept_misfit=True).fit
    assert {name for name in ("problems", "notes") if getattr(fit, name)} == {verdict} - {""}
    assert fit.good == (verdict != "problems")


def test_groups_of_windows_change_nothing(shocked, followed):
    apart = track(lorenz(160), shocked[1][:6], 0.05, memory_mb=0.2)
    np.testing.assert_allclose(apart.mean, followed.mean[:6], atol=1e-3)


def test_without_observations_nothing_is_learnt(trusting):
    steps = make_filter(lorenz(160), 0.05)
    ahead = steps.forecast(steps.first)
    analysis = steps.analyse(ahead, jnp.full(160, jnp.nan))
    np.testing.assert_allclose(analysis.state.mean, ahead.mean, atol=1e-5)
    # Covariances are tapered once more, variances are not.
    np.testing.assert_allclose(analysis.state.band[:, tracking.BAND], ahead.band[:, tracking.BAND], rtol=1e-5)


@pytest.mark.parametrize(
    ("system", "noise", "told"),
    [
        (lorenz(160, layout="global"), 0.05, "follows a ring"),
        (lorenz(160)._replace(flow=lambda x, theta, begin: x), 0.05, "without times"),
        (lorenz(160), 0.0, "noise=0.0"),
        (lorenz(160), np.ones(160), "noise has 160 numbers"),
        (lorenz(160), np.inf, "noise=inf"),
        (lorenz(20), 0.05, "shorter than 25"),
        (lorenz(160, observe=lambda x, theta: x + 0.1 * jnp.roll(x, 2)), 0.05, "hangs on others"),
    ],
)
@pytest.mark.bad_input
def test_what_it_cannot_follow_is_refused(system, noise, told):
    with pytest.raises(InputError, match=told):
        make_filter(system, noise)


def test_rows_of_another_shape_and_none_at_all_are_refused():
    with pytest.raises(InputError, match="row 0 of the observations has shape"):
        track(lorenz(160), np.zeros((3, 20)), 0.05)
    with pytest.raises(InputError, match="row 1 of the observations holds infinite values"):
        track(lorenz(160), np.array([np.zeros(160), np.full(160, np.inf)]), 0.05)
    with pytest.raises(InputError, match="no observations"):
        track(lorenz(160), np.zeros((0, 160)), 0.05)
