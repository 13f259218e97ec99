"""Steps around what has changed: those of the whole ring there, none elsewhere, and the same end of an inference."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.assimilation import engine as engines
from awavo.assimilation.assimilate import AssimilationState, Posterior, assimilate
from awavo.assimilation.engine import Engine, Settings, System, compile_engine, make_data, make_engine, seconds_later
from awavo.assimilation.lattice import make_lattice
from awavo.assimilation.modes import SearchSettings
from awavo.assimilation.nearby import Nearby
from awavo.tasks.lorenz96 import lorenz96_system, twin_experiment

SITES, TIMES = 1003, 4  # patches of 15 and of 16 sites


@pytest.fixture
def all_rings_are_long(monkeypatch):
    monkeypatch.setattr(engines, "LONG", {jax.default_backend(): 0})


@pytest.fixture(scope="module")
def problem():
    """A ring off its solution, in double precision, and its engine."""
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(engines, "LONG", {jax.default_backend(): 0})
        twin = twin_experiment(SITES, seed=1)
        settings = Settings(dtype="float64")
        system = System(**lorenz96_system(SITES))
        data = make_data(system, twin.observed[:TIMES], 1.0, settings)
        x = twin.truth[: TIMES + 1] + 0.3 * np.random.default_rng(0).standard_normal((TIMES + 1, SITES))
        engine, _ = compile_engine(make_engine(system, TIMES, settings), data, system.theta, search_later=True)
        return engine, data, jnp.asarray(x), jnp.asarray(system.theta)


@pytest.mark.parametrize("joined", [0.0, 1.0])
def test_around_what_changed_a_step_is_that_of_the_whole_ring_and_elsewhere_none(problem, joined):
    engine, data, x, theta = problem
    changed = np.zeros(SITES, bool)
    changed[[1, 560]] = True
    near = engine.nearby.choose(changed)
    assert int(near.chunks) == 2
    decided = np.zeros(SITES, bool)
    for number in np.asarray(near.rows)[:2].ravel():
        decided[engine.lattice.patch_site[number][engine.lattice.core[number] > 0]] = True
    # The ring is closed, and a patch's width around each changed site is decided.
    assert decided[[SITES - 31, 0, 33, 528, 592]].all()
    assert not decided[[SITES - 60, 70, 500, 640]].any()
    with jax.enable_x64(True):
        q, kind = jnp.asarray(0.03), jnp.asarray(joined)
        whole = np.asarray(engine.advance(data, x, theta, q, kind)[0]) - np.asarray(x)
        here = np.asarray(engine.nearby.advance(data, x, theta, q, kind, near)) - np.asarray(x)
    assert np.abs(whole[:, decided]).max() > 0.5
    np.testing.assert_allclose(here[:, decided], whole[:, decided], atol=1e-9)
    assert (here[:, ~decided] == 0).all()
    assert seconds_later(engine) > 0  # compiled when it was first used


def test_where_nothing_changed_no_step_is_taken_and_where_much_did_all_take_it(problem):
    engine, data, x, theta = problem
    none = engine.nearby.choose(np.zeros(SITES, bool))
    assert int(none.chunks) == 0
    with jax.enable_x64(True):
        stayed = engine.nearby.advance(data, x, theta, jnp.asarray(0.03), jnp.asarray(0.0), none)
    np.testing.assert_array_equal(stayed, x)
    few, many = np.zeros(SITES, bool), np.zeros(SITES, bool)
    few[:100] = many[:200] = True
    assert engine.nearby.choose(few).rows.shape == none.rows.shape  # one program for both
    assert engine.nearby.choose(many) is None


@pytest.mark.parametrize(
    ("fields", "options", "nearby"),
    [
        (lorenz96_system(7_000), {}, True),
        (lorenz96_system(6_999), {}, False),
        (lorenz96_system(7_000), {"infer_theta": True}, False),
        (lorenz96_system(7_000) | {"layout": "lattice"}, {}, False),
        (
            {"shape": (84, 84), "flow": lambda x, theta: 0.9 * x, "theta": np.zeros(1), "reach": ((0, 0), (0, 0))},
            {"core": 4, "margin": 1},
            False,
        ),
    ],
    ids=["long ring", "shorter", "parameters", "lattice", "grid"],
)
def test_only_long_rings_whose_parameters_are_known_are_advanced_in_places(fields, options, nearby, monkeypatch):
    monkeypatch.setattr(engines, "LONG", {jax.default_backend(): engines.LONG["cpu"]})
    assert (make_engine(System(**fields), 4, Settings(**options)).nearby is not None) == nearby


@pytest.mark.usefixtures("all_rings_are_long")
def test_a_region_found_again_ends_as_where_the_whole_ring_is_advanced():
    twin, times = twin_experiment(SITES, seed=3), 16
    search = SearchSettings(rounds=2, starts=(3,), anneal=(2.0, 0.5, 0.1), threshold=4.0, certain=4.0)
    settings, system = Settings(search=search, num_draws=2), System(**lorenz96_system(SITES))
    data, engine = make_data(system, twin.observed[:times], 1.0, settings), make_engine(system, times, settings)
    theta, truth = jnp.array([8.0]), twin.truth[: times + 1]
    x = jnp.asarray(truth, jnp.float32)
    for joined in (0.0,) * 6 + (1.0,) * 6:
        x, _ = engine.advance(data, x, theta, jnp.asarray(0.01), jnp.asarray(joined))
    broken = x.at[:, 300:312].multiply(-1.0)
    # As after a first search, in which the rest has settled.
    stage = len(settings.anneal) + settings.polish + search.rounds + 1
    state = AssimilationState(broken, theta, stage, np.zeros(SITES, np.int32), np.zeros(SITES, bool))
    taken, nearby = [], engine.nearby
    assert nearby is not None

    def counted(*arguments):
        taken.append(int(arguments[-1].chunks))
        return nearby.advance(*arguments)

    def refused(*_):
        raise AssertionError("the whole ring was advanced")

    near = engine._replace(advance=refused, nearby=nearby._replace(advance=counted))
    posterior = list(assimilate(near, data, state))[-1][0]
    whole = list(assimilate(engine._replace(nearby=None), data, state._replace(changed=None)))[-1][0]
    assert isinstance(posterior, Posterior)
    assert isinstance(whole, Posterior)
    assert len(taken) >= 12  # two in a round at least, ten of the tightening
    errors = [np.sqrt(np.mean((mean - truth) ** 2)) for mean in (posterior.mean, whole.mean, broken)]
    assert errors[0] == pytest.approx(errors[1], abs=1e-3)
    assert errors[2] > 2 * errors[1]
    assert (np.abs(posterior.mean - whole.mean)[:, 260:350] < 0.1 * whole.std[:, 260:350]).all()
    np.testing.assert_array_equal(posterior.mean[:, 500:], x[:, 500:])


def test_what_is_tightened_again_is_what_was_searched_since():
    """The first search ends with the whole ring, one that follows it with what it searched, resumed or not."""
    sites, told = 2000, []
    cost = np.full(sites, 32.0)
    cost[1000] = 40 * 32
    settings = Settings(search=SearchSettings(rounds=1, starts=(1,), slots=64))
    lattice = make_lattice((sites,), ((5, 10),))

    def whole(data, x, theta, q, joined):
        told.append("all")
        return x, theta

    def some(data, x, theta, q, joined, near):
        told.append(sorted(set(np.asarray(near.rows)[: int(near.chunks)].ravel().tolist())))
        return x

    search = lambda data, key, starts, x, theta, firsts: (x, np.zeros(len(firsts), bool))  # noqa: E731
    engine = Engine(lattice, settings, whole, lambda *_: (cost, np.full(sites, 32.0)), search, None,
                    nearby=Nearby(lattice, 80, 8, some))  # pyright: ignore # fmt: skip
    data = make_data(System(**lorenz96_system(sites)), twin_experiment(sites, seed=0).observed, 1.0, settings)
    stage = len(settings.anneal) + settings.polish
    state = AssimilationState(jnp.zeros((33, sites)), jnp.ones(1), stage, np.zeros(sites, np.int32))
    begun: Any = assimilate(engine, data, state)
    next(begun)
    around = [59, 60, 61, 62, 63, 64, 65]
    assert told == [around] * 2
    again, text = next(begun)
    assert text.endswith("searching again")
    assert told[2:] == ["all"] * 10
    assert not again.changed.any()
    searched, _ = next(begun)
    assert 25 < searched.changed.sum() < 60
    for follows in (begun, assimilate(engine, data, searched)):
        del told[:]
        next(follows)
        assert told == [around] * 10
