"""Whole inferences on small rings and grids: recovery, modes, stopping and resuming, bad observations."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.assimilation.assimilate import (
    AssimilationState,
    Posterior,
    _advance,
    _explore,
    _posterior,
    assimilate,
    first_state,
)
from awavo.assimilation.engine import Engine, Settings, System, make_data, make_engine
from awavo.assimilation.modes import (
    FEW,
    SearchSettings,
    local_chi2,
    segments_around,
    segments_at_once,
)
from awavo.assimilation.observations import check_observations, longest_gap
from awavo.assimilation.trajectories import Data, Step
from awavo.errors import InputError
from awavo.tasks.lorenz96 import lorenz96_flow, lorenz96_system, twin_experiment

SEARCH = SearchSettings(rounds=1, starts=(5,), slots=5, anneal=(1.0, 0.3, 0.1), polish=2)
SETTINGS = Settings(anneal=(2.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.06), polish=2, num_draws=8, infer_theta=True, search=SEARCH)


@pytest.fixture(scope="module")
def ring():
    """A ring of 20 sites seen at ten times, and its engine."""
    twin = twin_experiment(20, seed=3, unobserved=0.25)
    system = System(**lorenz96_system(20, forcing=7.5))
    data = make_data(system, twin.observed[:10], 1.0, SETTINGS)
    return twin, system, data, make_engine(system, 10, SETTINGS)


def test_hidden_states_and_the_forcing_are_recovered(ring):
    twin, system, data, engine = ring
    *states, (posterior, _) = assimilate(engine, data, first_state(data, system.theta))
    assert all(isinstance(s, AssimilationState) for s, _ in states)
    assert isinstance(posterior, Posterior)
    error = (posterior.mean - twin.truth[:11])[4:, ~twin.seen]
    climate = np.sqrt(np.mean((twin.truth[4:11, ~twin.seen] - 2.34) ** 2))
    assert np.sqrt(np.mean(error**2)) < 0.3 * climate
    theta_std = float(np.sqrt(posterior.theta_cov[0, 0]))
    assert 0.005 < theta_std < 0.5
    assert abs(posterior.theta[0] - 8.0) < 4 * theta_std
    inside = np.abs(posterior.mean - twin.truth[:11]) < 1.645 * posterior.std
    assert 0.75 < inside.mean() < 1.0
    assert np.median(posterior.draws.std(0, ddof=1) / posterior.std) == pytest.approx(1.0, abs=0.15)


def test_stopped_anywhere_it_ends_the_same(ring):
    _, system, data, engine = ring
    whole = list(assimilate(engine, data, first_state(data, system.theta)))
    for stop in (2, len(whole) - 2):
        kept = whole[stop][0]
        arrays = AssimilationState(
            jnp.asarray(np.asarray(kept.x)), jnp.asarray(np.asarray(kept.theta)), kept.stage, kept.tries
        )
        rest = list(assimilate(engine, data, arrays))
        assert len(rest) == len(whole) - stop - 1
        for a, b in zip(rest[-1][0], whole[-1][0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_region_in_a_wrong_mode_is_found_again(ring):
    """A broken stretch of the solution is flagged, and the search puts back one that fits."""
    twin, _, data, engine = ring
    broken = jnp.asarray(twin.truth[:11], jnp.float32).at[:, 2:16].multiply(-1.0)
    cost, count = engine.chi2(data, broken, jnp.array([8.0]))
    assert local_chi2(np.asarray(cost), np.asarray(count), 5).max() > 10
    stage = len(SETTINGS.anneal) + SETTINGS.polish
    start = AssimilationState(broken, jnp.array([8.0]), stage, np.zeros(20, np.int32))
    (_, found), (posterior, end) = assimilate(engine, data, start)
    # Without what the search found, the next stage says that it searches again.
    assert (found, end) == ("modes: 1 regions, 1 better", "posterior")
    assert posterior.chi2.max() < 2
    assert np.sqrt(np.mean((posterior.mean - twin.truth[:11])[3:] ** 2)) < 1.0


def test_intervals_are_the_priors_where_what_was_seen_cannot_fit(ring):
    twin, system, _, engine = ring
    rng = np.random.default_rng(0)
    spoilt = np.array(twin.observed[:10])
    spoilt[:, :3] = np.where(np.isfinite(spoilt[:, :3]), 30 * rng.standard_normal((10, 3)), np.nan)
    data = make_data(system, spoilt, 1.0, SETTINGS)
    posterior = list(assimilate(engine, data, first_state(data, system.theta)))[-1][0]
    assert not posterior.believed[:3].any()
    assert (posterior.std[:, ~posterior.believed] >= 3.64 * 0.999).all()


def test_a_grid_of_a_users_own():
    """Coupled damped oscillating sites on a 6 x 6 torus, half of them observed."""

    def flow(x, theta):
        near = sum(jnp.roll(x, s, a) for s in (1, -1) for a in (-1, -2)) / 4
        return x + 0.3 * (jnp.sin(2 * near) - 0.5 * x) + theta[0]

    rng = np.random.default_rng(0)
    states = [rng.normal(size=(6, 6)) * 1.5]
    for _ in range(8):
        states.append(np.asarray(flow(jnp.asarray(states[-1]), jnp.array([0.2]))))
    truth = np.stack(states).reshape(9, 36)
    observed = truth[1:] + 0.1 * rng.normal(size=(8, 36))
    observed[:, rng.permutation(36)[:18]] = np.nan
    system = System((6, 6), flow, np.array([0.2]), 0.0, 1.5)
    settings = Settings(anneal=(0.5, 0.1), polish=2, num_draws=2, model_noise=0.01)
    data, engine = make_data(system, observed, 0.1, settings), make_engine(system, 8, settings)
    assert engine.search is None
    *_, (posterior, _) = assimilate(engine, data, first_state(data, system.theta))
    hidden = ~np.isfinite(observed[0])
    error = (posterior.mean - truth)[:, hidden]
    assert np.sqrt(np.mean(error**2)) < 0.6 * np.std(truth[:, hidden])
    assert 0.8 < np.mean(np.abs(error) < 1.645 * posterior.std[:, hidden]) < 0.98
    assert posterior.std[:, hidden].mean() > 2 * posterior.std[:, ~hidden].mean()


def test_segments_cover_what_is_bad():
    bad = np.zeros(300, bool)
    bad[[298, 299, 0, 1, 150, 151, 190]] = True
    firsts = segments_around(bad, 56, 28)
    for place in np.flatnonzero(bad):
        assert any(10 <= (place - first) % 300 < 46 for first in firsts)
    assert len(firsts) == 3
    assert len(segments_around(np.zeros(300, bool), 56, 28)) == 0


@pytest.mark.parametrize(("num", "starts", "slots"), [(1, 12, 2048), (130, 12, 2048), (5000, 2, 2048), (9, 8, 4)])
def test_places_follow_the_segments_that_are_left(num, starts, slots):
    chunks = list(segments_at_once(num, starts, slots))
    begins, counts = zip(*chunks, strict=True)
    assert begins == tuple(np.cumsum([0, *counts[:-1]]))  # every segment once, in order
    assert sum(counts[:-1]) < num <= sum(counts)
    assert set(counts) <= {slots, min(FEW, slots)}
    assert all(count == min(FEW, slots) or (num - begin) * starts > 3 * FEW for begin, count in chunks)


def test_only_what_is_near_a_misfit_is_searched_again():
    """On a long ring each site exceeds the first threshold by a little, and one place by far."""
    cost = np.full(1000, 1.3 * 32)
    cost[500] = 40 * 32
    searched = []

    def search(data, key, starts, x, theta, firsts):
        searched.append(np.unique(np.asarray(firsts)))
        return x, np.zeros(len(firsts), bool)

    settings = Settings(search=SearchSettings(rounds=1, starts=(1,), slots=64))
    keep = lambda data, x, theta, q, joined: (x, theta)  # noqa: E731
    engine = Engine(None, settings, keep, lambda *_: (cost, np.full(1000, 32.0)), search, None)  # pyright: ignore
    twin = twin_experiment(1000, seed=0)
    data = make_data(System(**lorenz96_system(1000)), twin.observed, 1.0, settings)
    stage = len(settings.anneal) + settings.polish
    start = AssimilationState(jnp.zeros((33, 1000)), jnp.ones(1), stage, np.zeros(1000, np.int32))
    told = [text for _, text in itertools.islice(assimilate(engine, data, start), 3)]
    assert told[0].startswith("modes: 50 regions")
    assert told[1].endswith("searching again")
    assert told[2].startswith("modes: 6 regions")
    assert all(400 < first + 24 < 600 for first in searched[-1])


@pytest.mark.parametrize(("segments", "starts"), [(16, 12), (17, 2)])
def test_few_segments_searched_again_get_the_most_starts(segments, starts):
    tried = []

    def search(data, key, tries, x, theta, firsts):
        tried.append(int(tries))
        return x, np.zeros(len(firsts), bool)

    settings = Settings(search=SearchSettings(slots=segments))
    engine = Engine(None, settings, None, None, search, None)  # pyright: ignore[reportArgumentType]
    again = len(settings.anneal) + settings.polish + settings.search.rounds + 1
    blank = jnp.zeros((3, 2000))
    data = Data(*(blank,) * 5)
    _explore(engine, data, again, blank, jnp.ones(1), np.arange(0, 100 * segments, 100))
    assert tried == [starts]


@pytest.mark.parametrize(("swinging", "back"), [(0, 0), (1, 75), (400, 20_000)])
def test_where_joined_steps_swing_what_patches_alone_found_stays(swinging, back):
    sites, first = 20_000, 200

    def advance(data, x, theta, q, joined):
        number = jnp.arange(sites)
        return x + joined * jnp.where((number >= first) & (number < first + swinging), 9.0, 0.1), theta

    def chi2(data, x, theta):
        return 3 * jnp.sum(x**2, 0), jnp.full(sites, 3)

    engine = Engine(None, Settings(), advance, chi2, None, None)  # pyright: ignore[reportArgumentType]
    data = Data(*(jnp.ones((1, sites)),) * 5)
    x, _ = _advance(engine, data, jnp.zeros((3, sites)), jnp.ones(1), 0.1, 1, 2)
    kept = np.asarray(x[0] == 0)
    assert kept.sum() == back
    np.testing.assert_allclose(x[0][~kept], 0.2, rtol=1e-6)


def test_a_patch_whose_spread_breaks_down_leaves_the_others():
    times, sites, broken = 3, 6, np.arange(6) == 2
    spoilt = jnp.where(broken, jnp.nan, 0.25)
    end = Step(jnp.full((times, sites), 7.0), jnp.zeros(1), jnp.broadcast_to(spoilt, (times, sites)), jnp.eye(1),
               jnp.broadcast_to(spoilt, (2, times, sites)), jnp.zeros((2, 1)))  # fmt: skip
    engine = Engine(None, Settings(), None, None, None, None)  # pyright: ignore[reportArgumentType]
    data = Data(*(jnp.full((1, sites), 4.0),) * 5)
    x, good = jnp.ones((times, sites)), np.ones(sites, bool)
    found = _posterior(engine, data, x, jnp.ones(1), np.ones(sites), good, end)
    np.testing.assert_array_equal(found.believed, ~broken)
    np.testing.assert_array_equal(found.mean, x)  # where joined steps ended, not moved by patches alone
    np.testing.assert_array_equal(found.std, np.broadcast_to(np.where(broken, 2.0, 0.5), (times, sites)))
    np.testing.assert_array_equal(found.draws[0], np.broadcast_to(np.where(broken, 1.0, 1.25), (times, sites)))


@pytest.mark.parametrize(("places", "searches"), [((), 1), ((10, 500, 999), 3), ((1, 200, 400, 600, 800), 1)])
def test_many_regions_are_searched_again_once_a_few_more_often(places, searches):
    cost = np.full(1000, 32.0)
    cost[list(places or (500,))] = (40 if places else 5) * 32  # beyond chance, or perhaps not

    settings = Settings(search=SearchSettings(rounds=1, starts=(1,), slots=64))
    keep = lambda data, x, theta, q, joined: (x, theta)  # noqa: E731
    twin = twin_experiment(1000, seed=0)
    data = make_data(System(**lorenz96_system(1000)), twin.observed, 1.0, settings)
    blank = jnp.zeros((33, 1000))
    end = Step(blank, jnp.zeros(1), blank, jnp.zeros((1, 1)), blank[None], jnp.zeros((1, 1)))
    search = lambda data, key, starts, x, theta, firsts: (x, np.zeros(len(firsts), bool))  # noqa: E731
    ring, cost_of = SimpleNamespace(shape=(1000,)), lambda *_: (cost, np.full(1000, 32.0))
    engine = Engine(ring, settings, keep, cost_of, search, lambda *_: end)  # pyright: ignore
    stage = len(settings.anneal) + settings.polish
    start = AssimilationState(blank, jnp.ones(1), stage, np.zeros(1000, np.int32))
    told = [text for _, text in assimilate(engine, data, start)]
    assert sum(text.endswith("searching again") for text in told) == searches


@pytest.mark.parametrize(("shape", "doubted"), [((1000,), set(range(300, 313))), ((10, 100), set())])
def test_sites_of_a_ring_that_nothing_was_seen_around_are_not_believed(shape, doubted):
    observed = np.array(twin_experiment(1000, unobserved=0.0, seed=0).observed)
    observed[:, 300:313] = np.nan
    data = make_data(System(**lorenz96_system(1000)), observed, 1.0, Settings())
    blank = jnp.zeros((33, 1000))
    end = Step(blank, jnp.zeros(1), blank, jnp.zeros((1, 1)), blank[None], jnp.zeros((1, 1)))
    keep = lambda data, x, theta, q, joined: (x, theta)  # noqa: E731
    fits = lambda *_: (np.full(1000, 32.0), np.full(1000, 32.0))  # noqa: E731
    engine = Engine(SimpleNamespace(shape=shape), Settings(), keep, fits, None, lambda *_: end)  # pyright: ignore
    *_, (found, _) = assimilate(engine, data, AssimilationState(blank, jnp.ones(1), 0, np.zeros(1000, np.int32)))
    assert set(np.flatnonzero(~found.believed)) == doubted
    assert (found.std[:, sorted(doubted)] > 0).all()
    assert (found.std[:, found.believed] == 0).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((5, 19)), r"shape \[5, 19\], expected \[times, 20\]"),
        (np.zeros((1, 20)), "1 times of observation, at least 2"),
        (np.full((5, 20), np.nan), "every observation is NaN"),
        (np.full((5, 20), np.inf), "infinite: mark missing ones as NaN"),
        (np.where(np.arange(20) < 18, np.nan, np.zeros((5, 20))), r"18 sites in a row \(from site 0\).*at most 16"),
        (np.full((5, 20), "a"), "are not numbers"),
    ],
)
def test_bad_observations_are_refused_in_one_line(value, message):
    with pytest.raises(InputError, match=message):
        check_observations(value, (20,), 1.0)


def test_missing_observations_are_masked_and_gaps_wrap():
    value = np.zeros((4, 20))
    value[1, 3] = np.nan
    assert np.isnan(check_observations(value, (20,), 1.0)[1, 3])
    data = make_data(System(**lorenz96_system(20)), value, 0.5, SETTINGS)
    expected = np.full((4, 20), 4.0)
    expected[1, 3] = 0.0
    np.testing.assert_array_equal(data.weight, expected)
    assert np.isfinite(data.value).all()
    hidden = np.zeros(20, bool)
    hidden[[18, 19, 0, 1, 7]] = True
    assert longest_gap(hidden) == (18, 4)
    with pytest.raises(InputError, match="must be above 0"):
        check_observations(value, (20,), 0.0)


def test_double_precision_follows_the_setting():
    with jax.enable_x64(True):
        twin = twin_experiment(16, seed=0)
        system = System((16,), lorenz96_flow(5), np.array([8.0]), 2.34, 3.64, None, ((5, 10),))
        settings = SETTINGS._replace(dtype="float64", infer_theta=False)
        data = make_data(system, twin.observed[:3], 1.0, settings)
        state = first_state(data, system.theta)
        assert state.x.dtype == data.value.dtype == np.float64
