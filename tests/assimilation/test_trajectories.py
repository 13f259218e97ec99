"""Smoother, lattice and tangent step against dense linear algebra."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from awavo.assimilation.lattice import make_lattice, measure_reach
from awavo.assimilation.smoother import filter_chains, smooth_chains, smoothed_variance
from awavo.assimilation.trajectories import Data, tangent_step, tangents
from awavo.errors import InputError
from awavo.tasks.lorenz96 import lorenz96_flow

KEY = jax.random.key(0)


def dense_chain(m, q, w, start, defect, residual, prior):
    """Hessian and gradient of the chain's objective, by rows of residuals."""
    steps, n = m.shape[0], m.shape[-1]
    rows, right = [np.eye(n, (steps + 1) * n) / np.sqrt(prior)], [start / np.sqrt(prior)]
    for k in range(steps):
        row = np.zeros((n, (steps + 1) * n))
        row[:, (k + 1) * n : (k + 2) * n], row[:, k * n : (k + 1) * n] = np.eye(n), -m[k]
        rows.append(row / np.sqrt(q[k])[:, None])
        right.append(defect[k] / np.sqrt(q[k]))
    for k in range(steps + 1):
        row = np.zeros((n, (steps + 1) * n))
        row[:, k * n : (k + 1) * n] = np.diag(np.sqrt(w[k]))
        rows.append(row)
        right.append(np.sqrt(w[k]) * residual[k])
    rows, right = np.concatenate(rows), np.concatenate(right)
    return rows.T @ rows, rows.T @ right


def test_smoother_solves_the_chain_exactly():
    rng = np.random.default_rng(0)
    steps, chains, n = 4, 3, 10
    m = 0.4 * rng.normal(size=(steps, chains, n, n))
    q, w = rng.uniform(0.01, 1, (steps, chains, n)), rng.uniform(0, 2, (steps + 1, chains, n)).round()
    start, defect = rng.normal(size=(chains, n, 2)), rng.normal(size=(steps, chains, n, 2))
    residual, force = rng.normal(size=(2, steps + 1, chains, n, 2))
    with jax.enable_x64(True):

        @jax.jit
        def solve(m, q, w, start, defect, residual):
            covariance = filter_chains(m, jnp.broadcast_to(2.0 * jnp.eye(n), (chains, n, n)), q, w)
            push = w[..., None] * residual + force
            return *smooth_chains(m, covariance, start, defect, w, push), smoothed_variance(m, covariance, w)

        delta, multiplier, variance = map(np.asarray, solve(m, q, w, start, defect, residual))
    for b in range(chains):
        for r in range(2):
            hessian, gradient = dense_chain(
                m[:, b], q[:, b], w[:, b], start[b, :, r], defect[:, b, :, r], residual[:, b, :, r], 2.0
            )
            exact = np.linalg.solve(hessian, gradient + force[:, b, :, r].reshape(-1)).reshape(steps + 1, n)
            np.testing.assert_allclose(delta[:, b, :, r], exact, atol=1e-9)
            jump = exact[1:] - np.einsum("kij,kj->ki", m[:, b], exact[:-1]) - defect[:, b, :, r]
            np.testing.assert_allclose(multiplier[:, b, :, r] * q[:, b], jump, atol=1e-9)
        np.testing.assert_allclose(variance[:, b].reshape(-1), np.diag(np.linalg.inv(hessian)), atol=1e-9)


def grid_flow(x, theta):
    """A local map of a periodic grid: reach one site along each axis."""
    near = jnp.roll(x, 1, -1) + 0.5 * jnp.roll(x, -1, -2)
    return x + 0.1 * jnp.sin(near) * x + theta[0]


