"""PCPO's projection against a quadratic-programming solver."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from toys import SPEC, compiled, toy_rollout

from awavo.algorithms.estimation import estimator
from awavo.algorithms.pcpo import PcpoConfig, pcpo, project
from awavo.algorithms.trust_region import local_model, natural_gradients

PROJECT = jax.jit(project)


@pytest.mark.parametrize("norm", ["kl", "l2"])
@pytest.mark.parametrize("num_constraints", [1, 2, 3])
def test_projection_agrees_with_a_quadratic_program(norm, num_constraints):
    rng = np.random.default_rng(num_constraints)
    active = 0
    for _ in range(60):
        root = rng.normal(size=(6, 6))
        metric = root @ root.T / 6 + 0.1 * np.eye(6) if norm == "kl" else np.eye(6)
        step, rows = rng.normal(size=6), rng.normal(size=(num_constraints, 6))
        excess = rng.normal(size=num_constraints)
        arrays = [np.float32(x) for x in (step, rows, rows @ np.linalg.inv(metric), excess)]
        found, multipliers = PROJECT(*arrays)
        expected = minimize(
            lambda y: (y - step) @ metric @ (y - step),  # noqa: B023
            step,
            jac=lambda y: 2 * metric @ (y - step),  # noqa: B023
            constraints=dict(type="ineq", fun=lambda y: -(rows @ y + excess), jac=lambda y: -rows),  # noqa: B023
            method="SLSQP",
            options=dict(ftol=1e-13, maxiter=500),
        ).x
        np.testing.assert_allclose(found, expected, atol=3e-3 * (1 + np.abs(expected).max()))
        assert np.all(np.asarray(multipliers) >= 0)
        active += int(np.any(np.asarray(multipliers) > 0))
    assert active > 10


def test_limits_whose_gradients_nearly_oppose_each_other_are_not_given_up():
    """To float32 no point lies within both; the one that is least outside is far nearer than the step as it was."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        step, row, other = rng.normal(size=(3, 6))
        row /= np.linalg.norm(row)
        other -= (other @ row) * row
        rows = np.stack([row, -row + 0.02 * other / np.linalg.norm(other)])
        excess = rng.uniform(0.1, 0.2, 2) - rows @ step  # both violated
        found, _ = PROJECT(*(np.float32(x) for x in (step, rows, rows, excess)))
        assert (rows @ np.asarray(found) + excess).max() < 0.02


def test_one_constraint_is_the_formula_of_the_paper():
    rng = np.random.default_rng(0)
    for excess in (-3.0, 0.2, 2.0):
        step, row = (rng.normal(size=5).astype(np.float32) for _ in range(2))
        found, _ = PROJECT(step, row[None], row[None], np.float32([excess]))
        expected = step - max(0.0, float((row @ step + excess) / (row @ row))) * row
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_excess_is_taken_away_in_the_unit_of_the_surrogate():
    """8 steps an episode: an excess of 0.4 is 0.05 a step, and the projected step is predicted to take that away."""
    config = PcpoConfig(hidden=(8,), window=4, value_epochs=1, damping=1e-3, cg_iterations=40, fisher_rows=10_000)

    @jax.jit
    def projected(rollout):
        state = pcpo(SPEC, config).init(jax.random.key(0))
        _, batch, _ = estimator(SPEC, config, config.window).update(jax.random.key(1), state.estimates, rollout)
        excess = batch.excess(jnp.asarray(SPEC.cost_limits))
        rows, natural = natural_gradients(local_model(state.policy, batch, config), batch.cost_advantages.T)
        step, _ = project(jnp.zeros(rows.shape[1]), rows, natural, excess)
        return excess, rows @ step

    excess, change = projected(toy_rollout(costs=(5.4, 0.0)))
    np.testing.assert_allclose(excess[0], 0.05, rtol=1e-3)
    np.testing.assert_allclose(change[0], -0.05, rtol=1e-2)


SMALL = PcpoConfig(num_envs=4, rollout_length=8, hidden=(8,), window=4, value_epochs=1)


def test_line_search_keeps_the_radius_and_without_it_the_step_is_whole():
    rollout = toy_rollout(costs=(5.4, 0.0))
    searched, whole = (compiled(pcpo, dataclasses.replace(SMALL, line_search=x)) for x in ("on", "off"))
    _, kept = searched.learn(jax.random.key(1), searched.state, rollout)
    after, full = whole.learn(jax.random.key(1), whole.state, rollout)
    assert 0 < float(kept.kl) <= SMALL.max_kl
    assert float(kept.step_scale) <= float(full.step_scale) == 1.0
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(after.policy))
