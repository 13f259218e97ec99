"""`infer` for any system: exact where the system is linear, built-in systems, and posteriors that must be refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.assimilation import MisfitError, System, infer, infer_particles, integrate
from awavo.assimilation.descent import make_descent
from awavo.assimilation.examples import EXAMPLES, make_example, pendulum
from awavo.assimilation.fit import check_fit
from awavo.assimilation.infer import Start, _descent, prepare
from awavo.assimilation.local import local_fit, local_settings, rescale
from awavo.assimilation.modes import believed_sites, unseen_holes
from awavo.assimilation.observations import check_observations, read_numbers
from awavo.assimilation.system import check_system, flat_flow
from awavo.errors import InputError

STEP = np.array([[0.9, 0.3, 0.0], [-0.2, 0.8, 0.1], [0.0, 0.4, 0.7]])
PUSH = np.array([0.5, -1.0, 0.2])
SEE = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]])


def linear_flow(x, theta, begin, end):
    """Linear in state and parameter, with a push that depends on the time and on how long it lasts."""
    return jnp.asarray(STEP) @ x + jnp.asarray(PUSH) * theta[0] + jnp.sin(begin) * (end - begin) + 0 * theta[1]


LINEAR = System(
    (3,), linear_flow, np.array([0.3, 7.0]), np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 0.5]),
    theta_std=np.array([0.8, 0.0]), observe=lambda x, theta, time: jnp.asarray(SEE) @ x + theta[0] * time * 0.1,
)  # fmt: skip
TIMES = np.array([0.0, 0.5, 1.0, 2.0, 2.5, 4.0])


def exact_posterior(observed, noise, model_noise):
    """Mean and covariance of (x_0, theta, errors of the model), mapped to all states, by plain linear algebra."""
    num = len(TIMES) - 1
    size = 4 + 3 * num
    maps, offsets = [np.eye(3, size)], [np.zeros(3)]
    for k in range(num):
        step = STEP @ maps[-1]
        step[:, 3] += PUSH
        step[:, 4 + 3 * k : 7 + 3 * k] += model_noise * np.eye(3)
        maps.append(step)
        offsets.append(STEP @ offsets[-1] + np.sin(TIMES[k]) * (TIMES[k + 1] - TIMES[k]))
    mean = np.concatenate([LINEAR.prior_mean, [0.3], np.zeros(3 * num)])
    precision = np.diag(np.concatenate([1 / LINEAR.prior_std**2, [1 / 0.8**2], np.ones(3 * num)]))
    push = precision @ mean
    for k, (row, spread) in enumerate(zip(observed, noise, strict=True)):
        shown = SEE @ maps[k]
        shown[:, 3] += 0.1 * TIMES[k]
        keep = np.isfinite(row)
        shown, weight = shown[keep], 1 / spread[keep] ** 2
        precision = precision + shown.T @ (weight[:, None] * shown)
        push = push + shown.T @ (weight * (row - SEE @ offsets[k])[keep])
    covariance = np.linalg.inv(precision)
    found = covariance @ push
    states = np.stack([m @ found + o for m, o in zip(maps, offsets, strict=True)])
    std = np.stack([np.sqrt(np.diag(m @ covariance @ m.T)) for m in maps])
    return states, std, found[3], np.sqrt(covariance[3, 3])


@pytest.mark.parametrize("model_noise", [0.3, 0.0])
def test_a_linear_system_gets_its_exact_posterior(model_noise):
    """State, parameter, times, operator and noise per observation at once, to double precision."""
    rng = np.random.default_rng(0)
    observed, noise = rng.normal(size=(6, 2)), rng.uniform(0.3, 1.5, (6, 2))
    observed[2, 0] = observed[4] = np.nan
    found = infer(
        LINEAR._replace(model_noise=model_noise), observed, noise, times=TIMES, num_draws=400, accept_misfit=True
    )
    states, std, theta, theta_std = exact_posterior(observed, noise, model_noise)
    np.testing.assert_allclose(found.mean, states, atol=1e-8)
    np.testing.assert_allclose(found.std, std, atol=1e-8)
    np.testing.assert_allclose([found.theta[0], found.theta_std[0]], [theta, theta_std], atol=1e-8)
    assert (found.theta[1], found.theta_std[1]) == (7.0, 0.0)
    np.testing.assert_allclose(found.draws.std(0) / std, 1.0, atol=0.2)
    # What was seen until the last time is all that was seen.
    np.testing.assert_allclose(found.filtered[-1], found.mean[-1], atol=1e-8)
    np.testing.assert_allclose(found.filtered_std[-1], found.std[-1], atol=1e-8)
    assert (found.filtered_std >= found.std - 1e-9).all()


def test_conjugate_gradients_give_the_same_posterior():
    """Without a matrix: the same mean; the spread from draws, widened for their number."""
    rng = np.random.default_rng(1)
    observed, noise = rng.normal(size=(6, 2)), rng.uniform(0.3, 1.5, (6, 2))
    observed[2, 0] = np.nan
    found = infer(
        LINEAR._replace(model_noise=0.3), observed, noise, times=TIMES, num_draws=400, accept_misfit=True,
        engine="conjugate gradients", most_starts=1, fewest_starts=1,
    )  # fmt: skip
    states, std, theta, theta_std = exact_posterior(observed, noise, 0.3)
    np.testing.assert_allclose(found.mean, states, atol=1e-3)
    np.testing.assert_allclose(found.std / std, 1.015, atol=0.15)
    assert found.theta[0] == pytest.approx(theta, abs=1e-3)
    assert found.theta_std[0] == pytest.approx(theta_std, rel=0.15)


def test_a_step_of_conjugate_gradients_ends_where_matrices_do():
    """A long chain seen through little noise: what is left is far below what the posterior leaves open."""
    rng, x, rows = np.random.default_rng(0), 5 * np.ones(3), []
    for _ in range(40):
        x = STEP @ x + 0.3 * rng.standard_normal(3)
        rows.append(x[:1] + 0.02 * rng.standard_normal(1))
    system = System(
        (3,), lambda x, theta: jnp.asarray(STEP) @ x, prior_std=5.0, model_noise=0.3, observe=lambda x, theta: x[:1]
    )
    numbers = prepare(system, np.array(rows), 0.02)
    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, numbers), jax.random.key(0), jnp.zeros((41, 3)), jnp.zeros(0)
        exact, made = (make_descent(system, 4, dense).finish(*given)[0] for dense in (True, False))
        off = np.abs(made.delta[..., 0] - exact.delta[..., 0]) / np.sqrt(exact.variance)
    assert off.max() < 0.02


@pytest.fixture(scope="module")
def swing():
    """A pendulum with unknown friction, and what is inferred of it."""
    made = make_example("pendulum", 101)
    options = {"times": made.times[1:], "start": 0.0}
    return made, options, infer(made.system, made.observed, made.noise, **options)


def test_friction_and_the_unseen_rate_of_a_pendulum(swing):
    made, options, found = swing
    assert found.fit.good
    assert abs(found.theta[0] - made.theta[0]) < 4 * found.theta_std[0] < 0.2
    error = (found.mean - made.truth)[1:]
    assert np.abs(error / found.std[1:]).max() < 4
    truth_started = infer(made.system, made.observed, made.noise, begin_at=(made.truth, made.theta), **options)
    np.testing.assert_allclose(truth_started.mean, found.mean, atol=1e-4)
    # The model holds without noise: each state is where the one before leads.
    flow = flat_flow(made.system)
    ahead = [flow(jnp.asarray(found.mean[k]), jnp.asarray(found.theta), 0.0, 0.1) for k in (0, 20)]
    np.testing.assert_allclose(np.stack(ahead), found.mean[[1, 21]], atol=1e-5)


def test_a_second_call_of_the_same_shape_compiles_nothing(swing):
    made, options, _ = swing
    programs = _descent(((2,), made.system.flow, made.system.observe, (0,), 1), 16, True)
    before = [p._cache_size() for p in programs]
    assert min(before) >= 1
    other = pendulum(np.random.default_rng(7))
    infer(other.system, other.observed, 2 * other.noise, accept_misfit=True, **options)
    assert [p._cache_size() for p in programs] == before


def test_what_does_not_fit_is_refused_with_a_remedy_or_marked(swing):
    made, options, _ = swing
    with pytest.raises(MisfitError, match=r"too large for the noise.*give model_noise") as caught:
        infer(made.system, made.observed, made.noise / 4, most_starts=1, **options)
    assert not caught.value.result.fit.good
    marked = infer(made.system, made.observed, 5 * made.noise, **options)
    assert "too small for the noise" in marked.fit.notes[0]
    lost = made.observed.copy()
    lost[20:24] += 3.0
    kept = infer(made.system, lost, made.noise, most_starts=1, accept_misfit=True, **options)
    assert not kept.fit.good
    assert kept.fit.worst > 5


def test_two_modes_are_told(monkeypatch):
    """Only the square of a number is seen: its sign is open, and particles hold both in their shares."""
    monkeypatch.setattr("awavo.assimilation.particles.NUM_SLICES", 2)  # all slices of a line are the same
    system = System((1,), lambda x, theta: x, prior_mean=0.1, prior_std=2.0, observe=lambda x, theta: x**2)
    found = infer_particles(system, np.full((4, 1), 1.0), 0.2, num_candidates=1024, most_starts=8)
    one = found.gaussian
    assert len(one.modes) == 2
    assert not one.fit.good
    assert "another mode fits nearly as well" in one.fit.problems[-1]
    # The prior's mean of 0.1 favours the right one by exp(2 * 0.1 / 4).
    right = 1 / (1 + np.exp(-0.05))
    np.testing.assert_allclose(np.max(found.shares), right, atol=0.03)
    last = found.states[:, -1, 0]
    np.testing.assert_allclose(np.mean(last > 0), right, atol=0.06)
    # One particle between the modes, where nothing is, would make this 0.08.
    np.testing.assert_allclose(np.std(np.abs(last)), 0.05, atol=0.005)


def test_a_flow_that_is_not_finite_is_not_believed():
    system = System((1,), lambda x, theta: jnp.log(-1 - x**2), prior_std=1.0)
    with pytest.raises(MisfitError, match="not finite"):
        infer(system, np.zeros((3, 1)), 0.1, most_starts=1)


@pytest.mark.parametrize(("name", "options"), [("lorenz63", {}), ("ks", {"num_times": 4, "sites": 32})])
def test_built_in_systems_end_where_the_truth_leads(name, options):
    made = make_example(name, 100, **options)
    given = {"times": made.times[1:], "start": made.times[0], "accept_misfit": True, "num_draws": 2}
    found = infer(made.system, made.observed, made.noise, **given)
    oracle = infer(made.system, made.observed, made.noise, begin_at=Start(made.truth, made.theta), **given)
    assert found.fit.good
    error, reference = (np.sqrt(np.mean((f.mean - made.truth)[1:] ** 2)) for f in (found, oracle))
    assert error < 1.05 * reference
    assert np.mean(np.abs(found.mean - made.truth)[1:] < 1.645 * found.std[1:]) > 0.75


def test_units_of_a_lattice_do_not_matter():
    system = System((20,), lambda x, theta: x + theta[0], np.array([8.0]), 2.34, 3.64, layout="ring")
    assert rescale(system)[0] is system
    small, unit, shift = rescale(system._replace(prior_mean=273.0, prior_std=0.0364))
    assert (unit, shift) == (pytest.approx(0.01), 273.0)
    assert float(np.max(small.prior_std)) == pytest.approx(3.64)
    np.testing.assert_allclose(small.flow(jnp.array([1.0]), jnp.array([0.5])), [1.0 + 0.5 / unit], rtol=1e-4)
    assert local_settings(system, 1.0, 16, 0).search.floor == 0.03
    assert local_settings(system, 0.03, 16, 0).search.floor == pytest.approx(0.003)
    everywhere, one, many = np.ones(100, bool), np.full(100, 1.0), np.full(100, 1.0)
    one[3], many[:20] = 4.0, 4.0
    assert local_fit(np.full(100, 1.1), everywhere, 1.0, True).good
    told = local_fit(one, one < 2, 1.0, True)
    assert told.good
    assert told.notes[0].startswith("1 of 100 sites are not believed (3)")
    assert local_fit(one, everywhere, 1.0, True).notes[0].startswith("sites around 3 fit less well")
    assert not local_fit(many, many < 2, 1.0, True).good
    one[60] = 1.49  # what is not believed elsewhere does not hide what may be a wrong mode here
    assert local_fit(one, one < 2, 1.0, True, 1.3).notes[1].startswith("sites around 60 fit less well")
    assert not local_fit(one, everywhere, 1.0, False).good
    fine = np.full(100, 1.1)
    assert local_fit(fine, everywhere, 1.0, True, off=[-4.0, 0.0]).good
    refused = local_fit(fine, everywhere, 1.0, True, off=[1.0, -6.0], names=("drag", "push"))
    assert (refused.good, len(refused.problems)) == (False, 1)
    assert refused.problems[0].startswith("push ends 6 standard deviations of its prior from the prior's mean")


def turned(x, theta):
    return theta[0] * jnp.roll(x, 1, -1) + theta[1]


def test_a_ring_holds_the_prior_of_its_parameters_as_any_system_does():
    """Priors of three widths by the programs of one compilation, one parameter known: as the global engine has it.

    The last one is searched for modes, at fewer times than a mosaic looks around.
    """
    rng = np.random.default_rng(0)
    states = [2 * rng.standard_normal(20)]
    for _ in range(3):
        states.append(0.7 * np.roll(states[-1], 1) + 0.5 + 0.05 * rng.standard_normal(20))
    observed = np.array(states[1:]) + 0.1 * rng.standard_normal((3, 20))
    system = System((20,), turned, np.array([0.55, 0.5]), 0.0, 2.0, reach=((1, 1),), model_noise=0.05, layout="ring")
    for std, off in ((3.0, 0.05), (0.03, 4.25), (0.015, 5.58)):
        given = system._replace(theta_std=np.array([std, 0.0]))
        ring = infer(given, observed, 0.1, num_draws=4, accept_misfit=True)
        given = given._replace(layout="global")
        whole = infer(given, observed, 0.1, num_draws=4, most_starts=1, fewest_starts=1, accept_misfit=True)
        assert (ring.engine, whole.engine) == ("lattice", "dense")
        assert (ring.theta[0] - 0.55) / std == pytest.approx(off, abs=0.01)
        assert ring.theta[0] == pytest.approx(whole.theta[0], abs=0.02 * whole.theta_std[0])
        assert ring.theta_std[0] == pytest.approx(whole.theta_std[0], rel=0.02)
        assert (ring.theta[1], ring.theta_std[1]) == (0.5, 0.0)
        # The first state, of a wide prior, is the one that single precision shows in.
        np.testing.assert_allclose(ring.mean[1:], whole.mean[1:], atol=0.01 * whole.std.mean())
        np.testing.assert_allclose(ring.std[1:], whole.std[1:], rtol=0.01)
        assert ring.fit.good == (off < 5)
    assert ring.fit.problems[0].startswith("theta[0] ends 5.58 standard deviations of its prior from the prior's mean")


def test_sites_are_not_believed_where_a_misfit_is_beyond_chance():
    rng = np.random.default_rng(0)
    count = np.full(400, 10)
    cost = rng.chisquare(10, 400)
    assert believed_sites(cost, count, 5).all()
    cost[[0, 200]] += 200.0
    lost = np.flatnonzero(~believed_sites(cost, count, 5))
    # A window of five sites either way shows a misfit, and all that it holds is doubted: ten either way, on the ring.
    assert set(lost) == {i % 400 for i in range(-10, 11)} | set(range(190, 211))
    assert not believed_sites(cost[:8], count[:8], 5).any()  # a ring that is one window


def test_a_hole_in_which_a_window_sees_nothing_is_told_from_a_narrower_one():
    count = np.full(60, 32)
    count[20:30] = 0  # ten sites: each has a seen one within five
    assert not unseen_holes(count, 5).any()
    count[30] = 0
    assert np.flatnonzero(unseen_holes(count, 5)).tolist() == list(range(20, 31))
    around = np.roll(count, -25)  # the same hole where the numbering wraps
    assert np.flatnonzero(np.roll(unseen_holes(around, 5), 25)).tolist() == list(range(20, 31))


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({}, {"observed": np.zeros((6, 3))}, r"shape \[6, 3\], expected \[times, 2\]"),
        ({}, {"observed": np.full((6, 2), np.nan)}, "every observation is NaN"),
        ({}, {"noise": 0.0}, "noise is 0: it must be above 0"),
        ({}, {"noise": np.ones(3)}, r"noise has shape \[3\]"),
        ({}, {"noise": np.nan}, "noise is nan: it must be above 0"),
        ({}, {"noise": np.array([1.0, np.inf])}, "noise is inf: it must be above 0, and finite"),
        ({}, {"noise": None}, "noise is None: give its standard deviation"),
        ({}, {"noise": "a"}, "standard deviations of the noise are not numbers .*'a'"),
        ({}, {"observed": np.zeros((6, 2), complex)}, "observations are complex, expected real numbers"),
        ({}, {"times": np.arange(6).astype("datetime64[D]")}, "times are dates, expected real numbers"),
        ({}, {"times": TIMES[::-1]}, "must grow"),
        ({}, {"times": TIMES[:4]}, "4 times for 6 rows"),
        ({"prior_std": 0.0}, {}, "prior_std must be above 0"),
        ({"prior_std": np.ones(2)}, {}, "prior_std has 2 numbers: give one, or one for each of 3"),
        ({"theta_std": -1.0}, {}, "theta_std must be 0 or more"),
        ({"layout": "torus"}, {}, "layout='torus' is not one of"),
        ({"flow": lambda x, theta: x[:2]}, {}, "flow fails on a state of its shape"),
        ({"flow": lambda x, theta: x}, {}, "unevenly spaced"),
        ({"names": ("a",)}, {}, "names holds 1 names for 3"),
        ({"shape": (0,)}, {}, "one whole number above 0 per axis"),
        ({}, {"start": np.nan}, "start=nan is no time: give one finite number"),
    ],
)
def test_bad_problems_get_one_line(change, arguments, message):
    given = {"observed": np.zeros((6, 2)), "noise": 1.0, "times": TIMES} | arguments
    with pytest.raises(InputError, match=message):
        prepare(LINEAR._replace(**change), **given)


def test_what_is_masked_is_missing():
    value = np.ma.masked_greater(np.array([[1.0, 9.0], [9.0, 2.0], [3.0, 4.0]]), 8.0)
    system = System((2,), lambda x, theta: x)
    numbers = prepare(system, value, np.ma.masked_array(np.ones((3, 2)), value.mask))
    np.testing.assert_array_equal(numbers.seen[1:], ~value.mask)
    assert numbers.value.max() == 4.0
    for read in (check_observations(value, (2,), 1.0), read_numbers(list(value), "rows")):
        np.testing.assert_array_equal(np.isnan(read), value.mask)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "kalman"}, "engine='kalman' is not one of 'dense', 'conjugate gradients'"),
        ({"seed": -1}, "seed=-1 is no whole number from 0"),
        ({"num_draws": -1}, "num_draws=-1 is no whole number from 0"),
        ({"num_draws": 2.5}, "num_draws=2.5 is no whole number"),
        ({"start": "x"}, "start='x' is no time: give one finite number"),
        ({"shape": 3}, r"the system's shape is 3: expected a tuple of whole numbers, such as \(3,\)"),
        ({"begin_at": (np.zeros((6, 3)),)}, "begin_at holds 1 arrays, expected two"),
        ({"begin_at": (np.zeros((5, 3)), np.zeros(2))}, r"shape \[5, 3\] and 2 parameters, expected \[6, 3\] .* and 2"),
        ({"begin_at": (np.full((6, 3), np.nan), np.zeros(2))}, "begin_at is not finite"),
    ],
)
@pytest.mark.bad_input
def test_bad_options_get_one_line(options, message):
    system = LINEAR._replace(shape=options.pop("shape", (3,)))
    with pytest.raises(InputError, match=message):
        infer(system, np.zeros((6, 2)), 1.0, **{"times": TIMES} | options)


@pytest.mark.filterwarnings("error")
def test_numbers_out_of_all_proportion_are_told_shortly():
    seen = np.ones((40, 2), bool)
    far = check_fit(np.full((40, 2), 1e200), seen, 0.0, True, 0.0)
    assert (far.good, len(far.problems[0]) < 300) == (False, True)
    told = check_fit(np.full((40, 2), 1e31), seen, 0.0, True, 0.0).problems[0]
    assert told.startswith("the residuals are too large for the noise (chi2 1e+62 per observation, ")
    assert len(told) < 300


@pytest.mark.parametrize(
    ("change", "message"), [({"model_noise": 0.1}, "without noise"), ({"shape": (13,)}, "13 unknowns")]
)
def test_particles_refuse_what_their_weights_cannot_hold(change, message):
    with pytest.raises(InputError, match=message):
        infer_particles(System((2,), lambda x, theta: x)._replace(**change), np.zeros((3, 2)), 1.0)


def test_a_rate_may_depend_on_time():
    flow = integrate(lambda x, theta, time: theta[0] * jnp.cos(time) + 0 * x, 20)
    np.testing.assert_allclose(flow(jnp.zeros(1), jnp.array([2.0]), 0.5, 1.5), [2 * (np.sin(1.5) - np.sin(0.5))], 1e-5)
    assert check_system(System((1,), flow, np.array([2.0]))) == 1


def test_examples_of_the_double_pendulum_follow_its_flow():
    made = make_example("double-pendulum", 100, num_times=20)
    flow = jax.jit(flat_flow(made.system))
    steps = zip(made.truth[:3], made.truth[1:4], made.times[:3], made.times[1:4], strict=True)
    for state, after, begin, end in steps:
        np.testing.assert_allclose(flow(state, made.theta, begin, end), after, rtol=1e-3, atol=1e-3)


def test_examples_are_repeatable():
    assert set(EXAMPLES) == {"pendulum", "lorenz63", "double-pendulum", "ks"}
    first, second = make_example("pendulum", 5), make_example("pendulum", 5)
    np.testing.assert_array_equal(first.observed, second.observed)


@pytest.mark.bad_input
def test_a_ring_whose_sites_are_not_alike_is_told_of_lattices():
    """Parts of a ring are solved alone: a term with a number for each site of the whole was a traceback."""
    forcing = jnp.linspace(0.0, 1.0, 100)
    system = System((100,), lambda x, theta: 0.9 * jnp.roll(x, 1, -1) + forcing, theta=np.zeros(0), layout="ring")
    with pytest.raises(InputError, match=r"ring of 48 sites.*layout='lattice'"):
        infer(system, np.zeros((4, 100)), 0.1)