@pytest.mark.parametrize(
    ("shape", "flow", "reach"),
    [((40,), lorenz96_flow(1), ((4, 8),)), ((7, 6), grid_flow, ((1, 1), (1, 1)))],
    ids=["ring", "grid"],
)
def test_coloured_probes_give_the_dense_jacobian(shape, flow, reach):
    lattice = make_lattice(shape, reach, core=3, margin=2) if len(shape) > 1 else make_lattice(shape, reach)
    size = int(np.prod(shape))
    x = 2 * np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    theta = np.float32([0.3])
    probe = np.asarray(jax.jit(lambda x: tangents(lattice, flow, x, theta)[1])(x))
    jacobian = jax.jit(jax.jacfwd(lambda v: flow(v.reshape(shape), theta).reshape(-1)))
    places = np.indices(shape).reshape(len(shape), -1).T
    offsets = np.array(list(np.ndindex(*(b + a + 1 for b, a in reach)))) - [b for b, _ in reach]
    reached = [np.ravel_multi_index(tuple((place + offsets).T), shape, mode="wrap") for place in places]
    for k in range(2):
        exact = jacobian(x[k])
        built = np.zeros((size, size))
        for i in range(size):
            built[reached[i], i] = probe[k, lattice.colour[i], reached[i]]
        np.testing.assert_allclose(built, exact, atol=1e-5)
    owners = lattice.patch_site[lattice.core > 0]
    assert sorted(owners) == list(range(size))
    np.testing.assert_array_equal(lattice.patch_site.reshape(-1)[lattice.home], np.arange(size))


def test_reach_is_measured_and_a_short_axis_refused():
    theta = jnp.array([8.0])
    before, after = measure_reach(lambda x: lorenz96_flow(5)(x, theta), 2.3 + 3.6 * jax.random.normal(KEY, (80,)))[0]
    assert 3 <= before <= 6
    assert 6 <= after <= 12
    with pytest.raises(InputError, match="shorter than the map's reach"):
        make_lattice((10,), ((5, 10),))


def problem(shape, flow, num_times=3):
    size = int(np.prod(shape))
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=(num_times + 1, size))
    value = x[1:] + rng.normal(size=(num_times, size))
    weight = rng.uniform(size=value.shape) < 0.6
    data = Data(np.full(size, 1.0), np.full(size, 4.0), value, weight, np.full(value.shape, 0.04))
    return jax.tree.map(lambda a: a.astype(np.float32), (x, data))


@pytest.mark.parametrize(
    ("shape", "flow", "reach", "prior"),
    [((24,), lorenz96_flow(2), ((8, 15),), 3.0), ((4, 4), grid_flow, ((1, 1), (1, 1)), 0.2)],
    ids=["ring", "grid"],
)
def test_one_patch_gives_the_dense_gauss_newton_step_with_parameters(shape, flow, reach, prior):
    """X, theta, their variances, and the covariance of the draws, from the dense Jacobian of all residuals."""
    with jax.enable_x64(True):
        x, data = jax.tree.map(lambda a: a.astype(np.float64), problem(shape, flow))
        lattice, theta = make_lattice(shape, reach), np.array([0.7])
        data = data._replace(theta=np.array([0.6]), theta_std=np.array([prior]))
        size, count = x.shape[1], x.size

        def residuals(z):
            x, theta = z[:count].reshape(-1, size), z[count:]
            model = x[1:] - flow(x[:-1].reshape(-1, *shape), theta).reshape(x[1:].shape)
            parts = [(x[0] - data.prior_mean) / jnp.sqrt(data.prior_var), model / jnp.sqrt(data.noise)]
            parts.append((theta - data.theta) / data.theta_std)
            return jnp.concatenate([p.reshape(-1) for p in (*parts, jnp.sqrt(data.weight) * (x[1:] - data.value))])

        z = np.concatenate([x.reshape(-1), theta])
        jacobian, missed = map(np.asarray, jax.jit(lambda z: (jax.jacfwd(residuals)(z), residuals(z)))(z))
        inverse = np.linalg.inv(jacobian.T @ jacobian)
        exact = -inverse @ jacobian.T @ missed
        made = jax.jit(
            lambda x, theta, data: tangent_step(
                lattice,
                flow,
                x,
                theta,
                data,
                infer_theta=True,
                variance=True,
                key=KEY,
                num_draws=4000,
                tolerated=jnp.inf,
            )
        )(x, theta, data)
    made = jax.device_get(made)
    np.testing.assert_allclose(made.move.reshape(-1), exact[:count], atol=1e-7)
    np.testing.assert_allclose(made.theta, exact[count:], atol=1e-7)
    np.testing.assert_allclose(made.variance.reshape(-1), np.diag(inverse)[:count], rtol=1e-6)
    np.testing.assert_allclose(made.theta_cov, inverse[count:, count:], rtol=1e-6)
    assert 0.3 < np.sqrt(made.theta_cov[0, 0]) / prior < 0.9  # both the prior and the states say something
    draws = np.concatenate([made.draws.reshape(4000, -1), made.theta_draws], 1)
    ratio = draws.std(0) / np.sqrt(np.diag(inverse))
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.02)
    assert np.mean(np.corrcoef(draws.T)[-1, :count] * np.sqrt(np.diag(inverse)[:count] * inverse[-1, -1])
                   - inverse[-1, :count]) == pytest.approx(0.0, abs=0.02)  # fmt: skip


