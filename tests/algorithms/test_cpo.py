"""CPO's step against a numerical solver."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from toys import compiled, toy_rollout

from awavo.algorithms.cpo import CpoConfig, constrained_step, cpo

SOLVE = jax.jit(constrained_step)


def random_problem(rng, num_constraints, size=6):
    root = rng.normal(size=(size, size))
    hessian = root @ root.T / size + 0.1 * np.eye(size)
    gradient = rng.normal(size=size) * 10 ** rng.uniform(-2, 1)
    rows = rng.normal(size=(num_constraints, size)) * 10 ** rng.uniform(-2, 1, (num_constraints, 1))
    radius = 10 ** rng.uniform(-3, -1)
    reach = np.sqrt(2 * radius * np.einsum("ij,jk,ik->i", rows, np.linalg.inv(hessian), rows))
    excess = rng.uniform(-1.5, 1.2, num_constraints) * reach
    return hessian, gradient, rows, excess, radius


def our_step(hessian, gradient, rows, excess, radius):
    inverse = np.linalg.inv(hessian)
    q, r, s = gradient @ inverse @ gradient, rows @ inverse @ gradient, rows @ inverse @ rows.T
    solution = SOLVE(*(np.float32(x) for x in (q, r, s, excess)), radius)
    step = float(solution.alpha) * inverse @ gradient - inverse @ rows.T @ np.asarray(solution.weights, float)
    return step, bool(solution.recovering)


def slsqp(objective, jacobian, rows, excess, bound, starts):
    """Best feasible point from several starts, in coordinates where H is the identity."""
    constraints = [dict(type="ineq", fun=lambda x: -(rows @ x + excess), jac=lambda x: -rows)]
    if bound is not None:
        constraints.append(dict(type="ineq", fun=lambda x: bound - x @ x, jac=lambda x: -2 * x))
    best = None
    for start in starts:
        found = minimize(
            objective,
            start,
            jac=jacobian,
            constraints=constraints,
            method="SLSQP",
            options=dict(ftol=1e-12, maxiter=400),
        )
        worst = max(np.max(rows @ found.x + excess), 0 if bound is None else found.x @ found.x - bound)
        if worst <= 1e-6 and (best is None or found.fun < best.fun):
            best = found
    return best


@pytest.mark.parametrize("num_constraints", [1, 2, 3])
def test_step_agrees_with_slsqp_on_120_random_problems(num_constraints):
    rng = np.random.default_rng(num_constraints)
    kinds = {"free": 0, "bound": 0, "recovery": 0}
    for _ in range(120):
        hessian, gradient, rows, excess, radius = random_problem(rng, num_constraints)
        step, recovering = our_step(hessian, gradient, rows, excess, radius)
        # Units in which the trust region is the unit ball and every row has length 1.
        root = np.linalg.inv(np.linalg.cholesky(hessian)).T * np.sqrt(2 * radius)
        g, b = gradient @ root, rows @ root
        scale = np.linalg.norm(b, axis=1)
        g, b, c = g / np.linalg.norm(g), b / scale[:, None], excess / scale
        x = np.linalg.solve(root, step)
        near = slsqp(lambda y: y @ y, lambda y: 2 * y, b, c, None, [np.zeros(len(x))])
        assert near is not None
        if near.fun > 1 + 1e-3:
            kinds["recovery"] += 1
            assert recovering
            np.testing.assert_allclose(x, near.x / np.sqrt(near.fun), atol=5e-3)
        elif near.fun < 1 - 1e-3:
            best = slsqp(
                lambda y, g=g: -g @ y, lambda y, g=g: -g, b, c, 1.0, [near.x, near.x + 0.1 * g, np.zeros(len(x))]
            )
            kinds["bound" if np.max(b @ best.x + c) > -1e-4 else "free"] += 1
            assert not recovering
            assert np.max(b @ x + c) <= 1e-3
            assert x @ x <= 1 + 1e-3
            assert g @ x >= -best.fun - 2e-3
    assert min(kinds.values()) > 5, kinds


def test_one_constraint_is_the_dual_of_the_paper():
    """lambda* maximises the dual; alpha = 1 / lambda, weights = nu / lambda."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        hessian, gradient, rows, excess, radius = random_problem(rng, 1)
        inverse = np.linalg.inv(hessian)
        q, r, s, c = (
            gradient @ inverse @ gradient,
            (rows @ inverse @ gradient)[0],
            (rows @ inverse @ rows.T)[0, 0],
            excess[0],
        )
        if c * c / s >= 2 * radius * 0.99:
            continue

        def dual(lam):
            nu = np.maximum(0, (lam * c + r) / s)  # noqa: B023
            return (q - 2 * nu * r + nu**2 * s) / (2 * lam) + lam * radius - nu * c  # noqa: B023

        lams = np.exp(np.linspace(-14, 14, 200_001))
        lam = lams[np.argmin(dual(lams))]
        solution = SOLVE(*(np.float32(x) for x in (q, [r], [[s]], [c])), radius)
        assert float(solution.alpha) == pytest.approx(1 / lam, rel=2e-2, abs=1e-6)
        assert float(solution.weights[0]) == pytest.approx(
            max(0, (lam * c + r) / s) / lam, rel=3e-2, abs=1e-4 / np.sqrt(s)
        )


def test_constraint_without_a_gradient_changes_nothing():
    solution = SOLVE(*(np.float32(x) for x in (2.0, [0.0], [[0.0]], [0.3])), 0.01)
    assert float(solution.alpha) == pytest.approx(np.sqrt(0.02 / 2.0), rel=1e-5)
    assert not bool(solution.recovering)


def test_recovers_when_the_limits_are_out_of_reach():
    config = CpoConfig(num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1)
    programs = compiled(cpo, config)
    for costs, recovering in ((0.0, 0.0), (1000.0, 1.0)):
        _, info = programs.learn(jax.random.key(1), programs.state, toy_rollout(costs=(costs, 0.0)))
        assert float(info.recovering) == recovering
        assert float(info.kl) <= config.max_kl