def test_patches_in_groups_are_the_same_patches():
    flow, theta = lorenz96_flow(2), np.float32([8.0])
    x, data = problem((150,), flow)
    steps = [
        jax.jit(
            lambda x, theta, data, g=g: (
                tangent_step(make_lattice((150,), ((4, 9),), groups=g), flow, x, theta, data, groups=g).move
            )
        )(x, theta, data)
        for g in (1, 3)
    ]
    np.testing.assert_allclose(*steps, atol=1e-4)
    assert np.abs(steps[0]).max() > 0.1


@pytest.mark.parametrize(
    ("shape", "flow", "reach", "core", "margin"),
    [((80,), lorenz96_flow(5, 0.025), ((5, 10),), 16, 8), ((14, 14), grid_flow, ((1, 1), (1, 1)), 4, 1)],
    ids=["ring", "grid"],
)
def test_joined_steps_end_at_the_minimum_and_patches_alone_beside_it(shape, flow, reach, core, margin):
    size, times, rng = int(np.prod(shape)), 4, np.random.default_rng(0)
    with jax.enable_x64(True):
        theta, states = jnp.array([8.0 if len(shape) == 1 else 0.1]), [jnp.asarray(rng.normal(size=shape))]
        for _ in range(12 + times):
            states.append(flow(states[-1], theta))
        truth = np.stack(states[-times - 1 :]).reshape(times + 1, size)
        seen = (np.arange(size) % 3 < 2) * np.ones((times, 1))
        value = truth[1:] + 0.1 * rng.normal(size=(times, size))
        noise = np.full(value.shape, 1e-2)
        data = Data(*map(jnp.asarray, (truth[0], np.full(size, 1.0), value, seen / 0.01, noise)))

        @partial(jax.jit, static_argnums=2)
        def end(x, joined, core, steps):
            lattice = make_lattice(shape, reach, core=core, margin=margin)

            def step(_, x):
                return x + 0.6 * tangent_step(lattice, flow, x, theta, data, joined=joined, tolerated=jnp.inf).move

            return lax.fori_loop(0, steps, step, x)

        exact = end(jnp.asarray(truth), 0.0, 2 * size, 15)  # one patch
        alone = end(exact, 0.0, core, 15)
        joined = end(alone, 1.0, core, 25)
    off = np.abs(np.asarray([alone - exact, joined - exact])).max((1, 2))
    assert off[0] > 1e-3
    assert off[1] < 0.02 * off[0]


def test_joined_steps_on_a_long_chain_converge_by_the_stiffness_that_patches_leave_out():
    """A tight model over many times, seen through much noise: by the force alone, steps grow until nothing is left."""
    size, times, rng = 80, 16, np.random.default_rng(1)
    flow = lorenz96_flow(5, 0.025)
    with jax.enable_x64(True):
        theta, states = jnp.array([8.0]), [jnp.asarray(8 + rng.normal(size=size))]
        advance = jax.jit(flow)
        for _ in range(60 + times):
            states.append(advance(states[-1], theta))
        truth = np.stack(states[-times - 1 :])
        seen = (np.arange(size) % 3 < 2) * np.ones((times, 1))
        value = truth[1:] + rng.normal(size=(times, size))
        prior, noise = np.full(size, 13.0), np.full(value.shape, 1e-4)
        data = Data(*map(jnp.asarray, (truth[0], prior, value, seen, noise)))
        lattice = make_lattice((size,), ((5, 10),), core=16, margin=8)

        def step(x, joined):
            move = tangent_step(lattice, flow, x, theta, data, joined=joined, tolerated=jnp.inf).move
            return x + 0.6 * move, jnp.abs(move).max()

        kinds = jnp.asarray([0.0] * 12 + [1.0] * 12)
        moves = np.asarray(jax.jit(lambda x: lax.scan(step, x, kinds))(jnp.asarray(truth))[1])
    assert moves[11] < 0.01 < moves[12]  # patches alone had settled, beside the minimum
    assert moves[-1] < 0.1 * moves[12]
